"""What a type checker sees of warpfrag: `make types` reads tests/typed_program.py with no Any allowed in it."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import warpfrag as wf

HERE = Path(__file__).parent
PROGRAM = HERE / "typed_program.py"


def test_the_program_touches_every_public_name_and_runs(capsys):
    text = PROGRAM.read_text(encoding="utf-8")
    # verify needs a GPU, and wmma is a module with a surface of its own
    assert [name for name in wf.__all__ if f"wf.{name}" not in text] == ["verify", "wmma"]
    runpy.run_path(str(PROGRAM), run_name="__main__")
    assert "mma.sync.aligned.m16n8k16" in capsys.readouterr().out


def test_the_type_checker_reads_it_without_any():
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert "tests/typed_program.py" in settings["files"]
    assert {"module": "typed_program", "disallow_any_expr": True} in settings["overrides"]


def test_public_names_are_all_that_the_package_shows():
    assert dir(wf) == sorted(wf.__all__)
