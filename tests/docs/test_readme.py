"""README's commands run as they stand, from an empty folder: they need no file but those of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import examples
from warpfrag.cli import VERBS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = [
    command
    for block in examples.blocks(README)
    if block.language == "console"
    for command in examples.commands(block.text)
]
INLINE = re.findall(r"`(warpfrag [^`\n]+)`", examples.BLOCK.sub("", README))
QUESTIONS = re.search(r"\| question \| command \|\n\|---\|---\|\n((?:\|.*\|\n)+)", README)[1].splitlines()
COMMANDS = list(dict.fromkeys([*(command.line for command in SHOWN), *INLINE]))
RUN = [line for line in COMMANDS if examples.reason_not_to_run(line) is None]
NO = {"legal": 1}  # verbs whose answer here is no


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", RUN)
def test_a_command_runs_as_it_stands(line):
    status, printed = examples.run_command(line)

    assert status == NO.get(line.split()[1], 0), printed
    assert printed


def test_what_is_not_run_needs_a_gpu_or_make():
    assert {line.split()[0] for line in COMMANDS if line not in RUN} <= {"make", "warpfrag"}
    assert [line for line in COMMANDS if line not in RUN and line.startswith("warpfrag")] == ["warpfrag verify"]


def test_there_are_ten_questions_with_commands_of_known_verbs():
    assert len(QUESTIONS) == 10
    for question in QUESTIONS:
        commands = re.findall(r"`warpfrag ([a-z-]+) [^`]+`", question)
        assert commands, question
        assert set(commands) <= set(VERBS), question


def test_pictures_are_there_and_small():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)

    assert pictures
    assert [name for name in pictures if not 0 < (ROOT / name).stat().st_size < 150_000] == []
