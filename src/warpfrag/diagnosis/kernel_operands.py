"""Compare the operands of every mma that a kernel executes with the matrices that it should multiply.

An operand is a tile of the intended A or B, a tile of a kernel argument, or computed by the kernel from the results of
earlier mma instructions. Computed operands are compared by the order of the elements in each row: increasing functions
(scaling, exp, softmax, ReLU) preserve it, but elements in the wrong lanes change it. The argument that the kernel
stores as D is compared with A B + C or, if A and B are unknown, with the mma results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from warpfrag.diagnosis.diagnose import diagnose
from warpfrag.diagnosis.findings import Finding, Mistake, diagnosis
from warpfrag.diagnosis.fixes import MIN_BITS, fix, index_text, moved_elements
from warpfrag.diagnosis.index_maps import loaded_elsewhere
from warpfrag.diagnosis.mistakes import suspects
from warpfrag.diagnosis.tile_placement import MemoryWrites, TileSum, misplaced
from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import as_doubles
from warpfrag.grouping import grouped
from warpfrag.machine.debugger.debug_views import ptx_operands
from warpfrag.machine.ir.actions import MatrixOp
from warpfrag.machine.ir.program import DecodedInstruction, excerpt, registers_of
from warpfrag.machine.launch.symbol_names import readable
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get, instruction_of

if TYPE_CHECKING:
    from warpfrag.machine.debugger.breakpoints import Stop
    from warpfrag.machine.debugger.debugger import Debugger

MAX_STOPS = 256  # the maximum number of mma instructions that are compared
MAX_TILES = 256  # the maximum number of tiles of A or B that are compared with a wrong operand
MAX_RESULTS = 16  # the maximum number of results of earlier mma instructions, per warp
MAX_JOINED = 4  # the maximum number of results that one operand may hold side by side
MIN_DISTINCT = 4  # an order is compared only if at least 1 in 4 elements differs from all others
OVERFLOW = 1e308  # represents infinity in an order
EXAMPLE = "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 A.npy B.npy D.npy"


@dataclass(frozen=True)
class MmaOperand:
    """One operand of an executed mma: the tile or results that it holds, and the mistakes that it reveals.

    `matrix` is A or B, an argument, its transpose (`K.T`), or the mma that computed the operand. It is empty if nothing
    explains the registers; then `unexplained` has lines that describe them. `row` and `col` are the tile's first row
    and column, or -1 if there is no tile. If the kernel computes the operand in a way that cannot be compared,
    `uncompared` is the reason. `loaded_at` are the source lines of the loads that fill the registers, and `filled_at`
    those that fill the shared memory from which they load. For the D of a whole kernel, `matrix` is the argument in
    which it is stored, and `loaded_at` are the source lines of the stores.
    """

    role: str
    matrix: str = ""
    row: int = -1
    col: int = -1
    uncompared: str = ""
    findings: tuple[Finding, ...] = ()
    loaded_at: tuple[str, ...] = ()
    filled_at: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()

    @property
    def is_correct(self) -> bool:
        """True if no mistake is known; the operand may be uncompared."""
        return not self.findings and not self.unexplained

    def __str__(self) -> str:
        """Return one line: the tile and the first mistake if there is one, or the reason why there is no tile."""
        name = self.role.upper()
        if self.unexplained:
            return f"{name}: {self.unexplained[0]}"
        if self.uncompared:
            source = self.matrix and f"computed by the kernel from {self.matrix}: "
            return f"{name}: {source}not compared: {self.uncompared}"
        tile = self.matrix if self.row < 0 else f"the tile of {self.matrix} at row {self.row}, column {self.col}"
        if self.findings:
            return f"{self.findings[0]} ({tile})"
        return f"{name}: correct: {tile}" if self.matrix == name or self.role == "d" else f"{name}: {tile}"


@dataclass(frozen=True)
class ExecutedMma:
    """An mma that one warp executes: its source line, its instruction, and its operands."""

    source: str
    code: str  # the text of the source lines, each on a new line
    instruction: str
    block: tuple[int, int, int]
    warp: int
    operands: tuple[MmaOperand, ...]

    @property
    def is_correct(self) -> bool:
        """True if no operand has a mistake, and the tiles of A and B have the same k."""
        return all(operand.is_correct for operand in self.operands) and not self.differs_in_k

    @property
    def reads_intended(self) -> bool:
        """True if both operands are tiles of the intended A and B."""
        return all(operand.row >= 0 and operand.matrix == operand.role.upper() for operand in self.operands[:2])

    @property
    def differs_in_k(self) -> bool:
        """True if both operands are tiles, and A's first column is not B's first row."""
        a, b = self.operands[:2]
        return min(a.row, b.row) >= 0 and a.col != b.row


class EarlierResult(NamedTuple):
    """The D of an executed mma, and the mma's source line."""

    values: NDArray[Any]
    source: str


class Candidate(NamedTuple):
    """A matrix from which the kernel may have computed an operand: its elements, each element's row, and its name."""

    values: NDArray[Any]
    rows: NDArray[Any]
    name: str


class OperandComparison:
    """Runs a kernel and compares each mma with the intended matrices, the arguments and earlier results."""

    def __init__(
        self, debugger: Debugger, intended: Mapping[str, NDArray[Any]], arguments: dict[str, NDArray[Any]]
    ) -> None:
        """Copy the arguments, because the kernel may change them."""
        self.debugger, self.intended = debugger, intended
        self.given = {name: (array, array.copy()) for name, array in arguments.items()}
        written = ((inst, result) for inst in debugger.program.instructions for result in inst.results)
        self.writers = grouped((register.name, inst) for inst, result in written for register in registers_of(result))
        self.arguments = {
            f"argument {name}" if name.lower() in intended else name: np.array(array)
            for name, array in arguments.items()
            if array.ndim == 2 and array.any() and not any(np.array_equal(array, each) for each in intended.values())
        }
        self.results: dict[tuple[tuple[int, int, int], int], list[EarlierResult]] = {}
        self.sums: dict[TileSum, NDArray[Any]] = {}  # the last result of each warp for each tile of D
        self.restart = ""  # the first mma that adds to 0 although its warp has a sum for the same tile
        self.writes = MemoryWrites(debugger)
        self.is_complete = False

    def executed(self) -> Iterator[ExecutedMma]:
        """Run the kernel and yield each mma of its warps; `is_complete` is False if it executes too many."""
        debugger = self.debugger
        lines = {inst.line for inst in debugger.program.instructions if is_mma(inst)}
        if not lines:
            others = {inst.name.partition(".")[0] for inst in debugger.program.instructions if "mma" in inst.name}
            has = f"has no mma or wmma.mma instruction{f', only {listed}' if (listed := ', '.join(others)) else ''}"
            raise InvalidOperand(f"{readable(debugger.program.name)} {has}: diagnose its result, as in {EXAMPLE}")
        for line in sorted(lines):
            debugger.break_at(line)
        for _ in range(MAX_STOPS):
            stop = debugger.run()
            if stop is None:
                self.is_complete = True
                return
            yield from self._at(stop)
        debugger.breakpoints.clear()
        debugger.run()

    def _at(self, stop: Stop) -> Iterator[ExecutedMma]:
        """Yield the mma of each warp that stopped."""
        debugger = self.debugger
        instruction = self._resolved(debugger.instruction.name)
        source = self._source(debugger.instruction)
        for block, warp in stop.warps:
            held = {role: debugger.matrix(role, block=block, warp=warp) for role in "abc"}
            earlier = self.results.setdefault((block, warp), [])
            operands = []
            for operand in (instruction.a, instruction.b, instruction.c):
                found = self._compared(operand, held[operand.role], earlier)
                operands.append(self._with_loads(found, operand, held[operand.role]))
            yield ExecutedMma(source, excerpt(stop.source), instruction.name, block, warp, tuple(operands))
            if instruction.pattern is None:
                D = instruction(held["a"], held["b"], held["c"], arch=debugger.config.arch)
                key = TileSum((block, warp), (operands[0].row, operands[1].col))
                if key in self.sums and operands[2].matrix == "0":
                    self.restart = self.restart or f"at {source}, for k = {operands[1].row}"
                self.sums[key] = D
                earlier[:] = [result for result in earlier if not np.array_equal(result.values, held["c"])]
                earlier.append(EarlierResult(D, source))
                del earlier[:-MAX_RESULTS]

    def stored(self, executed: Sequence[ExecutedMma]) -> MmaOperand:
        """Compare each changed argument with D; return the best result or, if A and B are unknown, the worst."""
        changed = {name: array for name, (array, old) in self.given.items() if array.tobytes() != old.tobytes()}
        compare = self._with_product if self.intended else self._with_results
        results = [(compare(executed, name, array), array) for name, array in changed.items() if executed]
        found = [(each, array) for each, array in results if each is not None]
        if not found:
            return MmaOperand("d", uncompared="the kernel changes no argument that can be D")
        found.sort(key=lambda pair: (bool(pair[0].uncompared), not pair[0].is_correct))
        result, array = found[0 if self.intended else -1]
        role = result.findings[0].operand if result.findings else "d"
        if role in "ab":  # right tiles from wrong rows or columns
            loads = executed[0].operands["ab".index(role)]
            return replace(result, loaded_at=loads.loaded_at, filled_at=loads.filled_at)
        return replace(result, loaded_at=self._sources({line for line, _ in self.writes.of(array)}))

    def _with_product(self, executed: Sequence[ExecutedMma], name: str, array: NDArray[Any]) -> MmaOperand | None:
        """Compare an argument of D's extents with A B + C; C is the argument that the kernel reads as C, or zero."""
        (A, B), mma = self.intended.values(), self._resolved(executed[0].instruction)
        shape = len(A), B.shape[1]
        if array.shape != shape and array.shape != (math.prod(shape),):
            return None
        read = (self.arguments.get(each.operands[2].matrix) for each in executed if each.operands[2].row >= 0)
        C = next((argument for argument in read if argument is not None and argument.shape == shape), None)
        tile = None if (A.shape, B.shape) == (mma.a.shape, mma.b.shape) else mma.d.shape
        try:
            found = diagnose(mma, array.reshape(shape), A, B, C, arch=self.debugger.config.arch, tile=tile)
        except InvalidOperand as error:
            return MmaOperand("d", uncompared=f"argument {name}: {error}")
        if found.agreement is None or found.is_rounding:
            return MmaOperand("d", f"argument {name}")
        text = f"wrong in {array.size - found.agreement.correct} of {array.size} elements of argument {name}"
        if not all(each.is_correct for each in executed):
            return MmaOperand("d", unexplained=(text,))
        lines = [f"{text}; no known mistake explains it", *str(found.agreement).splitlines()]
        tiles = _tiles(mma.d, array.reshape(shape), array.dtype)
        if tiles and self.is_complete and all(each.reads_intended for each in executed):
            never = sorted(tiles.keys() - {key.corner for key in self.sums})
            others = [finding for finding in found if finding.operand not in {"a", "b"} and not never]
            found[:] = [*misplaced(tiles, self.sums, self.writes)] or [*self._restarted(tiles)] or others
            lines += [f"no mma computes the tile of D at row {row}, column {col}" for row, col in never[:1]]
        return MmaOperand("d", f"argument {name}", findings=tuple(found), unexplained=() if found else tuple(lines))

    def _restarted(self, tiles: Mapping[tuple[int, int], NDArray[Any]]) -> Iterator[Finding]:
        """Yield the mistake of zeroing the accumulators in the loop over k, if D has the last sums of every tile."""
        last = {key.corner: values for key, values in self.sums.items()}
        is_last = (at in last and np.array_equal(tile, last[at].astype(tile.dtype)) for at, tile in tiles.items())
        if self.restart and all(is_last):
            text = f"zeroed again {self.restart}: D has only the products that are added after this"
            yield Finding("c", "c", text, "zero the accumulators before the loop over k, not inside it")

    def _with_results(self, executed: Sequence[ExecutedMma], name: str, array: NDArray[Any]) -> MmaOperand | None:
        """Compare the tiles of an argument with the results of the mma instructions."""
        operand = self._resolved(executed[-1].instruction).d
        tiles = _tiles(operand, array, array.dtype) if array.ndim == 2 else {}
        if not tiles or len(tiles) * math.prod(operand.shape) != array.size:
            return None
        computed = [each for earlier in self.results.values() for each in _candidates(operand.shape, earlier)]
        if all(_in_order(operand, tile, computed) for tile in tiles.values()):
            return MmaOperand("d", f"argument {name}")
        return MmaOperand("d", uncompared=f"the values of argument {name} differ from the mma results; pass A and B")

    def _resolved(self, name: str) -> Instruction:
        """Return an instruction; the fragments of wmma depend on the architecture."""
        found = get(name)
        return (
            instruction_of(found.form, arithmetic_arch(found.form, self.debugger.config.arch)) if found.arch else found
        )

    def _producers(self, role: str, wrong: NDArray[np.bool_] | None = None) -> list[DecodedInstruction]:
        """Return the loads, and the earlier mma instructions, whose values reach registers of an operand.

        Values go through registers and, if they are loaded from shared memory, through every store to shared memory.
        """
        debugger = self.debugger
        shared = (inst for inst in debugger.program.instructions if inst.name.startswith(("st.shared", "stmatrix")))
        stores = [name for inst in shared for name in _read(inst)]
        registers = registers_of(ptx_operands(debugger.instruction)[role])
        kept = [register.name for at, register in enumerate(registers) if wrong is None or wrong[:, at].any()]
        direct = self._followed(kept)
        is_staged = any(inst.name.startswith(("ld.shared", "ldmatrix")) for inst in direct)
        staged = [inst for inst in self._followed(stores) if is_mma(inst)] if is_staged else []
        return sorted({inst.line: inst for inst in (*direct, *staged)}.values(), key=lambda inst: inst.line)

    def _followed(self, names: list[str]) -> list[DecodedInstruction]:
        """Return the loads and mma instructions whose values reach the named registers through other registers."""
        found: dict[int, DecodedInstruction] = {}
        followed: set[str] = set()
        while names:
            name = names.pop()
            for inst in () if name in followed else self.writers.get(name, ()):
                if inst.name.startswith(("ld", "wmma.load")) or is_mma(inst):
                    found[inst.line] = inst
                else:
                    names += _read(inst)
            followed.add(name)
        return [*found.values()]

    def _source(self, inst: DecodedInstruction) -> str:
        source = self.debugger.sources.get(inst.line)
        return f"line {inst.line} of the PTX" if source is None else str(source)

    def _sources(self, lines: Iterable[int]) -> tuple[str, ...]:
        insts = (inst for inst in self.debugger.program.instructions if inst.line in lines)
        return tuple(dict.fromkeys(map(self._source, insts)))

    def _compared(self, operand: Operand, held: NDArray[Any], earlier: list[EarlierResult]) -> MmaOperand:
        """Return the tile or results that the registers hold, or the mistake that explains them."""
        role = operand.role
        own = {role.upper(): self.intended[role]} if role in self.intended else {}
        turned = {f"{name}.T": array.T for name, array in self.arguments.items()}
        computed = [*_candidates(operand.shape, earlier)]
        if role == "c":
            if not held.any():
                return MmaOperand(role, "0")
            own = {f"the result of the mma at {result.source}": result.values for result in earlier[::-1]}
        found = (
            _exact_tile(operand, held, own | self.arguments)
            or _in_order(operand, held, computed)
            or _mistaken_tile(operand, held, own)
            or _misloaded_tile(operand, held, own)
            or _exact_tile(operand, held, turned)
            or _mistaken_tile(operand, held, self.arguments | turned)
            or _misloaded_tile(operand, held, self.arguments)
            or _mistaken_order(operand, held, computed)
        )
        if found is not None:
            return replace(found, row=-1, col=-1) if found.matrix in own and role == "c" else found
        mmas = dict.fromkeys(self._source(inst) for inst in self._producers(role) if is_mma(inst))
        if role == "c" and not (mmas and earlier):
            lane = np.argwhere(operand.pack(held))[0][0]
            return MmaOperand(role, uncompared=f"not 0 (see lane {lane}), nor a tile of an argument or an earlier D")
        if not mmas:
            unknown = "not explained: no tile gives these registers, with or without a known mistake"
            return MmaOperand(role, unexplained=(unknown, *_first_wrong(operand, held, own)))
        return MmaOperand(role, ", ".join(mmas), uncompared=_no_order(held, computed))

    def _with_loads(self, found: MmaOperand, operand: Operand, held: NDArray[Any]) -> MmaOperand:
        """Return the operand with the loads of its wrong registers, or of all if it is correct.

        Findings about 8 x 8 blocks come last unless an ldmatrix loaded them.
        """
        intended = self.intended.get(operand.role)
        nearest = None if intended is None or found.is_correct else _nearest_tile(operand, held, intended)
        wrong = None if nearest is None else _wrong_places(operand, held, nearest[1])
        loads = [inst for inst in self._producers(operand.role, wrong) if not is_mma(inst)]
        by_block = [inst.name for inst in loads if inst.name.startswith("ldmatrix")]
        change = "remove .trans from" if any(".trans" in name for name in by_block) else "add .trans to"
        findings = sorted(found.findings, key=lambda finding: finding.kind == "blocks" and not by_block)
        if by_block and findings and "ldmatrix .trans" in findings[0].text:
            findings[0] = replace(findings[0], fix=f"{change} the ldmatrix of {operand.role.upper()}")
        loaded_at = self._sources({inst.line for inst in loads})
        filled_at = self._sources({line for inst in loads for line in self.writes.filled_by[inst.line]})
        return replace(found, findings=tuple(findings), loaded_at=loaded_at, filled_at=filled_at)


def is_mma(inst: DecodedInstruction) -> bool:
    """Return True if an instruction is an mma or wmma.mma, not ldmatrix or wgmma."""
    action = inst.action
    return isinstance(action, MatrixOp) and (action.operation == "mma" or action.form.op == "wmma.mma")


def _read(inst: DecodedInstruction) -> list[str]:
    """Return the names of the registers that an instruction reads."""
    return [register.name for source in inst.sources for register in registers_of(source)]


# ---- tiles of matrices


def _tiles(operand: Operand, matrix: NDArray[Any], dtype: np.dtype[Any]) -> dict[tuple[int, int], NDArray[Any]]:
    """Return the tiles of a matrix that have the shape of an operand, keyed by first row and column."""
    high, wide = operand.shape
    return {
        (row, col): matrix[row : row + high, col : col + wide].astype(dtype, copy=False)
        for row in range(0, matrix.shape[0] - high + 1, high)
        for col in range(0, matrix.shape[1] - wide + 1, wide)
    }


def _exact_tile(operand: Operand, held: NDArray[Any], matrices: Mapping[str, NDArray[Any]]) -> MmaOperand | None:
    for name, matrix in matrices.items():
        for (row, col), tile in _tiles(operand, matrix, held.dtype).items():
            if np.array_equal(tile, held):
                return MmaOperand(operand.role, name, row, col)
    return None


def _mistaken_tile(operand: Operand, held: NDArray[Any], matrices: Mapping[str, NDArray[Any]]) -> MmaOperand | None:
    """Return a tile and a mistake that together give the registers; tiles with similar values are tried first."""
    words, counts = operand.pack(held), np.sort(held, axis=None)
    for name, matrix in matrices.items():
        tiles = _tiles(operand, matrix, held.dtype)
        likely = sorted(tiles, key=lambda corner: int((np.sort(tiles[corner], axis=None) != counts).sum()))
        for row, col in likely[:MAX_TILES]:
            findings = [*diagnose(operand, words, tiles[row, col])]
            for at, finding in enumerate(findings if not matrix.flags.c_contiguous else ()):
                if finding.kind == "transposed":
                    findings[at] = replace(finding, fix=f"load element (row, col) from col * {len(matrix)} + row")
            if findings:
                return MmaOperand(operand.role, name, row, col, findings=tuple(findings))
    return None


def _misloaded_tile(operand: Operand, held: NDArray[Any], matrices: Mapping[str, NDArray[Any]]) -> MmaOperand | None:
    """Return a tile and a wrong index, which may be outside the tile, that together give the registers."""
    for name, matrix in matrices.items():
        corners = [*_tiles(operand, matrix, held.dtype)]
        if found := loaded_elsewhere(operand, held, matrix.astype(held.dtype), corners):
            (row, col), text = found
            finding = Finding("index", operand.role, text, index_text(operand))
            return MmaOperand(operand.role, name, row, col, findings=(finding,))
    return None


def _nearest_tile(
    operand: Operand, held: NDArray[Any], matrix: NDArray[Any]
) -> tuple[tuple[int, int], NDArray[Any]] | None:
    """Return the corner and the elements of the tile that has the most elements in common with the registers."""
    tiles = _tiles(operand, matrix, held.dtype)
    return max(tiles.items(), key=lambda item: int((item[1] == held).sum()), default=None)


def _wrong_places(operand: Operand, held: NDArray[Any], tile: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the lanes and registers that do not hold a tile's element."""
    places = fragment.elements(operand.layout).reshape(-1, operand.regs, operand.slots)
    wrong: NDArray[np.bool_] = (tile != held).ravel()[places].any(axis=-1)
    return wrong


def _first_wrong(operand: Operand, held: NDArray[Any], matrices: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Yield the contents of the first wrong lane and, if the operand resembles a tile, the expected contents."""
    axis, slots = int(operand.role != "b"), operand.slots
    places = fragment.elements(operand.layout).reshape(-1, operand.regs, slots)
    for name, matrix in matrices.items():
        if (nearest := _nearest_tile(operand, held, matrix)) is None:
            continue
        corner, tile = nearest
        lane, reg = np.argwhere(_wrong_places(operand, held, tile))[0]
        values = held.ravel()[places[lane, reg]]
        found = np.argwhere((sliding_window_view(matrix.astype(held.dtype), slots, axis) == values).all(axis=-1))
        right = np.add(corner, np.unravel_index(places[lane, reg, 0], held.shape))
        holds = _span(name, found[0], axis, slots) if len(found) == 1 else ", ".join(f"{value:.6g}" for value in values)
        is_near = (tile == held).any() or matrix.shape == held.shape
        should = f", but should hold {_span(name, right, axis, slots)}" if is_near else ""
        yield f"lane {lane} holds {holds} in register {reg}{should}"


def _span(name: str, first: NDArray[Any], axis: int, count: int) -> str:
    """Return consecutive elements of a matrix as text, such as A[1][2..3]."""
    ends = [f"{at}..{at + count - 1}" if along == axis and count > 1 else f"{at}" for along, at in enumerate(first)]
    return f"{name}[{ends[0]}][{ends[1]}]"


# ---- results of earlier mma instructions


def _candidates(shape: tuple[int, ...], earlier: list[EarlierResult]) -> Iterator[Candidate]:
    """Yield matrices of an operand's shape made from earlier results: joined side by side, stacked, or transposed."""
    for count in range(1, MAX_JOINED + 1):
        for start in range(len(earlier) - count, -1, -1):
            group = earlier[start : start + count]
            if len({result.values.shape for result in group}) > 1:
                continue
            name = " and ".join(dict.fromkeys(f"the mma at {result.source}" for result in group))
            for axis in (1, 0) if count > 1 else (1,):
                values = np.concatenate([result.values for result in group], axis=axis)
                rows = np.broadcast_to(np.arange(values.shape[0])[:, None], values.shape)
                if values.shape == shape:
                    yield Candidate(values, rows, f"the results of {name}, element by element")
                if values.T.shape == shape:
                    yield Candidate(values.T, rows.T, f"the results of {name}, transposed")


def _keeps_order(held: NDArray[Any], values: NDArray[Any], rows: NDArray[Any]) -> bool:
    """Return True if the elements of each row of `values` have the same order in `held`."""
    order = np.lexsort((values.ravel(), rows.ravel()))
    more = np.diff(np.nan_to_num(as_doubles(held), posinf=OVERFLOW, neginf=-OVERFLOW).ravel()[order])
    is_tie = np.diff(values.ravel()[order]) == 0
    return bool((np.where(is_tie, more == 0, more >= 0))[np.diff(rows.ravel()[order]) == 0].all())


def _has_order(held: NDArray[Any]) -> bool:
    return np.unique(held).size * MIN_DISTINCT >= held.size and not np.isnan(as_doubles(held)).any()


def _no_order(held: NDArray[Any], candidates: list[Candidate]) -> str:
    """Return the reason why an operand that the kernel computes cannot be compared."""
    values = as_doubles(held)
    special = {"NaN": np.isnan(values), "infinite": np.isinf(values)}
    texts = [f"{int(mask.sum())} of {held.size} elements are {name}" for name, mask in special.items() if mask.any()]
    if not candidates:
        texts.append("no earlier results have the operand's shape")
    elif np.unique(held).size * MIN_DISTINCT < held.size:
        texts.append("most elements are equal, so their order cannot be compared")
    elif not special["NaN"].any():
        texts.append("no earlier results have the same order in each row, with or without a known mistake")
    return "; ".join(texts)


def _in_order(operand: Operand, held: NDArray[Any], candidates: list[Candidate]) -> MmaOperand | None:
    for values, rows, name in candidates:
        is_equal = np.array_equal(held, values, equal_nan=True)
        if is_equal or (_has_order(held) and _keeps_order(held, values, rows)):
            return MmaOperand(operand.role, name)
    return None


def _mistaken_order(operand: Operand, held: NDArray[Any], candidates: list[Candidate]) -> MmaOperand | None:
    """Return earlier results and a fragment mistake that together give the order of the registers' elements."""
    if operand.format.bits < MIN_BITS or not _has_order(held):
        return None
    moves = [*_moves(operand)]
    for values, rows, name in candidates:
        if found := [mistake for mistake, index in moves if _keeps_order(held, values[index], rows[index])]:
            findings = diagnosis(found, found, fix=partial(fix, {operand.role: operand}))
            return MmaOperand(operand.role, name, findings=tuple(findings))
    return None


def _moves(operand: Operand) -> Iterator[tuple[Mistake, tuple[NDArray[Any], NDArray[Any]]]]:
    """Yield the mistakes that move or repeat elements, each with the row and column from which every element comes."""
    for mistake in suspects(operand):
        if (index := moved_elements(operand, mistake.change)) is not None:
            yield mistake, index
