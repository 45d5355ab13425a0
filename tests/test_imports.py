"""Imports point one way: no module needs, however deep in a function or for a type only, one that needs it."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import warpfrag

SOURCE = Path(warpfrag.__file__).parent


def modules():
    """Every module by its name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(["warpfrag", *path.relative_to(SOURCE).with_suffix("").parts])
        found[name.removesuffix(".__init__")] = path
    return found


def needed(path, known):
    """The modules of ours that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "warpfrag":
            names = {f"{node.module}.{entry.name}" for entry in node.names}
            yield from (name if name in known else node.module for name in names)


def test_no_two_modules_need_each_other():
    known = modules()
    graph = {name: set(needed(path, known)) - {name} for name, path in known.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, with the cycle, where there is one

    assert order.index("warpfrag.layout") < order.index("warpfrag.execute") < order.index("warpfrag.vectors.sets")
    assert sorted(order) == sorted(known)
