"""The architecture: packages in layers, imports that point down and never in a circle."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "warpfrag"


def modules():
    """Every module by its name, as a syntax tree."""
    names = {
        ".".join(["warpfrag", *path.relative_to(SOURCE).with_suffix("").parts]): path for path in SOURCE.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): ast.parse(path.read_bytes()) for name, path in sorted(names.items())}


MODULES = modules()


def imported(tree):
    """The modules of ours that a module imports: in functions and for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "warpfrag":
            names = {f"{node.module}.{entry.name}" for entry in node.names}
            yield from (name if name in MODULES else node.module for name in names)


def test_imports_keep_the_contracts_of_pyproject(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)

    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def test_no_two_modules_import_each_other():
    graph = {name: set(imported(tree)) - {name} for name, tree in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, with the cycle, where there is one

    assert order.index("warpfrag.core.layout") < order.index("warpfrag.products.gemm")
    assert sorted(order) == sorted(MODULES)


def test_the_root_holds_packages_and_few_files():
    entries = {path.name for path in SOURCE.iterdir()} - {"__pycache__"}

    assert {name for name in entries if not (SOURCE / name).is_dir()} == {
        "__init__.py",
        "__main__.py",
        "errors.py",
        "py.typed",
    }
    assert len(entries) <= 30


def test_only_package_heads_import_modules_of_ours_by_name():
    """`__init__` loads public names and verbs on first use; anywhere else an import by name would hide a dependency."""
    calls = {
        name: [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) in {"import_module", "importlib.import_module", "__import__"}
            and "warpfrag" in ast.unparse(node)
        ]
        for name, tree in MODULES.items()
        if not (SOURCE.parent / name.replace(".", "/") / "__init__.py").is_file()
    }

    assert len(calls) > 100
    assert {name: found for name, found in calls.items() if found} == {}
