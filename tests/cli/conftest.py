"""Helpers for the command-line tests: run the command in this process."""

import io
import json
from typing import NamedTuple

import pytest

from warpfrag.cli import main


class Answer(NamedTuple):
    """The output and exit status of one run."""

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
    """Run `warpfrag` with arguments, and with text or bytes on stdin."""

    def run_words(*words: object, stdin: str | bytes = "") -> Answer:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run_words


@pytest.fixture
def refused(run):
    """Run `warpfrag` with arguments that it must reject, and return its error message."""

    def run_words(*words: object, stdin: str | bytes = "") -> str:
        answer = run(*words, stdin=stdin)
        assert answer.code == 2
        assert not answer.out
        assert answer.err.startswith("warpfrag: ")
        assert answer.err.count("\n") == 1
        return answer.err.removeprefix("warpfrag: ").rstrip("\n")

    return run_words
