r"""Find instructions in pasted CUDA C++ or PTX source, and their names in other notations.

    >>> statements('asm volatile("mma.sync.aligned.m16n8k16.row.col"\n  ".f32.f16.f16.f32 {%0,%1,%2,%3}, ..." : ...')
    ('mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32',)

Comments are dropped, and adjacent string literals are joined as a compiler joins them. Anything else between two
literals is most likely a macro whose text is unknown: it is replaced by `?`, and the name is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from warpfrag.grouping import grouped
from warpfrag.isa.instruction_table import fits, forms
from warpfrag.isa.operations import OPS
from warpfrag.isa.qualifiers import Form
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from warpfrag.isa.operands import OperandSpec

LONGEST_WORD = 40  # number of characters searched for the end of the first word
MAX_SOURCE = 1 << 14  # maximum length; a statement has a few hundred characters
COMMENT = r"//[^\n]*|/\*[\s\S]*?(?:\*/|$)"
LITERAL = rf'R"\w*\(([\s\S]*?)\)\w*"|"((?:[^"\\]|\\[\s\S])*)(?:"|$)|{COMMENT}'
ESCAPE = r"\\(?:[nrtfv]|\r?\n)"  # a newline ends a comment, so every line ending becomes \n
OPERANDS = r"[:(){}\[\]]"


def is_plain(text: str) -> bool:
    """Return True if a text is an instruction name, with or without operands, rather than source code."""
    start = text[:LONGEST_WORD].lstrip().lstrip('"').lstrip()
    return text.count('"') <= 2 and start.split(".", 1)[0].rstrip().lower() in _operations()


@cache
def _operations() -> frozenset[str]:
    return frozenset(op.split(".")[0] for op in OPS)


@cache
def _instruction() -> re.Pattern[str]:
    """Return a regular expression for PTX instructions, including those that are out of scope."""
    beyond = [name.split(".")[0] for row in read_table("scope")["out"] for name in row["names"] if row.get("ptx")]
    first = "|".join(sorted({*_operations(), *beyond}))
    return re.compile(rf"(?<![\w.%$])(?:{first})(?:\.[\w:?]+)+", re.IGNORECASE | re.ASCII)


def names_in(text: str) -> tuple[str, ...]:
    """Return the text itself if it is an instruction name, else the instructions that it contains as source code."""
    return (text,) if is_plain(text) else statements(text)


def statements(text: str) -> tuple[str, ...]:
    """Return the distinct instructions in a text, without operands."""
    text = text[:MAX_SOURCE]
    names: list[str] = []
    if '"' in text:
        names = _instruction().findall(re.sub(COMMENT, " ", re.sub(ESCAPE, "\n", _joined(text))))
    names = names or _instruction().findall(re.sub(COMMENT, " ", text))
    return tuple(dict.fromkeys(name.rstrip(".:") for name in names))


def _joined(text: str) -> str:
    """Return the string literals in a text; literals separated only by space and comments are joined."""
    pieces: list[str] = []
    end = 0
    for literal in re.finditer(LITERAL, text):
        raw, plain = literal.groups()
        if raw is None and plain is None:  # the match is a comment
            text = text[: literal.start()] + " " * len(literal[0]) + text[literal.end() :]
            continue
        between = text[end : literal.start()].replace("\\\n", "")
        if pieces and between.strip():
            pieces.append(" " if re.search(OPERANDS, between) else "?")
        pieces.append(plain if raw is None else raw)
        end = literal.end()
    return "".join(pieces)


Notation = Literal["cute", "nvvm", "mlir"]
PLACE = re.compile(r"\{([._]|)((?:c\+\+|->|::?|%|\*|)[A-Za-z0-9_.]+)\}")
ATOM_SHAPE = r"\d+x\d+x\d+"
ATOM = r"(?ia)(?<![\w.])(?:\w+::)*(?:SM\d+_\w+|G?MMA_\d+x\d+x\d+_\w+)(?:\s*<[^<>]*>)?"
MLIR_OPERATION = (
    r"(?<![\w.])(?:nvgpu\.mma\.sync"
    r"|nvvm\.(?:mma\.(?:sp\.)?(?:sync|block_scale)|wmma\.(?:mma|load|store)|wgmma\.mma_async|ldmatrix|stmatrix))(?![\w.])"
)
MLIR_ATTRIBUTE = r"(\w+)\s*=\s*(?:(?:#[\w.]+)?<([^>]*)>|(\[[^\]]*\]|[^<>{},]+))"
MLIR_TYPES = r"\}\s*:|\s:\s*(?=\()"
MLIR_REGISTERS = r"\b[A-Za-z]*\[[^\]]*\]"

MLIR_WGMMA = {  # an unnamed shape, and operands with a type
    r"(?<![=\w.])\s*(?:#nvvm\.shape)?<(m\s*=[^>]*)>": r" shape = <\1>",
    r"\b([DAB])\s*\[\s*(?:#nvvm\.wgmma_type)?<(\w+)>": r"type\1 = <\2>, [",
    r"<satfinite>": "overflow = <satfinite>",
}
MLIR_FLAGS = ("ordered", "kind", "tf32", "overflow")  # absent means false

MlirFacts = dict[str, str]
WIDTH = 32  # the bits of i32, LLVM's type for packed elements without a type of their own


class Named(NamedTuple):
    """A name of an instruction or of a construct that contains it; `how` describes the construct."""

    name: str
    form: Form
    how: str = ""


def names_of(form: Form, notation: Notation) -> tuple[str, ...]:
    """Return the names of an instruction in a notation, most common first."""
    return tuple(named.name for named in _written(form.listed, notation) if not named.how)


def all_names_of(form: Form, notation: Notation) -> tuple[Named, ...]:
    """Return the names of an instruction and of all constructs that contain it."""
    return tuple(_written(form.listed, notation))


@cache
def named(notation: Notation) -> dict[str, tuple[Named, ...]]:
    """Return every name in a notation, in lower case, with its instructions."""
    by_name = grouped((entry.name.lower(), entry) for form in forms() for entry in _written(form, notation))
    return {name: tuple(entries) for name, entries in by_name.items()}


def _written(form: Form, notation: Notation) -> Iterator[Named]:
    for row in _rows(notation, form.op):
        if fits(row["lists"], form):
            for pattern in (*row.get("names", ()), *row.get("uses", ())):
                yield Named(fill(pattern, form), form, row.get("how", ""))


@cache
def _rows(notation: Notation, op: str) -> tuple[dict[str, Any], ...]:
    """Return the table rows of a notation that may match an operation, as patterns and conditions."""
    rows = []
    for row in read_table("names")[notation]["rows"]:
        if op in row["op"]:
            writes = {key: row[key] for key in ("names", "uses", "how") if key in row}
            rows.append({**writes, "lists": {key: entry for key, entry in row.items() if key not in writes}})
    return tuple(rows)


def fill(pattern: str, form: Form) -> str:
    """Return a pattern with its fields replaced by the qualifiers of an instruction.

    >>> from warpfrag.isa.legality import resolve
    >>> fill("IMMA.{mnk}.{A}.{B}{.SAT}", resolve("mma.m16n8k32.satfinite.s32.s8.u8.s32"))
    'IMMA.16832.S8.U8.SAT'
    """

    def qualifier(match: re.Match[str]) -> str:
        mark, name = match.groups()
        text = _field(form, name.lower())
        text = text.upper() if name.isupper() else text
        return mark + text if text else ""

    return PLACE.sub(qualifier, pattern)


def _field(form: Form, name: str) -> str:
    if name.startswith("c++"):
        types: dict[str, str] = read_table("names")["cute"]["types"]
        return types[getattr(form, name[3:])]
    if name.startswith("%"):
        return ", ".join(f"%{name[1:]}{number}" for number in range(_count(form, name[1:])))
    if name.startswith("->"):
        count = _count(form, name[2:])
        return f"!llvm.struct<({_types(form, name[2:])})>" if count > 1 else _types(form, name[2:])
    if name.startswith("::"):
        return ", ".join(_types(form, role) for role in name[2:])
    if name.startswith(":"):
        return _llvm_type(form, name[1:])
    if name.startswith("*"):
        return _vector_type(form, name[1:])
    return _FIELDS[name](form) if name in _FIELDS else str(getattr(form, name) or "")


def _operand(form: Form, role: str) -> OperandSpec:
    """Return the operand with this role; its register count is part of a name."""
    from warpfrag.isa.operands import measured_architectures, operands

    return operands(form, measured_architectures()[0])[role]


def _count(form: Form, role: str) -> int:
    return _operand(form, role).layout.ins["reg"]


def _types(form: Form, role: str) -> str:
    return ", ".join([_llvm_type(form, role)] * _count(form, role))


def _llvm_type(form: Form, role: str) -> str:
    """Return LLVM's type for one register: f16 in pairs, other narrow types packed in an i32."""
    if not form.is_product and not form.is_wmma:
        return "i32"
    from warpfrag.formats.number_formats import FORMATS

    name = getattr(form, role)
    if name == "f16":
        return "vector<2xf16>"
    return name if name[0] == "f" and FORMATS[name].bits >= WIDTH else "i32"


def _vector_type(form: Form, role: str) -> str:
    """Return the nvgpu dialect's vector type for all registers: accumulators in pairs, other operands by register."""
    row = _operand(form, role)
    elements, across = row.layout.ins["reg"] * row.layout.slots, 2 if role in "cd" else row.layout.slots
    kind = f"f{row.container}" if row.format.is_float else f"i{row.format.bits}"
    return f"vector<{elements // across}x{across}x{kind}>"


# Fields of patterns that are not fields of a form.
_FIELDS: dict[str, Callable[[Form], str]] = {
    "m": lambda form: str(form.shape.m),
    "n": lambda form: str(form.shape.n),
    "k": lambda form: str(form.shape.k),
    "mnk": lambda form: "".join(map(str, form.shape)),
    "mxnxk": lambda form: "x".join(map(str, form.shape)),
    "layouts": lambda form: ".".join(form.layouts),
    "layout_a": lambda form: form.layouts[0],
    "layout_b": lambda form: form.layouts[-1],
    "tn": lambda form: "".join(
        "t" if qualifier == "row" else "n" for qualifier in form.layouts
    ),  # BLAS calls a row-major A transposed (T)
    "inputs": lambda form: form.a if form.a == form.b else f"{form.a}.{form.b}",
    "satfinite": lambda form: "satfinite" if form.satfinite else "",
    "saturate": lambda form: "saturate" if form.satfinite else "",
    "sat": lambda form: "sat" if form.satfinite else "",
    "overflow": lambda form: "satfinite" if form.satfinite else "wrapped",
    "scale": lambda form: form.scale_vec.lower(),
    "xscale": lambda form: f"x{form.scale_vec[0]}",
    "mma.sp": lambda form: "mma.sp.ordered.metadata" if form.is_ordered else "mma.sp",
    "orderedmetadata": lambda form: "orderedMetadata, " if form.is_ordered else "",
    "trans": lambda form: "trans" if form.trans else "",
    "transposed": lambda form: "col" if form.trans else "row",
    "many": lambda form: str(form.num) if form.num > 1 else "",
    "num2": lambda form: str(2 * form.num),
    "num4": lambda form: str(4 * form.num),
    "num8": lambda form: str(8 * form.num),
}


# ---- CuTe atoms


def atoms(text: str) -> tuple[Named, ...]:
    """Return the instructions that the first atom in a text wraps; there are several if the atom omits an argument."""
    match = re.search(ATOM, text)
    if match is None:
        return ()
    name, arguments = _atom_parts(match[0])
    shape = re.search(ATOM_SHAPE, name)
    known = _atoms_of_shape(shape[0] if shape else "").get(name, ())
    types = {_bare(entry) for entry in read_table("names")["cute"]["types"].values()}
    wanted = [entry if entry in types or entry.isdigit() else "" for entry in arguments]
    return tuple(
        entry
        for own, entry in known
        if not own or all(not asked or asked == has for asked, has in zip(wanted, own, strict=False))
    )


@cache
def _atoms_of_shape(shape: str) -> dict[str, tuple[tuple[tuple[str, ...], Named], ...]]:
    """Return the atoms with this shape; matrix moves, which have no shape, have the shape ""."""
    by_name: dict[str, list[tuple[tuple[str, ...], Named]]] = {}
    for form in forms():
        if ("x".join(map(str, form.shape)) if form.is_product else "") == shape:
            for entry in all_names_of(form, "cute"):
                name, arguments = _atom_parts(entry.name)
                by_name.setdefault(name, []).append((arguments, entry))
    return {name: tuple(rows) for name, rows in by_name.items()}


def _atom_parts(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and arguments of an atom, without namespaces."""
    name, _, arguments = _bare(text).partition("<")
    return name, tuple(filter(None, arguments.rstrip(">").split(",")))


def _bare(text: str) -> str:
    return re.sub(r"\w+::|\s", "", text).lower()


# ---- MLIR operations


def mlir_facts(text: str) -> MlirFacts:
    """Return the name, attributes and operand types of an MLIR operation."""
    operation = re.search(MLIR_OPERATION, text)
    if operation is None:
        return {}
    rest = text[operation.end() :]
    for written, replaced in MLIR_WGMMA.items() if "wgmma" in operation[0] else ():
        rest = re.sub(written, replaced, rest)
    rest = re.sub(MLIR_REGISTERS, " ", rest)
    stated = {"operation": operation[0]}
    attributes, types = (*re.split(MLIR_TYPES, rest, maxsplit=1), "")[:2]
    for name, bracketed, bare in re.findall(MLIR_ATTRIBUTE, attributes):
        stated[name.replace("_", "").lower()] = re.sub(r"\s+|:\s*i32", "", bracketed or bare)
    if "ordered" in attributes.lower():
        stated["ordered"] = "yes"
    if "tf32enabled" in attributes.lower():
        stated["tf32"] = "yes"
    if types:
        stated["types"] = re.sub(r"\s+|!llvm\.ptr(?:<\d>)?", "", types.split("\n")[0])
    return stated


@cache
def _known_mlir() -> dict[str, tuple[tuple[Form, MlirFacts], ...]]:
    """Return the MLIR facts of every form, by operation."""
    by_operation: dict[str, list[tuple[Form, MlirFacts]]] = {}
    for form in forms():
        for text in names_of(form, "mlir"):
            stated = mlir_facts(text)
            by_operation.setdefault(stated["operation"], []).append((form, stated))
    return {operation: tuple(rows) for operation, rows in by_operation.items()}


def mlir_forms(text: str) -> tuple[Form, ...]:
    """Return the forms that match all facts in a text and have no other flags."""
    stated = mlir_facts(text)
    return tuple(
        form
        for form, known in _known_mlir().get(stated.get("operation", ""), ())
        if all(known.get(name) == entry for name, entry in stated.items())
        and all(name in stated for name in MLIR_FLAGS if name in known)
    )
