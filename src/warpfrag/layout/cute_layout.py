"""CuTe: a layout as shapes and strides that map a thread and a value to an element number.

    ((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))

Sizes come before the colon, strides after it. Both have two parts: threads, then values. The sizes cut a thread number
into digits, lowest first: thread 5 has the digits 1 and 1, because 5 = 1 + 4 * 1. The sum of digits times strides is
the element number in column-major order, row + rows * col. Thread 5 thus starts at element 32 + 1 = 33: row 1, col 2 if
there are 16 rows.

The text contains neither the number of rows nor the number of values per register: pass `shape` and `slots`. CuTe
treats B as N x K, so its texts for B count columns first: pass `transposed`.

Underscores (numbers known at compile time) are optional, and `Layout<Shape<...>, Stride<...>>` is accepted too. A digit
that moves two coordinates has one stride for both. Strides are added, not combined by xor. So CuTe cannot express a
layout in which two digits move the same bit, or one that does not start at element 0.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> accumulator = Layout.parse(dict(row=16, col=8), lane="c2 c4 r1 r2 r4", reg="c1 r8")
    >>> accumulator.to("cute")
    '((_4,_8),(_2,_2)):((_32,_1),(_16,_8))'
    >>> Layout.read("cute", "((4,8),(2,2)):((32,1),(16,8))", shape=(16, 8)) == accumulator
    True
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import NamedTuple, TypeAlias

from warpfrag.errors import InvalidOperand, check_flag, quote
from warpfrag.layout import tensor_memory_notation as tensor_memory
from warpfrag.layout import thread_layout
from warpfrag.layout.axes import MAX_SIZE, Axis
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Basis, Layout
from warpfrag.layout.scanner import MAX_DEPTH, Scanner

Tree: TypeAlias = "int | tuple[Tree, ...]"
TUPLES = {"(": ")", "<": ">"}
TUPLE_NAMES = ("Shape", "Stride", "Step", "Tile", "Coord", "tuple", "make_shape", "make_stride")
NUMBER_NAMES = ("Int", "C", "constant")


class Mode(NamedTuple):
    """A digit of an index: its size and its stride."""

    size: int
    stride: int


def write_cute(layout: Layout, *, transposed: bool = False) -> str:
    """Return a thread-value layout in CuTe's notation; for tensor memory, return the addresses."""
    if tensor_memory.is_tensor_memory(layout):
        return tensor_memory.write_cute(layout)
    parts = thread_layout.threads_and_values("cute", layout)
    dims = _order(layout.dims, transposed=transposed)
    if any(layout.start):
        raise InvalidOperand(
            f"cute cannot express {layout}: it does not start at the first element, and CuTe layouts have no offset"
        )
    if not layout.is_additive:
        raise InvalidOperand(
            f"cute cannot express {layout}: two digits move the same bit, and strides are added, not xored"
        )
    strides = {dim: prod(layout.outs[below] for below in dims[:at]) for at, dim in enumerate(dims)}

    def modes(steps: list[Basis]) -> list[Mode]:
        numbers = [
            Mode(step.radix, sum(strides[dim] * index for dim, index in step.moves._asdict().items())) for step in steps
        ]
        return _coalesced(numbers) or [Mode(1, 0)]

    both = [modes(part) for part in parts]
    texts = (",".join(tensor_memory.tuple_text(mode[at] for mode in part) for part in both) for at in (0, 1))
    return "({}):({})".format(*texts)


def read_cute(
    text: object,
    *,
    shape: Sequence[int] | None = None,
    slots: int = 1,
    dims: Sequence[str] | None = None,
    transposed: bool = False,
) -> Layout:
    """Parse a thread-value layout; `shape` gives the extents of the coordinates.

    A tensor-memory layout begins with its pointer, `tmem_[32b](0x0000.0000) o`, and contains its shape.
    """
    pointer = tensor_memory.POINTER.match(text) if isinstance(text, str) else None
    if pointer is not None:
        return _read_tensor_memory(str(text), pointer, thread_layout.dims_of("cute", len(thread_layout.MATRIX), dims))
    threads, values = _modes(text)
    if shape is None:
        raise InvalidOperand("cute: a thread-value layout has no matrix shape; pass it, as in shape=(16, 8)")
    sizes = thread_layout.shape_of("cute", shape)
    thread_layout.check_slots("cute", slots)
    names = thread_layout.dims_of("cute", len(sizes), dims)
    extents = dict(zip(_order(names, transposed=transposed), sizes, strict=True))
    last = sum((mode.size - 1) * mode.stride for mode in chain(threads, values))
    if last >= prod(sizes):
        extent = "x".join(map(str, sizes))
        raise InvalidOperand(
            f"cute: the layout reaches element {last}, but {extent} has {prod(sizes)}: is the shape right?"
        )

    def digits(parts: list[Mode]) -> Iterator[thread_layout.Digit]:
        for size, stride in parts:
            counted = 1
            for radix in Axis.of_size("a mode", size).radices:
                index, moves = stride * counted, {}
                for name, extent in extents.items():
                    index, moves[name] = divmod(index, extent)
                yield radix, [moves[name] for name in names]
                counted *= radix

    parts = digits(_cut(threads, LANES)), digits(_cut(values, slots))
    layout = thread_layout.assemble("cute", {name: extents[name] for name in names}, *parts, slots)
    if not layout.is_additive:
        raise InvalidOperand(
            "cute: two digits of this layout move the same bit, so their sum is not their xor; is the shape right?"
        )
    return thread_layout.check_onto("cute", layout)


def _read_tensor_memory(text: str, pointer: re.Match[str], dims: Sequence[str]) -> Layout:
    """Parse a layout that begins with a pointer into tensor memory."""
    bits = int(pointer[1][:3])
    if bits not in (4, 8, 16, 32):
        raise InvalidOperand(f"cute: elements of tensor memory have 4, 8, 16 or 32 bits, got {bits}")
    return tensor_memory.read_cute(text, _modes(text[pointer.end() :], "(rows, columns)"), bits, dims)


def _order(dims: tuple[str, ...], *, transposed: bool) -> tuple[str, ...]:
    """Return the coordinates in the order in which elements are numbered, fastest first."""
    if not check_flag("transposed", transposed):
        return dims
    if len(dims) != len(thread_layout.MATRIX):
        raise InvalidOperand(
            f"cute: only a layout of two coordinates can be transposed; this one has {', '.join(dims)}"
        )
    return dims[::-1]


def _coalesced(modes: list[Mode]) -> list[Mode]:
    """Join each mode with the one below it if it continues that mode, and return the remaining modes."""
    coalesced: list[Mode] = []
    for mode in modes:
        if coalesced and mode.stride == coalesced[-1].size * coalesced[-1].stride:
            coalesced[-1] = Mode(coalesced[-1].size * mode.size, coalesced[-1].stride)
        else:
            coalesced.append(mode)
    return coalesced


def _cut(modes: list[Mode], size: int) -> list[Mode]:
    """Split the mode that crosses index `size`, such as 6 into 3 and 2 if 3 values share a register."""
    cut, counted = [], 1
    for mode in modes:
        below = size // counted
        if 1 < below < mode.size and not mode.size % below and below * counted == size:
            cut += [Mode(below, mode.stride), Mode(mode.size // below, mode.stride * below)]
        else:
            cut.append(mode)
        counted *= mode.size
    return cut


def _modes(text: object, parts: str = "(threads, values)") -> tuple[list[Mode], list[Mode]]:
    """Return the modes of both parts of a layout: threads and values, or rows and columns."""
    scanner = Scanner("cute", text)
    if scanner.skip("using"):
        scanner.take()
        scanner.expect("=")
    if scanner.word.rpartition("::")[2] == "Layout":
        scanner.take()
        scanner.expect("<")
        sizes = _tree(scanner)
        scanner.expect(",")
        strides = _tree(scanner)
        scanner.expect(">")
        scanner.skip("{", "}")
    else:
        sizes = _tree(scanner)
        scanner.expect(":")
        strides = _tree(scanner)
    scanner.skip(";")
    scanner.end()
    if isinstance(sizes, int) or len(sizes) != 2:
        raise InvalidOperand(f"cute: expected two parts, {parts}; got {1 if isinstance(sizes, int) else len(sizes)}")
    modes = [list(_pairs(part, stride)) for part, stride in zip(sizes, _alike(sizes, strides), strict=True)]
    places = prod(mode.size for mode in chain(*modes))
    if not 0 < places <= MAX_SIZE:
        raise InvalidOperand(f"cute: expected 1 to {MAX_SIZE} thread-value pairs, got {places}")
    return modes[0], modes[1]


def _tree(scanner: Scanner, depth: int = 0) -> Tree:
    """Parse a number, or a tuple of numbers and tuples."""
    if depth > MAX_DEPTH:
        scanner.refuse(f"expected tuples at most {MAX_DEPTH} deep")
    name = scanner.word.rpartition("::")[2]
    if name in NUMBER_NAMES:
        scanner.take()
        scanner.expect("<")
        number = scanner.number()
        scanner.expect(">")
        scanner.skip("{", "}")
        return number
    if name in TUPLE_NAMES:
        scanner.take()
    elif name not in TUPLES:
        number = scanner.number("_")
        scanner.skip("{", "}")
        return number
    closing = TUPLES[scanner.choice(TUPLES)]
    parts = [_tree(scanner, depth + 1)]
    while not scanner.skip(closing):
        if not scanner.skip(","):
            scanner.refuse(f"expected ',' or {closing!r}")
        parts.append(_tree(scanner, depth + 1))
    return tuple(parts) if len(parts) > 1 else parts[0]  # CUTLASS writes Shape<_8>, sometimes on only one side


def _alike(sizes: Tree, strides: Tree) -> tuple[Tree, ...]:
    """Return the parts of the strides; raise an error unless they are grouped like the sizes."""
    if isinstance(sizes, int) or isinstance(strides, int) or len(sizes) != len(strides):
        raise InvalidOperand(f"cute: strides must be nested like sizes; got {quote(strides)} for {quote(sizes)}")
    return strides


def _pairs(sizes: Tree, strides: Tree) -> Iterator[Mode]:
    """Yield the modes of matching size and stride trees, lowest first, skipping modes of size 1."""
    if isinstance(sizes, int) and isinstance(strides, int):
        if sizes != 1:
            yield Mode(sizes, strides)
        return
    for size, stride in zip(() if isinstance(sizes, int) else sizes, _alike(sizes, strides), strict=True):
        yield from _pairs(size, stride)
