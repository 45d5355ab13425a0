"""The architecture: packages in layers, imports that point down and never in a circle."""

from __future__ import annotations

import ast
import inspect
import logging
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from importlinter.cli import lint_imports

import warpfrag as wf

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
    monkeypatch.setattr(logging.getLogger("warpfrag"), "disabled", False)  # the linter disables it

    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def test_no_two_modules_import_each_other():
    graph = {name: set(imported(tree)) - {name} for name, tree in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, with the cycle, where there is one

    assert order.index("warpfrag.layout.linear_layout") < order.index("warpfrag.blas.gemm")
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
OF_LIBRARIES = {"most_common", "NOT_FOUND"}  # collections.Counter's, http.HTTPStatus'


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
    """The words of snake_case and CamelCase, in lower case; a round trip is a term of the field."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.sub(r"(?i)round_?trip", "", identifier))
    return {word.lower() for word in words}


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
        (r"noqa:.*\bANN401\b", 48),
        (r"#\s*type: ignore", 30),
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


# The public surface


def test_every_export_is_documented():
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    names = [name for name in wf.__all__ if not name.startswith("__")]

    assert len(names) > 50
    assert [name for name in names if not re.search(rf"\bwarpfrag\.{name}\b", page)] == []
    assert [name for name in names if name != "FORMATS" and not (getattr(wf, name).__doc__ or "").strip()] == []


def test_dir_lists_what_is_public():
    assert dir(wf) == sorted(wf.__all__)
    assert dir(wf.ptx) == sorted(wf.ptx.__all__)
    assert {"Kernel", "Module", "Run", "load"} <= set(dir(wf.ptx))


def test_no_package_shares_its_name_with_an_export():
    packages = {path.stem for path in SOURCE.iterdir()}

    assert packages & {name for name in wf.__all__ if name not in {"ptx", "wmma"}} == set()


KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing()
{
    ret;
}
"""


def results():
    """A result of every public class, as users get it."""
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    wgmma = wf.get("wgmma.mma_async.m64n64k16.f32.f16.f16")
    A, B = np.eye(16, dtype=np.float16), np.full((16, 8), 0.1, np.float16)
    memory = wf.Memory(order="row", pitch=128, swizzle=128)
    swapped = mma(A, B)[:, ::-1]
    values = [
        *(mma, mma.a, mma.a.layout, mma.a.format, mma.evidence("sm_90"), mma.a.layout.at(lane=0, reg=0, slot=0)),
        *(mma.a.layout.where(row=0, col=0)[0], memory, wgmma.b.store(np.zeros((16, 64), np.float16))),
        *(wf.InstructionDescriptor(kind="f16", m=64, n=8, a="f16", b="f16"), wf.ZeroColumnMask(zeros=2)),
        *(wf.Descriptor(stride=1024, swizzle=128), wf.Order(split_k=3), wf.Epilogue(alpha=2.0), wf.draw(mma, "a")),
        *(wf.relayout(mma.d.tiled(col=2), mma.a), wf.relayout(mma.d, mma.b), wf.loads(mma.a, memory)[0]),
        *(wf.ptx.load(KERNEL)["nothing"].launch(grid=1, block=32), wf.diagnose(mma, swapped, A, B)),
        *(
            wf.Finding("lanes", "a", "lanes swapped"),
            wf.predict(np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)),
        ),
    ]
    report = wf.error_report(A, B, instruction=mma, arch=["sm_80", "sm_90"])
    rules = wf.rules("sm_90")
    known = [rules, rules[0], wf.references()["Fasi2021"], wf.Agreement(1, 2, (), (), (), (), (), ())]
    predicted = [wf.predict_order(4, 64, 4096), wf.invariance(64, 4096, m=(1, 64)), wf.explain(A @ B, A @ B + 1, A, B)]
    return [*values, report, report.errors[0], *known, *predicted]


@pytest.fixture(scope="module")
def samples():
    return results()


def test_every_public_result_has_a_short_repr(samples):
    classes = {
        name
        for name in wf.__all__
        if inspect.isclass(getattr(wf, name)) and not issubclass(getattr(wf, name), BaseException)
    }

    seen = {name for name in classes for value in samples if isinstance(value, getattr(wf, name))}
    assert sorted(classes - seen) == []
    for value in samples:
        assert type(value).__repr__ is not object.__repr__
        assert len(repr(value).splitlines()) <= 5, repr(value)
        assert len(repr(value)) <= 600, repr(value)


def test_results_have_cards_in_notebooks(samples):
    kinds = (wf.Relayout, wf.AccessPlan, wf.Run, wf.ErrorReport, wf.Diagnosis, wf.Descriptor, wf.Prediction, wf.Memory)
    kinds += (wf.PredictedOrder, wf.Invariance, wf.Explanation)
    for kind in kinds:
        value = next(value for value in samples if isinstance(value, kind))
        card = value._repr_html_()
        assert card.startswith('<div class="wf-card">'), kind
        assert re.search(r"<(p|td|th|figcaption)[^>]*>[^<]*\w", card), kind  # words, not only colours
        assert "background:#" not in card.replace(" ", ""), kind


def test_names_of_0_2_work_and_warn():
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    kernel = wf.ptx.load(KERNEL)["nothing"]
    with pytest.warns(DeprecationWarning, match="given is now called source"):
        assert wf.Layout.read("triton", given=mma.a.layout.to("triton")) == mma.a.layout
    with pytest.warns(DeprecationWarning, match="Kernel.native is now called compiled"):
        assert kernel.native is kernel.compiled
