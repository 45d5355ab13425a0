"""What the tests of the command line share: a way to run it in this process."""

from __future__ import annotations

import io
import json
from typing import NamedTuple

import pytest

from warpfrag.cli import main


class Answer(NamedTuple):
    """What one run of the command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capsys, monkeypatch):
    """Run `warpfrag` with words, and with text or bytes on its stdin."""

    def run_words(*words: object, stdin: str | bytes = "") -> Answer:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run_words


@pytest.fixture
def refused(run):
    """Run `warpfrag` with words it must refuse; the sentence it says."""

    def run_words(*words: object, stdin: str | bytes = "") -> str:
        answer = run(*words, stdin=stdin)
        assert answer.code == 2
        assert not answer.out
        assert answer.err.startswith("warpfrag: ")
        assert answer.err.count("\n") == 1
        return answer.err.removeprefix("warpfrag: ").rstrip("\n")

    return run_words
