"""warpfrag as a type checker sees it: `make types` checks tests/typed_program.py, in which no Any is allowed."""

import inspect
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import warpfrag as wf

HERE = Path(__file__).parent
PROGRAM = HERE / "typed_program.py"
OPTIONAL = {"torch", "triton"}  # modules that need extras


def members(kind):
    """Return the members that a public class shows: its own, and those of our base classes."""
    ours = [part for part in kind.__mro__ if part.__module__.startswith("warpfrag")]
    names = {name for part in ours for name in (*vars(part), *vars(part).get("__annotations__", ()))}
    return {name for name in names if not name.startswith("_")}


def classes(module):
    names = set(module.__all__) - OPTIONAL
    return [one for one in (getattr(module, name) for name in sorted(names)) if inspect.isclass(one)]


@pytest.mark.filterwarnings("ignore::warpfrag.errors.AmbiguousOrder")
def test_the_program_touches_every_public_object_and_runs(capsys, monkeypatch):
    monkeypatch.delenv("WARPFRAG_LEVEL")  # it loads a cubin
    text = PROGRAM.read_text(encoding="utf-8")
    wanted = {f"wf.{name}" for name in set(wf.__all__) - OPTIONAL} | {
        f"wmma.{name}" for name in wf.wmma.__all__ if name[0] != "_"
    }
    wanted |= {f".{name}" for kind in classes(wf) for name in members(kind)}
    assert len(wanted) > 150
    assert sorted(name for name in wanted if not re.search(rf"{re.escape(name)}\b", text)) == []
    runpy.run_path(str(PROGRAM), run_name="__main__")
    assert "mma.sync.aligned.m16n8k16" in capsys.readouterr().out


def functions(kind):
    """The methods and properties of a class, and the class itself for its fields."""
    yield kind.__name__, kind
    for part in (part for part in kind.__mro__ if part.__module__.startswith("warpfrag")):
        for name, member in vars(part).items():
            function = getattr(member, "fget", getattr(member, "func", getattr(member, "__func__", member)))
            if inspect.isfunction(function) and (name[0] != "_" or name in {"__call__", "__iter__", "__matmul__"}):
                yield f"{kind.__name__}.{name}", function


def test_no_public_annotation_is_any():
    names = sorted(set(wf.__all__) - OPTIONAL)
    public = [(name, getattr(wf, name)) for name in names if inspect.isfunction(getattr(wf, name))]
    public += [(name, one) for module in (wf, wf.wmma) for name, one in vars(module).items() if inspect.isfunction(one)]
    public += [pair for module in (wf, wf.wmma) for kind in classes(module) for pair in functions(kind)]
    found = {name: one.__annotations__ for name, one in public if name[0] != "_"}
    assert len(found) > 150
    assert {name for name, hints in found.items() if re.search(r"\bAny\b", " ".join(map(str, hints.values())))} == set()


def test_the_type_checker_reads_it_without_any():
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert "tests/typed_program.py" in settings["files"]
    assert {"module": "typed_program", "disallow_any_expr": True} in settings["overrides"]


def test_public_names_are_all_that_the_package_shows():
    assert dir(wf) == sorted(wf.__all__)
