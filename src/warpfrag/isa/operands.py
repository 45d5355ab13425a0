"""Operands: the format, container and layout of each operand of a form.

The format comes from the name, the container from `tables/containers.toml`, the layout from `tables/layouts.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Literal

from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.isa import tmem_layouts as tensor_layouts
from warpfrag.isa.instruction_table import families_of
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.sparsity_patterns import pattern_of
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.layout.linear_layout import MAY_BE_LEFT_OUT, Layout
from warpfrag.tables import read_table

REGISTER_BITS = 32
TILE_WIDTH = 8  # the number of columns of C in one tile of a warpgroup
MATRIX = ("row", "col")
MATRICES = ("matrix", "row", "col")
PRODUCTS = ("mma", "row", "col")
METADATA = ("selector", "row", "chunk")
SCALES = {"a": ("thread_id", "byte_id", "row", "scale"), "b": ("thread_id", "byte_id", "scale", "col")}


OperandStorage = Literal["warp", "warpgroup", "shared", "tensor", "immediate"]
"""The storage of an operand: registers of a warp or a warpgroup, shared or tensor memory, or the instruction itself."""


@dataclass(frozen=True)
class OperandSpec:
    """The specification of an operand; if its layout is unknown, `unknown` is the reason.

    In that case, `layout` gives only the number of registers. The layout of an operand in shared memory is that of the
    matrix itself; its descriptor determines the addresses.
    """

    role: str
    format: Format
    layout: Layout
    container: int
    low: int
    source: str
    unknown: str = ""

    def __post_init__(self) -> None:
        """Raise an error unless the slots of the layout fill a register exactly."""
        if self.storage != "shared" and self.container * self.layout.slots != self.register_bits:
            raise ValueError(
                f"operand {self.role}: {self.layout.slots} slots of {self.container} bits do not fill a register"
            )

    @property
    def register_bits(self) -> int:
        """The width of a register: 64 bits for f64, otherwise 32."""
        return max(REGISTER_BITS, self.container)

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """The extents of the threads that hold the operand: lanes, or warps and lanes."""
        return tuple(size for name, size in self.layout.ins.items() if name not in MAY_BE_LEFT_OUT)

    @property
    def storage(self) -> OperandStorage:
        """The storage of the operand: registers of a warp or warpgroup, or a memory."""
        if "tlane" in self.layout.ins:
            return "tensor"
        if "lane" not in self.layout.ins:
            return "shared"
        return "warpgroup" if "warp" in self.layout.ins else "warp"


def operands(form: Form, arch: str) -> dict[str, OperandSpec]:
    """Return every operand of a form, by role; `arch` matters only for wmma."""
    return dict(_operands(form, arch))


@cache
def _operands(form: Form, arch: str) -> tuple[tuple[str, OperandSpec], ...]:
    if isinstance(form, TensorForm):
        rows = _tensor(form)
    elif form.op in {"ldmatrix", "stmatrix", "movmatrix"}:
        rows = _matrix_move(form)
    elif form.is_wmma:
        rows = [_wmma(form, role, arch) for role in sorted(form.operation.roles)]
    elif form.is_warpgroup:
        rows = [_warpgroup(form, role) for role in "abcd"] + ([_metadata(form)] if form.is_sparse else [])
    elif form.is_quad:
        rows = [_quad(form, role) for role in "abcd"]
    else:
        rows = [_dense(form, role) for role in "abcd"]
        if form.is_sparse:
            rows.append(_metadata(form))
        if form.block_scale:
            rows += [_scale(form, role) for role in "ab"]
    return tuple((row.role, row) for row in rows)


def extents(form: Form, role: str) -> tuple[int, int]:
    """Return the rows and columns of an operand, or of the stored half of a sparse A."""
    m, n, k = form.shape
    if role == "a":
        return m, k // 2 if form.is_sparse else k
    return (k, n) if role == "b" else (m, n)


def _layout(dims: tuple[str, ...], shape: tuple[int, ...], row: dict[str, Any]) -> Layout:
    bases = tuple((name, row[name]) for name in ("warp", "lane", "reg", "slot") if name in row)
    return _parsed(tuple(zip(dims, shape, strict=True)), bases)


@cache  # thousands of operands share about a hundred layouts
def _parsed(extents: tuple[tuple[str, int], ...], bases: tuple[tuple[str, str], ...]) -> Layout:
    return Layout.parse(dict(extents), **dict(bases))


def _container(form: Form, role: str, number_format: Format) -> tuple[int, int]:
    """Return the bits per element in a register, and the lowest bit of the element's code."""
    rule = read_table("containers")["kind"].get(form.kind)
    if rule and role in "ab":
        return rule["bits"], rule["low"].get(number_format.name, 0)
    return 1 << (number_format.bits - 1).bit_length(), 0


@cache
def _mma_rows(role: str) -> dict[tuple[tuple[int, ...], int], dict[str, Any]]:
    """Return the table rows of dense mma operands, by extents and elements per register."""
    rows = read_table("layouts")["mma"]["c" if role == "d" else role]
    by_shape = {(tuple(row["extents"]), 1 << len(row["slot"].split())): row for row in rows}
    if len(by_shape) != len(rows):
        raise ValueError(f"layouts of mma {role}: two rows with the same extents and slots")
    return by_shape


def mma_layouts(role: str) -> tuple[Layout, ...]:
    """Return every layout that an mma operand has in any instruction."""
    return tuple(_layout(MATRIX, shape, row) for (shape, _), row in _mma_rows(role).items())


def _dense(form: Form, role: str) -> OperandSpec:
    number_format = FORMATS[getattr(form, role)]
    container, low = _container(form, role, number_format)
    slots = max(REGISTER_BITS, container) // container
    shape = extents(form, role)
    layout = _layout(MATRIX, shape, _mma_rows(role)[shape, slots])
    return OperandSpec(role, number_format, layout, container, low, read_table("layouts")["mma"]["source"])


@cache
def _warpgroup_layouts(role: str) -> dict[tuple[tuple[int, int], int], Layout]:
    """Return the layouts of warpgroup operands, by extents and elements per register."""
    table = read_table("layouts")["wgmma"]
    layouts = [_layout(MATRIX, tuple(row["extents"]), row | {"warp": table["warp"]}) for row in table[role]]
    return {((layout.shape[0], layout.shape[1]), layout.slots): layout for layout in layouts}


@cache
def _warpgroup_accumulator(rows: int, cols: int, slots: int) -> Layout:
    return _warpgroup_layouts("c")[(rows, TILE_WIDTH), slots].tiled(col=cols // TILE_WIDTH)


def _warpgroup(form: Form, role: str) -> OperandSpec:
    number_format = FORMATS[getattr(form, role)]
    container, low = _container(form, role, number_format)
    rows, cols = extents(form, role)
    if role == "b":
        layout = _parsed((("row", rows), ("col", cols)), (("row", _all_bits("r", rows)), ("col", _all_bits("c", cols))))
    elif role == "a":
        layout = _warpgroup_layouts("a")[(rows, cols), REGISTER_BITS // container]
    else:
        layout = _warpgroup_accumulator(rows, cols, REGISTER_BITS // container)
    return OperandSpec(role, number_format, layout, container, low, read_table("layouts")["wgmma"]["source"])


def _all_bits(letter: str, size: int) -> str:
    """Return the bases of an index that counts along one coordinate only."""
    return " ".join(f"{letter}{1 << bit}" for bit in range((size - 1).bit_length()))


def _tensor(form: TensorForm) -> list[OperandSpec]:
    """Return the operands of tcgen05, which are in tensor memory, shared memory (B) or registers (loads and stores)."""
    table = read_table("tcgen05")
    if form.spelling.qualifier("lanes"):
        return _tensor_access(form)
    if not form.is_typed:
        return []
    source = table["placement"]["source"]
    a = FORMATS[form.a]
    container, low = _container(form, "a", a)
    rows, cols = extents(form, "b")
    shared = _parsed((("row", rows), ("col", cols)), (("row", _all_bits("r", rows)), ("col", _all_bits("c", cols))))
    d = tensor_layouts.accumulator(form)
    specs = [
        OperandSpec("a", a, tensor_layouts.multiplicand(form, container), container, low, source),
        OperandSpec("b", FORMATS[form.b], shared, *_container(form, "b", FORMATS[form.b]), source),
        *(OperandSpec(role, FORMATS[form.d], d, REGISTER_BITS, 0, source) for role in "cd"),
    ]
    if (rule := pattern_of(form)) is not None:
        places = tensor_layouts.metadata(form, form.shape.k // rule.chunk)
        specs.append(OperandSpec("metadata", FORMATS["b4"], places, 4, 0, table["metadata"]["source"]))
    if form.block_scale:
        scales = [tensor_layouts.scale_factors(form, side) for side in "ab"]
        specs += [
            OperandSpec(f"scale_{side}", FORMATS[form.scale_type], places, 8, 0, source)
            for side, places in zip("ab", scales, strict=True)
        ]
    return specs


def _tensor_access(form: TensorForm) -> list[OperandSpec]:
    """Return the registers of a tensor-memory load or store."""
    layout = tensor_layouts.access(form.spelling)
    unknown = ""
    if form.spelling.op.endswith("spcompress"):
        unknown = f"the register layout of {form.spelling.op} is not published"
    (role,) = form.operation.roles
    bits = REGISTER_BITS // layout.slots
    return [OperandSpec(role, FORMATS[f"b{bits}"], layout, bits, 0, read_table("tcgen05")["access"]["source"], unknown)]


def _quad(form: Form, role: str) -> OperandSpec:
    table = read_table("layouts")["quad"]
    number_format = FORMATS[getattr(form, role)]
    row = table[role][form.layouts["ab".index(role)]] if role in "ab" else table["c"][number_format.name]
    layout = _layout(PRODUCTS, tuple(row["extents"]), row)
    return OperandSpec(role, number_format, layout, *_container(form, role, number_format), table["source"])


def measured_architectures() -> tuple[str, ...]:
    """Return the architectures whose wmma fragments were measured."""
    return tuple(read_table("layouts")["wmma"])


@cache
def _wmma_rows(arch: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = read_table("layouts")["wmma"][arch]["fragments"]
    return {(row["operand"], row["shape"], name): row for row in rows for name in row["formats"]}


def _wmma(form: Form, role: str, arch: str) -> OperandSpec:
    number_format = FORMATS[getattr(form, role)]
    measured = arch in measured_architectures()
    # The ISA fixes the number of registers in a fragment, so any measured row gives it.
    known = arch if measured else measured_architectures()[0]
    row = _wmma_rows(known)["c" if role == "d" else role, str(form.shape), number_format.name]
    available = ", ".join(measured_architectures())
    unknown = "" if measured else f"the wmma fragments of {arch} were not measured; available: {available}"
    return OperandSpec(
        role,
        number_format,
        _layout(MATRIX, extents(form, role), row),
        *_container(form, role, number_format),
        read_table("layouts")["wmma"][known]["source"],
        unknown,
    )


def _metadata(form: Form) -> OperandSpec:
    table = read_table("layouts")["metadata"]
    row = table[families_of(form)[0].metadata]
    selectors, rows, chunks = row["extents"]
    if form.is_warpgroup:
        rows, row = form.shape.m, row | {"warp": read_table("layouts")["wgmma"]["warp"]}
    layout = _layout(METADATA, (selectors, rows, chunks), row)
    return OperandSpec("metadata", FORMATS["b4"], layout, 4, 0, table["source"])


def _scale(form: Form, side: str) -> OperandSpec:
    table = read_table("layouts")["scale"]
    row = table[side][form.scale_vec]
    layout = _layout(SCALES[side], tuple(row["extents"]), row)
    return OperandSpec(f"scale_{side}", FORMATS[form.scale_type], layout, 8, 0, table["source"])


def _matrix_move(form: Form) -> list[OperandSpec]:
    table = read_table("layouts")["movers"]
    unpacked = read_table("containers")["memory"].get(form.memory)
    number_format = FORMATS[unpacked["format"] if unpacked else form.d]
    container = unpacked["bits"] if unpacked else number_format.bits
    if form.op == "movmatrix":
        halves = {role: table[f"movmatrix.m8n8.{role}"] for role in form.operation.roles}
        return [
            OperandSpec(role, number_format, _layout(MATRIX, tuple(row["extents"]), row), container, 0, table["source"])
            for role, row in halves.items()
        ]
    row = table[f"{form.op}.{form.shape}" + (".trans" if form.trans else "")]
    layout = _layout(MATRICES, (form.num, *row["extents"]), row | {"reg": _keep(row["reg"], form.num)})
    unknown = ""
    if families_of(form)[0].layout == "unknown":
        unknown = (
            f"the ISA does not specify the registers of {form.op} .{form.d}.{form.memory}, and they were not measured"
        )
    (role,) = form.operation.roles
    return [OperandSpec(role, number_format, layout, container, 0, table["source"], unknown)]


@lru_cache(256)
def addresses(form: Form) -> Layout | None:
    """Return the map from a lane to the row (for stmatrix m16n8, the column) whose address it provides, or None."""
    if form.op not in {"ldmatrix", "stmatrix"}:
        return None
    row = read_table("layouts")["movers"][f"{form.op}.{form.shape}" + (".trans" if form.trans else "")]
    lane = _keep(row["addresses"], form.num)
    line = "col" if "c1" in lane.split() else "row"
    return Layout.parse({"matrix": form.num, line: row["extents"][MATRIX.index(line)]}, lane=lane)


def _keep(bases: str, num: int) -> str:
    """Remove the bases of matrices that a form lacks: .x1 keeps neither m1 nor m2, .x2 keeps m1."""
    return " ".join(basis for basis in bases.split() if basis[0] != "m" or int(basis[1:]) < num)
