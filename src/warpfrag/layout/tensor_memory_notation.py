"""Layouts of tensor memory in the notations of CuTe and Triton: maps from (tlane, column, slot) to matrix elements.

    tmem_[32b](0x0000.0000) o ((_16,_4),_64):((_65536,_2097152),_1)

is CuTe's notation. It maps the other way, from an element to its address, which counts elements: the addresses of
adjacent lanes differ by 65536, or by `slots` times that if `slots` elements share a column (`tmem_[16b]`). Rows come
first, then columns. Copies in other lanes are omitted.

    _TensorMemoryLinearLayout(rows=[[1, 0], [2, 0], ...], cols=[[0, 1], [0, 2], ...], shape=[128, 64])

is Gluon's: `rows` lists the images of the lane bits, `cols` those of the bits that number the elements in a lane, low
bit first. The elements of one 32-bit column come first; their count follows `//`, or is given by `slots`. The basis
[0, 0] is a copy; in `cols` it is the padding of an unpacked type.

Both describe the tensor memory of one block; for a pair of blocks, select one with `sublayout`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from warpfrag.errors import InvalidOperand
from warpfrag.layout.axes import Axis
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.scanner import Scanner
from warpfrag.layout.thread_layout import MATRIX

PLACES = ("tlane", "column", "slot")
LANES = 128
LANE_STRIDE = 1 << 16
BITS = 32  # the size of a column in bits
GLUON = "_TensorMemoryLinearLayout"
POINTER = re.compile(r"\s*tmem_\[(\d+)b\]\(\s*0x[0-9a-fA-F.]+\s*\)\s*o\s*")
Step = tuple[int, tuple[int, ...]]


class AddressMode(NamedTuple):
    """A digit of a coordinate: its size, its weight, and its stride in tensor memory."""

    size: int
    counts: int
    stride: int


def is_tensor_memory(layout: Layout) -> bool:
    """Return True if a layout's inputs are tensor-memory addresses."""
    return "tlane" in layout.ins


def _check(notation: str, layout: Layout) -> None:
    other = [name for name in layout.ins if name not in PLACES]
    if other:
        raise InvalidOperand(
            f"{notation} describes the tensor memory of one block, without {', '.join(other)}: take a sublayout of "
            f"one block"
        )
    if any(layout.start):
        raise InvalidOperand(f"{notation} cannot express {layout}: it does not start at the first element")


def write_cute(layout: Layout) -> str:
    """Return the addresses of rows and columns in CuTe's notation."""
    _check("cute", layout)
    units = {"tlane": LANE_STRIDE * layout.slots, "column": layout.slots, "slot": 1}
    modes: dict[str, list[AddressMode]] = {dim: [] for dim in layout.dims}
    for name in layout.ins:
        weight = 1
        for step in layout.steps(name):
            moved = {dim: amount for dim, amount in step.moves._asdict().items() if amount}
            if len(moved) > 1:
                raise InvalidOperand(f"cute cannot express {layout}: a bit of {name} moves {' and '.join(moved)}")
            for dim, amount in moved.items():
                modes[dim].append(AddressMode(step.radix, amount, weight * units[name]))
            weight *= step.radix
    parts = [_joined(layout, dim, sorted(of, key=lambda mode: mode.counts)) for dim, of in modes.items()]
    sizes, strides = (f"({','.join(tuple_text(mode[at] for mode in part) for part in parts)})" for at in (0, 2))
    return f"tmem_[{BITS // layout.slots}b](0x0000.0000) o {sizes}:{strides}"


def _joined(layout: Layout, dim: str, modes: list[AddressMode]) -> list[AddressMode]:
    """Return the modes of one coordinate, with adjacent modes joined."""
    joined: list[AddressMode] = []
    counted = 1
    for mode in modes:
        if mode.counts != counted:
            raise InvalidOperand(f"cute cannot express {layout}: {dim} {mode.counts} has two strides, or none")
        counted *= mode.size
        last = joined[-1] if joined else None
        if last and mode.stride == last.size * last.stride:
            joined[-1] = last._replace(size=last.size * mode.size)
        else:
            joined.append(mode)
    if counted != layout.outs[dim]:
        raise InvalidOperand(f"cute cannot express {layout}: not every {dim} is stored")
    return joined or [AddressMode(1, 1, 0)]


def tuple_text(numbers: Iterable[int]) -> str:
    """Return CuTe's text of static numbers: `_8`, or `(_8,_4)` for several."""
    words = [f"_{number}" for number in numbers]
    return words[0] if len(words) == 1 else f"({','.join(words)})"


def read_cute(text: str, modes: Sequence[Sequence[tuple[int, int]]], bits: int, dims: Sequence[str]) -> Layout:
    """Return the layout given by the modes (size, stride) of each coordinate, for elements of `bits` bits."""
    slots = BITS // bits
    images: dict[tuple[str, int], Step] = {}
    extents = {}
    for axis, (dim, of) in enumerate(zip(dims, modes, strict=True)):
        counted = 1
        for size, stride in of:
            inside = 1
            for radix in Axis.of_size("a mode", size).radices:
                image = (counted, 0) if axis == 0 else (0, counted)
                images[_place(text, stride * inside, slots)] = (radix, image)
                inside, counted = inside * radix, counted * radix
        extents[dim] = counted
    return _layout(extents, images, slots)


def _place(text: str, address: int, slots: int) -> tuple[str, int]:
    """Return the input that an address stride moves along, and the stride's weight in that input."""
    lane, element = divmod(address, LANE_STRIDE * slots)
    if bool(lane) == bool(element) or lane >= LANES:
        raise InvalidOperand(
            f"cute: expected a lane stride of {LANE_STRIDE * slots}, or element strides within a lane, in {text!r}"
        )
    if lane:
        return "tlane", lane
    return ("slot", element) if element < slots else ("column", element // slots)


def _layout(extents: dict[str, int], images: dict[tuple[str, int], Step], slots: int) -> Layout:
    """Return the layout with these moves, keyed by input and weight; lanes that have no move hold copies."""
    steps: dict[str, list[Step]] = {name: [] for name in PLACES}
    nothing: Step = (2, (0,) * len(extents))
    for bit in range(LANES.bit_length() - 1):
        steps["tlane"].append(images.pop(("tlane", 1 << bit), nothing))
    for name, size in (("slot", slots), ("column", 0)):
        weight = 1
        while (name, weight) in images or weight < size:
            steps[name].append(images.pop((name, weight), nothing))
            weight *= steps[name][-1][0]
    if images:
        (name, weight), _ = next(iter(images.items()))
        raise InvalidOperand(f"expected the digits of {name} to have no gap, got one with weight {weight}")
    return Layout.of_steps(extents, steps)


def write_triton(layout: Layout) -> str:
    """Return the bases as Gluon prints a layout of tensor memory."""
    _check("triton", layout)
    if any(size & (size - 1) for size in (*layout.ins.values(), *layout.shape)):
        raise InvalidOperand(f"triton cannot express {layout}: it has a size that is not a power of two")
    rows, columns, slots = ([[*step.moves] for step in layout.steps(name)] for name in PLACES)
    options = [f"slots = {layout.slots}"] if layout.slots > 1 else []
    options += [f"dims = {', '.join(layout.dims)}"] if layout.dims != MATRIX else []
    text = f"{GLUON}(rows={rows}, cols={slots + columns}, shape={[*layout.shape]})"
    return text + (f" // {'; '.join(options)}" if options else "")


def read_triton(text: str, slots: int, dims: Sequence[str]) -> Layout:
    """Parse a layout as Gluon prints it; `slots` elements share a 32-bit column."""
    scanner = Scanner("triton", text)
    scanner.expect(GLUON, "(", "rows", "=")
    rows = scanner.bases()
    scanner.expect(",", "cols", "=")
    cols = scanner.bases()
    scanner.expect(",", "shape", "=")
    shape = scanner.sequence(scanner.number)
    scanner.expect(")")
    scanner.end()
    inside = slots.bit_length() - 1
    if len(shape) != 2 or len(rows) != LANES.bit_length() - 1 or 1 << inside != slots or len(cols) < inside:
        raise InvalidOperand(
            f"triton: expected 7 row bases, 2 sizes, and slots that are a power of two; got {text!r} with slots={slots}"
        )
    if any(len(basis) != 2 for basis in rows + cols):
        raise InvalidOperand(f"triton: expected bases of two coordinates, got {text!r}")
    if any(size < 1 or size & (size - 1) or any(b[at] >= size for b in rows + cols) for at, size in enumerate(shape)):
        raise InvalidOperand(f"triton: expected a shape of powers of two that contains all bases, got {shape}")
    parts = {"tlane": rows, "column": cols[inside:], "slot": cols[:inside]}
    steps = {name: [(2, tuple(basis)) for basis in bases] for name, bases in parts.items()}
    return Layout.of_steps(dict(zip(dims, shape, strict=True)), steps)
