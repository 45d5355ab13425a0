"""The documents' fragment formulas as plain functions: an oracle that knows nothing of warpfrag's tables.

Written from the fact sheet of the PTX ISA alone; the section numbers below (1.2, 2.4, ...) are that sheet's.
Lanes are `l`; `g = l >> 2` and `t = l & 3`. Element `i` of a fragment is counted from the low bits of
register 0 upward, so `i = reg * slots + slot`. Divisions are integer ones; a comparison counts as 0 or 1.

Every shape has its own row, as it has its own page in the document. The general rule of 1.1 is stated once
more, apart from them, and a test compares the two: a wrong row and a wrong rule cannot hide behind each other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Coordinate = Callable[[int, int, int], int]  # (g, t, i) -> row or column
Ints = npt.NDArray[np.int64]

TYPES = (
    "f16",
    "bf16",
    "tf32",
    "f32",
    "f64",
    "s32",
    "s8",
    "u8",
    "s4",
    "u4",
    "b1",
    "e4m3",
    "e5m2",
    "e3m2",
    "e2m3",
    "e2m1",
)
SCALE_TYPES = ("ue8m0", "ue4m3")

# 0.3 and 1.1: the width of one element's code, and how many stand in one register.
CODE_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
    "e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Spelling:
    """The words of one canonical instruction name, taken apart without warpfrag's help."""

    name: str
    op: str  # "mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma", "wmma.load.a", ...
    m: int
    n: int
    k: int
    layouts: tuple[str, ...]
    types: tuple[str, ...]  # D A B C; or D C for wmma f16; or the one of wmma.load and wmma.store
    kind: str
    scale_type: str
    scales: int  # scale factors per row of A and column of B (1.7); 0 when not block-scaled

    @property
    def shape(self) -> str:
        """The shape word."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def sparse(self) -> bool:
        """True if A is stored compressed."""
        return self.op.startswith("mma.sp")

    def type_of(self, operand: str) -> str:
        """The PTX element type of operand a, b, c or d."""
        if len(self.types) == 1:
            return self.types[0]
        if len(self.types) == 2:  # wmma f16: only D and C are written (3.1)
            return {"d": self.types[0], "c": self.types[1], "a": "f16", "b": "f16"}[operand]
        return self.types["dabc".index(operand)]

    def pack_of(self, operand: str) -> str:
        """The packing class of A or B: by bytes, by nibbles and so on (1.6 says which e2m1 is which)."""
        kind = self.type_of(operand)
        if kind in ("f16", "bf16"):
            return "half"
        if kind in ("tf32", "f64", "b1"):
            return kind
        if kind in ("s4", "u4") or (kind == "e2m1" and self.kind in ("mxf4", "mxf4nvf4")):
            return "nibble"
        return "byte"


@cache
def spelling(name: str) -> Spelling:
    """Take a canonical mma, mma.sp or wmma name apart."""
    words = name.split(".")
    match = re.search(r"\.m(\d+)n(\d+)k(\d+)\.", name)
    assert match is not None, name
    op = name.split(".sync.", maxsplit=1)[0].replace(".xor.popc", "").replace(".and.popc", "")
    kind = next((word.removeprefix("kind::") for word in words if word.startswith("kind::")), "")
    scales = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 0)  # defaults of 1.7; mxf4nvf4 has none
    for word in words:
        if word.startswith("scale_vec::"):
            scales = int(word[len("scale_vec::")])
    m, n, k = (int(number) for number in match.groups())
    return Spelling(
        name=name,
        op=op,
        m=m,
        n=n,
        k=k,
        layouts=tuple(word for word in words if word in ("row", "col")),
        types=tuple(word for word in words if word in TYPES),
        kind=kind,
        scale_type=next((word for word in words if word in SCALE_TYPES), ""),
        scales=scales,
    )


@dataclass(frozen=True)
class Rule:
    """The registers and elements of one lane, and the position of element i of lane (g, t)."""

    regs: int
    elements: int
    row: Coordinate
    col: Coordinate

    @property
    def slots(self) -> int:
        """Elements of one register."""
        return self.elements // self.regs

    def grid(self) -> Ints:
        """Coordinates [lane, reg, slot, (row, col)] of all lanes."""
        cells = [
            [(self.row(lane >> 2, lane & 3, i), self.col(lane >> 2, lane & 3, i)) for i in range(self.elements)]
            for lane in range(32)
        ]
        return np.array(cells, dtype=np.int64).reshape(32, self.regs, self.slots, 2)


# --- 1.2, columns "A regs", "A row", "A col"
DENSE_A: dict[tuple[str, str], Rule] = {
    ("m8n8k4", "f64"): Rule(1, 1, lambda g, t, i: g, lambda g, t, i: t),
    ("m8n8k16", "byte"): Rule(1, 4, lambda g, t, i: g, lambda g, t, i: 4 * t + i),
    ("m8n8k32", "nibble"): Rule(1, 8, lambda g, t, i: g, lambda g, t, i: 8 * t + i),
    ("m8n8k128", "b1"): Rule(1, 32, lambda g, t, i: g, lambda g, t, i: 32 * t + i),
    ("m16n8k4", "tf32"): Rule(2, 2, lambda g, t, i: g + 8 * i, lambda g, t, i: t),
    ("m16n8k4", "f64"): Rule(2, 2, lambda g, t, i: g + 8 * i, lambda g, t, i: t),
    ("m16n8k8", "half"): Rule(2, 4, lambda g, t, i: g + 8 * (i >= 2), lambda g, t, i: 2 * t + i % 2),
    ("m16n8k8", "tf32"): Rule(4, 4, lambda g, t, i: g + 8 * (i & 1), lambda g, t, i: t + 4 * (i >> 1)),
    ("m16n8k8", "f64"): Rule(4, 4, lambda g, t, i: g + 8 * (i & 1), lambda g, t, i: t + 4 * (i >> 1)),
    ("m16n8k16", "half"): Rule(
        4, 8, lambda g, t, i: g + 8 * ((i // 2) & 1), lambda g, t, i: 2 * t + i % 2 + 8 * (i >= 4)
    ),
    ("m16n8k16", "f64"): Rule(8, 8, lambda g, t, i: g + 8 * (i & 1), lambda g, t, i: t + 4 * (i >> 1)),
    ("m16n8k16", "byte"): Rule(2, 8, lambda g, t, i: g + 8 * (i >= 4), lambda g, t, i: 4 * t + i % 4),
    ("m16n8k32", "nibble"): Rule(2, 16, lambda g, t, i: g + 8 * (i >= 8), lambda g, t, i: 8 * t + i % 8),
    ("m16n8k32", "byte"): Rule(
        4, 16, lambda g, t, i: g + 8 * ((i // 4) & 1), lambda g, t, i: 4 * t + i % 4 + 16 * (i >= 8)
    ),
    ("m16n8k64", "nibble"): Rule(
        4, 32, lambda g, t, i: g + 8 * ((i // 8) & 1), lambda g, t, i: 8 * t + i % 8 + 32 * (i >= 16)
    ),
    ("m16n8k128", "b1"): Rule(2, 64, lambda g, t, i: g + 8 * (i >= 32), lambda g, t, i: 32 * t + i % 32),
    # the document prints column 32t + i for i < 64; it must be 32t + i % 32 (errata in 1.2)
    ("m16n8k256", "b1"): Rule(
        4, 128, lambda g, t, i: g + 8 * ((i // 32) & 1), lambda g, t, i: 32 * t + i % 32 + 128 * (i >= 64)
    ),
}

# --- 1.2, columns "B regs", "B row"; the column of B is g
DENSE_B: dict[tuple[str, str], Rule] = {
    ("m8n8k4", "f64"): Rule(1, 1, lambda g, t, i: t, lambda g, t, i: g),
    ("m8n8k16", "byte"): Rule(1, 4, lambda g, t, i: 4 * t + i, lambda g, t, i: g),
    ("m8n8k32", "nibble"): Rule(1, 8, lambda g, t, i: 8 * t + i, lambda g, t, i: g),
    ("m8n8k128", "b1"): Rule(1, 32, lambda g, t, i: 32 * t + i, lambda g, t, i: g),
    ("m16n8k4", "tf32"): Rule(1, 1, lambda g, t, i: t, lambda g, t, i: g),
    ("m16n8k4", "f64"): Rule(1, 1, lambda g, t, i: t, lambda g, t, i: g),
    ("m16n8k8", "half"): Rule(1, 2, lambda g, t, i: 2 * t + i, lambda g, t, i: g),
    ("m16n8k8", "tf32"): Rule(2, 2, lambda g, t, i: t + 4 * i, lambda g, t, i: g),
    ("m16n8k8", "f64"): Rule(2, 2, lambda g, t, i: t + 4 * i, lambda g, t, i: g),
    ("m16n8k16", "half"): Rule(2, 4, lambda g, t, i: 2 * t + i % 2 + 8 * (i // 2), lambda g, t, i: g),
    ("m16n8k16", "f64"): Rule(4, 4, lambda g, t, i: t + 4 * i, lambda g, t, i: g),
    ("m16n8k16", "byte"): Rule(1, 4, lambda g, t, i: 4 * t + i, lambda g, t, i: g),
    ("m16n8k32", "nibble"): Rule(1, 8, lambda g, t, i: 8 * t + i, lambda g, t, i: g),
    ("m16n8k32", "byte"): Rule(2, 8, lambda g, t, i: 4 * t + i % 4 + 16 * (i // 4), lambda g, t, i: g),
    ("m16n8k64", "nibble"): Rule(2, 16, lambda g, t, i: 8 * t + i % 8 + 32 * (i // 8), lambda g, t, i: g),
    ("m16n8k128", "b1"): Rule(1, 32, lambda g, t, i: 32 * t + i, lambda g, t, i: g),
    ("m16n8k256", "b1"): Rule(2, 64, lambda g, t, i: 32 * t + i % 32 + 128 * (i // 32), lambda g, t, i: g),
}

# --- 1.1 and the line below the table of 1.2: accumulators
ACCUMULATOR: dict[tuple[int, str], Rule] = {
    (8, "s32"): Rule(2, 2, lambda g, t, i: g, lambda g, t, i: 2 * t + i),
    (8, "f64"): Rule(2, 2, lambda g, t, i: g, lambda g, t, i: 2 * t + i),
    (16, "s32"): Rule(4, 4, lambda g, t, i: g + 8 * (i >> 1), lambda g, t, i: 2 * t + (i & 1)),
    (16, "f32"): Rule(4, 4, lambda g, t, i: g + 8 * (i >> 1), lambda g, t, i: 2 * t + (i & 1)),
    (16, "f64"): Rule(4, 4, lambda g, t, i: g + 8 * (i >> 1), lambda g, t, i: 2 * t + (i & 1)),
    (16, "f16"): Rule(2, 4, lambda g, t, i: g + 8 * (i >> 1), lambda g, t, i: 2 * t + (i & 1)),
}

# --- 2.2: the sparse A of the ISA, in logical columns: (row, first column, width) of element i
SPARSE_A: dict[tuple[str, str], tuple[Coordinate, Coordinate, int]] = {
    ("m16n8k16", "half"): (lambda g, t, i: g + 8 * (i >= 2), lambda g, t, i: 4 * t, 4),
    ("m16n8k32", "half"): (lambda g, t, i: g + 8 * ((i // 2) & 1), lambda g, t, i: 4 * t + 16 * (i >= 4), 4),
    ("m16n8k8", "tf32"): (lambda g, t, i: g + 8 * i, lambda g, t, i: 2 * t, 2),
    ("m16n8k16", "tf32"): (lambda g, t, i: g + 8 * (i & 1), lambda g, t, i: 2 * t + 8 * (i >= 2), 2),
    ("m16n8k32", "byte"): (lambda g, t, i: g + 8 * (i >= 4), lambda g, t, i: 8 * t, 8),
    ("m16n8k64", "byte"): (lambda g, t, i: g + 8 * ((i // 4) & 1), lambda g, t, i: 8 * t + 32 * (i >= 8), 8),
    ("m16n8k64", "nibble"): (lambda g, t, i: g + 8 * (i >= 8), lambda g, t, i: 16 * t, 16),
    ("m16n8k128", "nibble"): (
        lambda g, t, i: g + 8 * ((i // 8) & 1),
        lambda g, t, i: 16 * t + 64 * (i >= 16),
        16,
    ),
}

# --- 2.2, last column: B of the sparse shapes
SPARSE_B: dict[tuple[str, str], Rule] = {
    ("m16n8k16", "half"): Rule(2, 4, lambda g, t, i: 2 * t + i % 2 + 8 * (i // 2), lambda g, t, i: g),
    ("m16n8k32", "half"): Rule(4, 8, lambda g, t, i: 2 * t + i % 2 + 8 * (i // 2), lambda g, t, i: g),
    ("m16n8k8", "tf32"): Rule(2, 2, lambda g, t, i: t + 4 * i, lambda g, t, i: g),
    ("m16n8k16", "tf32"): Rule(4, 4, lambda g, t, i: t + 4 * i, lambda g, t, i: g),
    ("m16n8k32", "byte"): Rule(2, 8, lambda g, t, i: 4 * t + i % 4 + 16 * (i // 4), lambda g, t, i: g),
    ("m16n8k64", "byte"): Rule(4, 16, lambda g, t, i: 4 * t + i % 4 + 16 * (i // 4), lambda g, t, i: g),
    ("m16n8k64", "nibble"): Rule(2, 16, lambda g, t, i: 8 * t + i % 8 + 32 * (i // 8), lambda g, t, i: g),
    ("m16n8k128", "nibble"): Rule(4, 32, lambda g, t, i: 8 * t + i % 8 + 32 * (i // 8), lambda g, t, i: g),
}

# 2.2: stored A has the registers of the dense A of half the K. The pairing is written out, not computed.
STORED_AS = {
    ("m16n8k16", "half"): ("m16n8k8", "half"),
    ("m16n8k32", "half"): ("m16n8k16", "half"),
    ("m16n8k8", "tf32"): ("m16n8k4", "tf32"),
    ("m16n8k16", "tf32"): ("m16n8k8", "tf32"),
    ("m16n8k32", "byte"): ("m16n8k16", "byte"),
    ("m16n8k64", "byte"): ("m16n8k32", "byte"),
    ("m16n8k64", "nibble"): ("m16n8k32", "nibble"),
    ("m16n8k128", "nibble"): ("m16n8k64", "nibble"),
}

# 2.3: logical columns of one 4-bit metadata field
CHUNK = {"half": 4, "tf32": 2, "byte": 4, "nibble": 8}


def general_rule(which: str, m: int, per_register: int, regs: int) -> Rule:
    """1.1: the one rule for A or B of all shapes but m8n8k4.f16, by elements per register."""
    e = per_register
    if which == "b":
        return Rule(regs, regs * e, lambda g, t, i: e * t + i % e + 4 * e * (i // e), lambda g, t, i: g)
    if m == 8:
        return Rule(regs, regs * e, lambda g, t, i: g, lambda g, t, i: e * t + i % e)
    return Rule(
        regs,
        regs * e,
        lambda g, t, i: g + 8 * ((i // e) & 1),
        lambda g, t, i: e * t + i % e + 4 * e * ((i // e) >> 1),
    )


# --- 1.3: m8n8k4 with f16, four products
def volta_at(which: str, layout: str, kind: str, lane: int, i: int) -> tuple[int, int, int]:
    """(product, row, col) of element i of A, B (layout row or col) or an accumulator (kind f16 or f32)."""
    product = (lane % 16) // 4  # lanes 4p..4p+3 and 16+4p..16+4p+3 do product p
    q, h = lane & 3, lane >> 4
    if which == "a":
        return (product, q + 4 * h, i) if layout == "row" else (product, i + 4 * h, q)
    if which == "b":
        return (product, q, i + 4 * h) if layout == "row" else (product, i, q + 4 * h)
    if kind == "f16":
        return product, q + 4 * h, i
    return product, (lane & 1) + (i & 2) + 4 * h, (i & 4) + (lane & 2) + (i & 1)


def volta_grid(which: str, layout: str, kind: str) -> Ints:
    """Coordinates [lane, reg, slot, (mma, row, col)]: 2 registers of A or B, 4 of f16 C, 8 of f32 C."""
    regs, slots = (2, 2) if which in "ab" else (4, 2) if kind == "f16" else (8, 1)
    cells = [[volta_at(which, layout, kind, lane, i) for i in range(regs * slots)] for lane in range(32)]
    return np.array(cells, dtype=np.int64).reshape(32, regs, slots, 3)


@cache
def mma_grid(name: str, operand: str) -> Ints:
    """Coordinates [lane, reg, slot, dims] of operand a, b, c or d of any mma or mma.sp spelling."""
    words = spelling(name)
    if words.shape == "m8n8k4" and words.type_of("a") == "f16":
        layout = {"a": words.layouts[0], "b": words.layouts[1]}.get(operand, "")
        return volta_grid(operand, layout, words.type_of(operand))
    if operand in "cd":
        return ACCUMULATOR[words.m, words.type_of(operand)].grid()
    key = (words.shape, words.pack_of(operand))
    if words.sparse:
        return DENSE_A[STORED_AS[key]].grid() if operand == "a" else SPARSE_B[key].grid()
    return DENSE_A[key].grid() if operand == "a" else DENSE_B[key].grid()


def mma_shape(name: str, operand: str) -> tuple[int, ...]:
    """A is M x K (M x K/2 when stored sparse), B is K x N, C and D are M x N; Volta's form has four of each."""
    words = spelling(name)
    k_of_a = words.k // 2 if words.sparse else words.k
    flat = {"a": (words.m, k_of_a), "b": (words.k, words.n)}.get(operand, (words.m, words.n))
    return (4, *flat) if words.shape == "m8n8k4" and words.type_of("a") == "f16" else flat


def ptx_type(kind: str) -> str:
    """The PTX register type that holds elements of this type (1.2, 1.3, 3.1)."""
    return {"f16": ".f16x2", "f32": ".f32", "f64": ".f64", "s32": ".s32"}.get(kind, ".b32")


def sparse_span(name: str, lane: int, reg: int) -> tuple[int, int, int]:
    """2.2: (row, first, last logical column) of register `reg` of a sparse A; all its elements agree."""
    words = spelling(name)
    key = (words.shape, words.pack_of("a"))
    row, first, width = SPARSE_A[key]
    slots = DENSE_A[STORED_AS[key]].slots
    g, t = lane >> 2, lane & 3
    spans = {(row(g, t, i), first(g, t, i), first(g, t, i) + width - 1) for i in range(reg * slots, (reg + 1) * slots)}
    (span,) = spans
    return span


def logical_column(pack: str, stored: int, field: int) -> int:
    """2.2: the logical column of stored column `stored` whose metadata field is `field`."""
    if pack == "tf32":
        return 2 * stored + (field == 0b1110)
    if pack == "nibble":
        return 8 * (stored // 4) + 2 * ((field >> (2 * ((stored // 2) % 2))) & 3) + stored % 2
    return 4 * (stored // 2) + ((field >> (2 * (stored % 2))) & 3)


# --- 2.4: metadata
# class -> selectors (2.1) and (lane, lowest bit) of the field of row m, chunk c under selector f
Place = Callable[[int, int, int], tuple[int, int]]
METADATA: dict[tuple[str, str], tuple[tuple[int, ...], Place]] = {
    ("m16n8k16", "half"): ((0, 1, 2, 3), lambda m, c, f: (4 * (m % 8) + f, 16 * (m // 8) + 4 * c)),
    ("m16n8k8", "tf32"): ((0, 1, 2, 3), lambda m, c, f: (4 * (m % 8) + f, 16 * (m // 8) + 4 * c)),
    ("m16n8k32", "half"): (
        (0, 1),
        lambda m, c, f: (4 * (m % 8) + 2 * f + (c >> 2), 16 * (m // 8) + 4 * (c & 3)),
    ),
    ("m16n8k16", "tf32"): (
        (0, 1),
        lambda m, c, f: (4 * (m % 8) + 2 * f + (c >> 2), 16 * (m // 8) + 4 * (c & 3)),
    ),
    ("m16n8k32", "byte"): ((0, 1), lambda m, c, f: (4 * (m % 8) + 2 * f + m // 8, 4 * c)),
    ("m16n8k64", "nibble"): ((0, 1), lambda m, c, f: (4 * (m % 8) + 2 * f + m // 8, 4 * c)),
    ("m16n8k64", "byte"): ((0,), lambda m, c, f: (4 * (m % 8) + 2 * (c >> 3) + m // 8, 4 * (c & 7))),
    ("m16n8k128", "nibble"): ((0,), lambda m, c, f: (4 * (m % 8) + 2 * (c >> 3) + m // 8, 4 * (c & 7))),
}


def metadata_selectors(name: str) -> tuple[int, ...]:
    """2.1: the sparsity selectors of a spelling (those that trap on hardware are not among them)."""
    words = spelling(name)
    return METADATA[words.shape, words.pack_of("a")][0]


def metadata_chunks(name: str) -> int:
    """2.3: the number of 4-bit fields in one row of A."""
    words = spelling(name)
    return words.k // CHUNK[words.pack_of("a")]


def metadata_place(name: str, row: int, chunk: int, selector: int) -> tuple[int, int]:
    """2.4: the lane and lowest bit of one field."""
    words = spelling(name)
    return METADATA[words.shape, words.pack_of("a")][1](row, chunk, selector)


# --- 1.7: scale operands
BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
THREAD_IDS_A = (0, 1)
THREAD_IDS_B = (0, 1, 2, 3)


def scale_a_place(row: int, scale: int, byte_id: int, thread_id: int) -> tuple[int, int]:
    """The lane and lowest bit of scale number `scale` of row `row` of A."""
    return 4 * (row % 8) + 2 * thread_id + row // 8, 8 * (byte_id + scale)


def scale_b_place(col: int, scale: int, byte_id: int, thread_id: int) -> tuple[int, int]:
    """The lane and lowest bit of scale number `scale` of column `col` of B."""
    return 4 * col + thread_id, 8 * (byte_id + scale)


# --- 4.1 to 4.3: movers
@dataclass(frozen=True)
class Mover:
    """One form of ldmatrix, stmatrix or movmatrix."""

    name: str
    matrices: int
    regs: int
    slots: int
    shape: tuple[int, int]
    at: Callable[[int, int, int], tuple[int, int, int]]  # (lane, reg, slot) -> (matrix, row, col)
    address_rows: int  # addresses of one matrix (4.2)
    narrow: int = 0  # bits of a b6 or b4 source element


def _half(lane: int, reg: int, slot: int) -> tuple[int, int, int]:
    return reg, lane >> 2, 2 * (lane & 3) + slot


def _half_trans(lane: int, reg: int, slot: int) -> tuple[int, int, int]:
    return reg, 2 * (lane & 3) + slot, lane >> 2


def _m8n16(lane: int, reg: int, slot: int) -> tuple[int, int, int]:
    return reg, lane >> 2, 4 * (lane & 3) + slot


def _m16n16(lane: int, reg: int, slot: int) -> tuple[int, int, int]:
    return reg // 2, 4 * (lane & 3) + slot, (lane >> 2) + 8 * (reg % 2)


def _m16n8(lane: int, reg: int, slot: int) -> tuple[int, int, int]:
    return reg, (lane >> 2) + 8 * (slot >> 1), 2 * (lane & 3) + (slot & 1)


def movers() -> tuple[Mover, ...]:
    """Every form of 4.1 whose register contents are known (all but ldmatrix .s8.s4 and movmatrix)."""
    forms = []
    for count in (1, 2, 4):
        for op in ("ldmatrix", "stmatrix"):
            head = f"{op}.sync.aligned.m8n8.x{count}"
            forms.append(Mover(f"{head}.shared.b16", count, count, 2, (8, 8), _half, 8))
            forms.append(Mover(f"{head}.trans.shared.b16", count, count, 2, (8, 8), _half_trans, 8))
        for source, bits in (("b6x16_p32", 6), ("b4x16_p64", 4)):
            name = f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{source}"
            forms.append(Mover(name, count, count, 4, (8, 16), _m8n16, 8, bits))
        name = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8"
        forms.append(Mover(name, count, count, 4, (16, 8), _m16n8, 8))
    for count in (1, 2):
        for kind, bits in (("b8", 0), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)):
            name = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{kind}"
            forms.append(Mover(name, count, 2 * count, 4, (16, 16), _m16n16, 16, bits))
    return tuple(forms)


UNKNOWN_MOVERS = tuple(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.s8.s4" for count in (1, 2, 4))
MOVMATRIX = "movmatrix.sync.aligned.m8n8.trans.b16"
