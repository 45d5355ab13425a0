"""The error classes, and how messages quote a user's values."""

import ast
from pathlib import Path

import pytest

import warpfrag as wf
from warpfrag.errors import MAX_QUOTED, quote


class Broken:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é", "'é'"),
        ("\x1b[31m\u202e\n", r"'\x1b[31m\u202e\n'"),
        (-5, "-5"),
        (None, "None"),
        ([1, 2], "[1, 2]"),
        (10**5000, "an integer of 16610 bits"),
        (Broken(), "an object of type Broken"),
        ("x" * 1000, f"'{'x' * MAX_QUOTED}'... (1000 characters)"),
        (b"x" * 1000, f"b'{'x' * MAX_QUOTED}'... (1000 bytes)"),
        ([0] * 1000, f"{str([0] * 1000)[:MAX_QUOTED]}... (3000 characters)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_quoted_on_one_line(value, text):
    assert quote(value) == text


def test_a_name_of_a_megabyte_is_not_repeated():
    with pytest.raises(wf.errors.IllegalInstruction) as caught:
        wf.get("mma." + "x" * 1_000_000)

    assert len(str(caught.value)) < 2000


def test_every_error_is_defined_here():
    """Classes that derive from one of ours, in any module."""
    errors = {name for name, thing in vars(wf.errors).items() if isinstance(thing, type)}
    others = [
        f"{path.name}: {node.name}"
        for path in Path(wf.__file__).parent.rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and errors & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    ]
    assert others == []


def test_an_error_is_also_the_builtin_error_that_fits():
    builtin = {
        "CompilationFailed": [],
        "CudaError": [],
        "FileError": [OSError],
        "IllegalInstruction": [ValueError],
        "InvalidOperand": [ValueError],
        "InvalidSparsity": [ValueError],
        "MemoryFault": [],
        "MissingExtra": [ImportError],
        "NoGpu": [],
        "NotModelled": [],
        "OutOfMemory": [MemoryError],
        "ParseError": [ValueError],
        "PtxError": [],
        "SassError": [],
        "SchedulerError": [OSError],
        "WarpfragError": [],
    }
    errors = {
        name: [base for base in (ValueError, OSError, ImportError, MemoryError) if issubclass(thing, base)]
        for name, thing in vars(wf.errors).items()
        if isinstance(thing, type) and issubclass(thing, wf.WarpfragError)
    }

    assert errors == builtin
