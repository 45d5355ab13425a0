"""Matrix products that are issued but not yet computed, so that a few large products replace those of many warps.

An mma or wgmma whose D registers are also its C stays *pending* until an instruction needs these accumulators. All
iterations of a loop over K become one product with a longer K, and C is read and D written once for all of them. A and
B are copied when the instruction is issued. Warps or warpgroups that hold the same A or B, as those of neighbouring
blocks do, become rows and columns of one product (`group_by_operands`). An output depends only on its row, its column
and its C, so none of this changes a result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.grouping import grouped
from warpfrag.machine.ir.actions import DirectCall, IndirectCall, Return
from warpfrag.machine.ir.program import DecodedInstruction, Program, indices_of
from warpfrag.machine.jit import c_functions
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import KernelSelector
from warpfrag.tensorcore.matmul import multiply

Index = NDArray[np.int64]

MAX_PENDING_BYTES = 1 << 26  # copied operand bytes that trigger a flush
UNIT_WORDS = 2  # the size, in 64-bit words, of the units in which operands are compared and copied


class MmaInstructions:
    """The instructions that issue products, and those that need the results.

    `accumulators` maps each issuing instruction to its D registers; `needs_products` is true for instructions that read
    or write such a register, and for calls and returns, which save and restore registers.
    """

    def __init__(self, program: Program, runs: dict[int, list[DecodedInstruction]]) -> None:
        """Index a program's products; `runs` maps each issuing instruction to the instructions of its product."""
        self.accumulators = {
            at: frozenset(indices_of(operand for inst in instructions for operand in inst.results))
            for at, instructions in runs.items()
        }
        every = frozenset[int]().union(*self.accumulators.values())
        self.needs_products = np.array([needs_registers(inst, every) for inst in program.instructions], np.bool_)
        for at, instructions in runs.items():  # C may still be pending, but A and B must be in registers
            self.needs_products[at] = any(indices_of(inst.sources[:2]) & every for inst in instructions)


def needs_registers(inst: DecodedInstruction, registers: frozenset[int]) -> bool:
    """Return True if an instruction reads or writes at least one of the given registers, or uses all registers."""
    if isinstance(inst.action, DirectCall | IndirectCall | Return):
        return True
    return bool(indices_of((*inst.results, *inst.operands_read)) & registers)


class OperandCodes(NamedTuple):
    """An operand of many warps: its distinct codes [tiles, rows, columns], and each warp's tile index."""

    tiles: NDArray[Any]
    which: Index


class OperandSharing(NamedTuple):
    """For each warp: the first warp with the same operand, True if that is this warp, and the tile index."""

    first: Index
    different: NDArray[np.bool_]
    which: Index

    @staticmethod
    def of(first: Index) -> OperandSharing:
        """Create the sharing from an array that maps each warp to the first warp with the same operand."""
        different = first == np.arange(len(first))
        return OperandSharing(first, different, (np.cumsum(different) - 1)[first])


class OperandUnits(NamedTuple):
    """The addresses of an operand in many warps; those of warp i are bases[i] + plans[which[i]].

    `words` is the memory as 64-bit words; bases and plans are word indices. Each entry of a plan is a 16-byte unit.
    """

    words: NDArray[np.uint64]
    bases: Index
    plans: Index
    which: Index

    @staticmethod
    def of(codes: NDArray[Any]) -> OperandUnits:
        """Return the units of a contiguous array that holds one operand per row."""
        words = codes.reshape(-1).view(np.uint64)
        size = len(words) // len(codes)
        units = np.arange(0, size, UNIT_WORDS)[None]
        return OperandUnits(words, np.arange(0, len(words), size), units, np.zeros(len(codes), np.int64))

    def take(self, some: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """Return a copy of the selected warps' operands, [warps, words]."""
        bases = self.bases[some]
        out = np.empty((len(bases), UNIT_WORDS * self.plans.shape[1]), np.uint64)
        c_functions.take_units.run(self.words, bases, self.plans, self.which[some], out)
        return out


class TilePlaces(NamedTuple):
    """The offsets of a tile's codes from a warp's first register, [rows, columns], in elements of a dtype."""

    places: Index
    dtype: np.dtype[Any]


@dataclass
class PendingProduct:
    """The products issued for the same warps and accumulators, with each instruction's A and B."""

    kernels: KernelSelector
    accumulators: frozenset[int]
    rows: Index  # the warp of each tile, or the first warp of its warpgroup
    c: TilePlaces
    d: TilePlaces
    has_c: NDArray[np.bool_]
    a: list[OperandCodes] = field(default_factory=list)
    b: list[OperandCodes] = field(default_factory=list)

    def is_continued(self, other: PendingProduct) -> bool:
        """Return True if another product adds to the same accumulators of the same warps."""
        return (
            self.kernels is other.kernels
            and bool(other.has_c.all())
            and np.array_equal(self.rows, other.rows)
            and are_same(self.d.places, other.c.places)
            and are_same(self.d.places, other.d.places)
        )

    def conflicts(self, other: PendingProduct) -> bool:
        """Return True if `other` shares at least one accumulator register and one warp with this product."""
        return bool(self.accumulators & other.accumulators) and bool(np.isin(other.rows, self.rows).any())


class PendingProducts:
    """The pending products of a batch, whose registers are in one buffer, [warps, bytes]."""

    def __init__(self, buffer: NDArray[np.uint8]) -> None:
        """Create an empty set of pending products."""
        self.buffer = buffer
        self.pending: list[PendingProduct] = []
        self.bytes = 0
        # keyed by accumulators, operand and warp count
        self.sharing: dict[tuple[frozenset[int], str, int], OperandSharing] = {}

    def find_different(self, accumulators: frozenset[int], role: str, units: OperandUnits) -> OperandSharing:
        """Find the warps that have the same operand, starting from the last answer, which is usually right in loops.

        The result may treat equal operands as different, which takes more time but does not change results.
        """
        key = accumulators, role, len(units.bases)
        known = self.sharing.get(key) or OperandSharing.of(np.arange(len(units.bases)))
        first = known.first.copy()
        c_functions.find_equal.run(*units, first, np.empty(len(first), np.uint64))
        if not np.array_equal(first, known.first):
            known = OperandSharing.of(first)
        self.sharing[key] = known
        return known

    def issue(self, product: PendingProduct, a: OperandCodes, b: OperandCodes) -> None:
        """Add an instruction to the pending product that it continues, or start a new product."""
        pending = next((item for item in self.pending if item.is_continued(product)), None)
        if pending is None:
            if any(item.conflicts(product) for item in self.pending):
                self.flush()
            pending = product
            self.pending.append(pending)
        pending.a.append(a)
        pending.b.append(b)
        self.bytes += a.tiles.nbytes + b.tiles.nbytes
        is_in_place = product.c.dtype == product.d.dtype and are_same(product.c.places, product.d.places)
        if self.bytes > MAX_PENDING_BYTES or not is_in_place:
            self.flush()

    def flush(self) -> None:
        """Compute all pending products, and write D to the registers."""
        pending, self.pending, self.bytes = self.pending, [], 0
        for product in pending:
            self.multiply(product)

    def multiply(self, product: PendingProduct) -> None:
        """Compute a product for all warps: as large products if warps share operands, otherwise warp by warp."""
        groups = group_by_operands(first_of_all(product.a).tobytes(), first_of_all(product.b).tobytes())
        if groups is None:
            everyone = np.arange(len(product.rows))
            a, b = ([part.tiles[part.which] for part in parts] for parts in (product.a, product.b))
            self.multiply_tiles(product, everyone[:, None], a, b)
            return
        for group in groups:
            a = [part.tiles[part.which[group[:, 0]]] for part in product.a]
            b = [part.tiles[part.which[group[0]]] for part in product.b]
            whole_a = [codes.reshape(1, -1, codes.shape[2]) for codes in a]
            whole_b = [codes.swapaxes(0, 1).reshape(1, codes.shape[1], -1) for codes in b]
            self.multiply_tiles(product, group, whole_a, whole_b)

    def multiply_tiles(
        self, product: PendingProduct, group: Index, a: list[NDArray[Any]], b: list[NDArray[Any]]
    ) -> None:
        """Compute one product for the warps group[i, j], whose accumulators are the tiles of the output."""
        rows, kernels, dtype = product.rows[group], product.kernels, code_type(product.c.dtype)
        height, width = product.c.places.shape
        tiles = np.zeros((group.shape[0], height, group.shape[1], width), dtype)
        c = tiles.reshape(group.shape[0] * height, -1)
        if product.has_c.any():
            c_functions.take_tiles[product.c.dtype.itemsize].run(*self.cells(product.c, rows), product.c.places, c)
            tiles.swapaxes(1, 2)[~product.has_c[group]] = 0
        codes: NDArray[Any] = c.reshape(a[0].shape[0], -1, c.shape[1])
        pairs = [(a, b)]
        if kernels.rule.c != kernels.rule.d:  # C and D have different formats, so each instruction rounds its own D
            pairs = [([part_a], [part_b]) for part_a, part_b in zip(a, b, strict=True)]
        for parts_a, parts_b in pairs:
            whole_a = np.concatenate(parts_a, axis=2, dtype=code_type(parts_a[0].dtype))
            whole_b = np.concatenate(parts_b, axis=1, dtype=code_type(parts_b[0].dtype))
            codes = multiply(kernels, ProductOperands(whole_a, whole_b, codes), 1)
        matrix = np.ascontiguousarray(codes.reshape(c.shape), code_type(product.d.dtype))
        c_functions.put_tiles[product.d.dtype.itemsize].run(*self.cells(product.d, rows), product.d.places, matrix)

    def cells(self, tile: TilePlaces, rows: Index) -> tuple[NDArray[Any], Index]:
        """Return the register buffer viewed as a tile's dtype, and the index of each warp's first element."""
        bases = rows * (self.buffer.shape[1] // tile.dtype.itemsize)
        return self.buffer.reshape(-1).view(tile.dtype), np.ascontiguousarray(bases)


def code_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that products use for codes, which is at least 32 bits wide."""
    return dtype if dtype.itemsize > 4 else np.dtype(np.uint32)


def are_same(places: Index, others: Index) -> bool:
    """Return True if two arrays are the same object or have equal elements."""
    return places is others or np.array_equal(places, others)


def first_of_all(parts: list[OperandCodes]) -> Index:
    """Return, for each warp, the first warp whose codes are equal in every part."""
    different = [part.which for part in parts]
    if all(are_same(which, different[0]) for which in different[1:]):
        return np.unique(different[0], return_index=True)[1][different[0]]
    _, first, which = np.unique(np.stack(different), axis=1, return_index=True, return_inverse=True)
    return np.ascontiguousarray(first[which.reshape(-1)], np.int64)


MIN_WARPS = 4
"""The smallest average group size that is faster than one product per warp."""


@lru_cache(256)  # a loop requests the same groups in every iteration
def group_by_operands(a: bytes, b: bytes) -> list[Index] | None:
    """Group warps as [rows, columns] with one A per row and one B per column; return None if groups are too small.

    `a` and `b` give, for each warp, the first warp with the same A and the first warp with the same B.
    """
    columns: dict[int, dict[int, int]] = {}
    pairs = zip(*(np.frombuffer(firsts, np.int64).tolist() for firsts in (a, b)), strict=True)
    for warp, (row, column) in enumerate(pairs):
        if columns.setdefault(column, {}).setdefault(row, warp) != warp:
            return None  # two warps have the same A and the same B
    groups = grouped((tuple(sorted(warps)), [warps[row] for row in sorted(warps)]) for warps in columns.values())
    if MIN_WARPS * len(groups) > len(a) // 8:
        return None
    return [np.array(lists, np.int64).T for lists in groups.values()]
