"""The architecture: packages in layers, imports that point down and never in a circle."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
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


# Names

OLD_VOCABULARY = {
    "room",
    "rooms",
    "floors",
    "way",
    "ways",
    "trip",
    "trips",
    "meeting",
    "meetings",
    "hear",
    "heard",
    "sing",
    "sings",
    "crooked",
    "odd",
    "tops",
    "know",
    "nudge",
    "said",
    "shown",
    "given",
    "most",
    "least",
    "one",
    "found",
}
"""Words that engineers of this field do not use for what the code does: no identifier has one as a whole word."""
OF_LIBRARIES = {"most_common"}  # collections.Counter's


def identifiers(tree):
    """Every name that a module defines or uses, with its line."""
    names = {
        ast.Name: "id",
        ast.Attribute: "attr",
        ast.arg: "arg",
        ast.keyword: "arg",
        ast.FunctionDef: "name",
        ast.AsyncFunctionDef: "name",
        ast.ClassDef: "name",
        ast.alias: "name",
    }
    for node in ast.walk(tree):
        if type(node) in names:
            for part in (getattr(node, names[type(node)]) or "").split("."):
                yield part, getattr(node, "lineno", 0)


def words_of(identifier):
    """The words of snake_case and CamelCase, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def test_identifiers_use_the_vocabulary_of_the_field():
    assert words_of("MOST_lanesHeard") == {"most", "lanes", "heard"}
    uses = [
        f"{name}:{line}: {identifier}"
        for name, tree in MODULES.items()
        for identifier, line in [*identifiers(tree), *((part, 0) for part in name.split("."))]
        if identifier not in OF_LIBRARIES and words_of(identifier) & OLD_VOCABULARY
    ]

    assert uses == []


def test_a_class_name_is_defined_once():
    classes = defaultdict(list)
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)

    assert len(classes) > 200
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


# Habits


def lines_with(pattern):
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        (r"noqa:.*\bANN401\b", 40),
        (r"#\s*type: ignore", 25),
        (r"^\s*assert\b", 0),
    ],
)
def test_exceptions_stay_few(pattern, limit):
    places = lines_with(pattern)

    assert len(places) <= limit, places


def test_what_differs_by_operation_is_data():
    """A test of `form.is_...` outside `isa` spreads what an operation is: say it in a table keyed by operation."""
    places = [place for place in lines_with(r"\bform\.is_\w+") if not place.startswith("src/warpfrag/isa/")]

    assert len(places) <= 10, places
