"""README's commands run unchanged from an empty folder: they need no files except the package's."""

import re
from pathlib import Path

import pytest

import examples

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = [
    command
    for block in examples.blocks(README)
    if block.language == "console"
    for command in examples.commands(block.text)
]
INLINE = re.findall(r"`(warpfrag [^`\n]+)`", examples.BLOCK.sub("", README))
COMMANDS = list(dict.fromkeys([*(command.line for command in SHOWN), *INLINE]))
RUN = [line for line in COMMANDS if examples.reason_not_to_run(line) is None]
FINDS = (
    "warpfrag diagnose sample:tile.ptx",
    "warpfrag batch-invariance",
    "warpfrag ptx run",
)  # commands that find a mistake


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", RUN)
def test_a_command_runs_as_it_stands(line):
    status, printed = examples.run_command(line)

    assert status == line.startswith(FINDS), printed
    assert printed


def test_what_is_not_run_installs_or_needs_a_program_a_kernel_or_a_gpu():
    left = {" ".join(line.split()[:2]) for line in COMMANDS if line not in RUN}
    installs = {"pip install", "make run", "make test", "make test-all"}
    assert left - installs == {"warpfrag gpu", "warpfrag diagnose"}


def test_it_is_short():
    assert len(README.splitlines()) <= 90
    assert len(README.split()) <= 700


def test_its_numbers_are_those_of_the_reports():
    rows = re.findall(r"\[([^\]]*\d[^\]]*)\]\((docs/evidence/\w+\.md)\)", README)

    assert len(rows) >= 3
    for text, report in rows:
        facts = (ROOT / report).read_text(encoding="utf-8").replace(",", "")
        assert [number for number in re.findall(r"\d[\d,]*", text) if number.replace(",", "") not in facts] == []


def test_pictures_are_there_and_small():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)

    assert pictures
    assert [name for name in pictures if not 0 < (ROOT / name).stat().st_size < 150_000] == []
