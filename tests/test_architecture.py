"""The architecture: imports that point down without cycles, names, and the public surface."""

import ast
import inspect
import logging
import re
import subprocess
import sys
from collections import Counter, defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from importlinter.cli import lint_imports

import warpfrag as wf
from warpfrag.blas.cublas.batch_invariance import Invariance
from warpfrag.blas.cublas.predict import Prediction
from warpfrag.blas.cublas.predict_order import PredictedOrder
from warpfrag.blas.error_report import ErrorReport
from warpfrag.blas.explain import Explanation
from warpfrag.cli import VERBS
from warpfrag.diagnosis.diagnose import Agreement, Diagnosis, Finding
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.relayout import Relayout
from warpfrag.smem.instruction_descriptor import ZeroColumnMask
from warpfrag.tensorcore.arithmetic_table import references

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
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle

    assert sorted(order) == sorted(MODULES)


def test_only_package_heads_import_modules_of_ours_by_name():
    """`__init__` loads public names and verbs on first use; elsewhere an import by name would hide a dependency."""
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

ORDINARY = {
    "access", "array", "at", "breakpoint", "cache", "comparison", "compare", "compilation", "compile", "debugger",
    "col", "diagnose", "difference", "draw", "error", "execute", "exploration", "explain", "explore", "failed", "find",
    "get", "gpu", "identify", "illegal", "im", "inexact", "launch", "library", "line", "link", "load", "option",
    "global", "output", "profile", "record", "register", "replay", "report", "sample",
    "source", "stop", "store", "surface", "table", "tensor", "texture", "tool", "traced", "unwritten", "view", "warp",
    "warpfrag", "watchpoint", "where",
    "ptx", "torch", "triton", "wmma",
}  # fmt: skip
"""Words of English, NumPy and the CUDA manuals that public names may use beside the terms of the glossary."""


def glossary():
    """Return the terms of CONTRIBUTING's glossary with their meanings, as a list of pairs."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Glossary\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (\w[^|]*?) \| (.+?) \|$", section.partition("|---|---|\n")[2], re.MULTILINE)


def words_of(name):
    """Return the words of a snake_case, CamelCase or hyphenated name, in lower case and without a plural ending."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def is_made_of(name, terms):
    """Return True if every word of a name, or its singular, is among the terms."""
    return all({word, word.removesuffix("s"), word.removesuffix("es")} & terms for word in words_of(name))


def test_public_names_are_made_of_the_terms_of_the_glossary():
    pairs = glossary()
    terms, meanings = [term for term, _ in pairs], [meaning for _, meaning in pairs]
    assert len(terms) > 40
    assert [term for term, count in Counter(terms).items() if count > 1] == []
    assert [meaning for meaning, count in Counter(meanings).items() if count > 1] == []

    words = {word for term in terms for word in words_of(term)} | ORDINARY
    names = {*wf.__all__, *wf.ptx.__all__, *VERBS} - {"__version__"}
    assert is_made_of("TestVectors", words)
    assert not is_made_of("room_order", words)
    assert sorted(name for name in names if not is_made_of(name, words)) == []


def test_a_class_name_is_defined_once():
    classes = defaultdict(list)
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)

    assert len(classes) > 200
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


# The public surface

PUBLIC_MODULES = {"errors", "ptx", "sass", "sweep", "torch", "triton", "wmma"}


def test_every_export_is_documented():
    pages = ("python.md", "python-kernels.md")
    page = "".join((ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") for name in pages)
    names = set(wf.__all__) - PUBLIC_MODULES

    assert len(names) > 20
    assert [name for name in names if not re.search(rf"\bwarpfrag\.{name}\b", page)] == []
    assert [name for name in names if name != "FORMATS" and not (getattr(wf, name).__doc__ or "").strip()] == []


def test_dir_lists_what_is_public():
    assert dir(wf) == sorted(wf.__all__)
    assert dir(wf.ptx) == sorted(wf.ptx.__all__)
    assert {"Kernel", "Module", "Run", "load"} <= set(dir(wf.ptx))


def test_no_package_shares_its_name_with_an_export():
    packages = {path.stem for path in SOURCE.iterdir()}
    functions = set(wf.__all__) - PUBLIC_MODULES

    assert packages & functions == set()


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
        *(wf.Immediates(selector=1), wf.Scaled(np.ones((1, 32)), np.ones((1, 1))), wf.GlobalMemory({256: A})),
        *(wf.InstructionDescriptor(kind="f16", m=64, n=8, a="f16", b="f16"), ZeroColumnMask(zeros=2)),
        *(
            wf.Descriptor(stride=1024, swizzle=128),
            wf.Order(split_k=3),
            wf.Epilogue(alpha=2.0),
            wf.LibraryEpilogue(),
            wf.draw(mma, "a"),
        ),
        *(wf.relayout(mma.d.tiled(col=2), mma.a), wf.relayout(mma.d, mma.b), wf.loads(mma.a, memory)[0]),
        *(wf.ptx.load(KERNEL)["nothing"].launch(grid=1, block=32), wf.diagnose(mma, swapped, A, B)),
        *(
            Finding("lanes", "a", "lanes swapped"),
            wf.predict(np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)),
        ),
    ]
    report = wf.error_report(A, B, instruction=mma, arch=["sm_80", "sm_90"])
    rules = wf.arithmetic_table("sm_90")
    known = [rules, rules[0], references()["Fasi2021"], Agreement(1, 2, (), (), (), (), (), ())]
    predicted = [
        wf.predict_order(4, 64, 4096, layout="nt"),
        wf.batch_invariance(64, 4096, m=(1, 64)),
        wf.explain(A @ B, A @ B + 1, A, B),
    ]
    return [*values, report, report.errors[0], *known, *predicted]


@pytest.fixture(scope="module")
def samples():
    return results()


def test_every_public_result_has_a_short_repr(samples):
    classes = {
        name
        for name in set(wf.__all__) - PUBLIC_MODULES
        if inspect.isclass(getattr(wf, name)) and not issubclass(getattr(wf, name), BaseException)
    }

    seen = {name for name in classes for value in samples if isinstance(value, getattr(wf, name))}
    assert sorted(classes - seen) == []
    for value in samples:
        assert type(value).__repr__ is not object.__repr__
        assert len(repr(value).splitlines()) <= 5, repr(value)
        assert len(repr(value)) <= 600, repr(value)


def test_results_have_cards_in_notebooks(samples):
    kinds = (Relayout, AccessPlan, wf.ptx.Run, ErrorReport, Diagnosis, wf.Descriptor, Prediction, wf.Memory)
    kinds += (PredictedOrder, Invariance, Explanation)
    for kind in kinds:
        value = next(value for value in samples if isinstance(value, kind))
        card = value._repr_html_()
        assert card.startswith('<div class="wf-card">'), kind
        assert re.search(r"<(p|td|th|figcaption)[^>]*>[^<]*\w", card), kind  # words, not only colours
        assert "background:#" not in card.replace(" ", ""), kind


def test_every_name_can_be_imported_without_extras():
    code = "from warpfrag import *; print(gemm, ptx, wmma)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
