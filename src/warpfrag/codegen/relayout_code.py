"""A relayout as code: its steps are lowered once to register operations, which either builder writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen import ptx_builder as ptx
from warpfrag.codegen.access_code import INCLUDE, MOVMATRIX
from warpfrag.codegen.builder_operations import RegisterOperations
from warpfrag.codegen.cuda_builder import CudaBuilder, RegisterArray
from warpfrag.codegen.languages import check_function_name, check_language
from warpfrag.codegen.ptx_builder import PtxBuilder
from warpfrag.errors import InvalidOperand
from warpfrag.plans.conversions import conversion
from warpfrag.plans.relayout_steps import WORD_BITS, Convert, LanePermute, Permute, RegisterSlot, Transpose, whole_word
from warpfrag.plans.shuffle_search import Select, Shuffle, Swap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warpfrag.plans.conversions import Conversion
    from warpfrag.plans.relayout_steps import Step
    from warpfrag.tensorcore.operand import Operand


class RelayoutLowering:
    """Turns the steps of a relayout into register operations."""

    def __init__(self, source: Operand, target: Operand, builder: PtxBuilder | CudaBuilder) -> None:
        """`builder` writes the operations."""
        self.operations = RegisterOperations(builder)
        self.do = self.operations.do
        self.lane = self.operations.thread
        self.source, self.target = source.row, target.row

    def run(self, steps: Iterable[Step], words: Sequence[str]) -> list[str]:
        """All steps, from the registers of the source to those of the target."""
        state = list(words)
        for step in steps:
            state = self._step(step, state)
        self.operations.finish()
        return state

    def _step(self, step: Step, state: list[str]) -> list[str]:
        if isinstance(step, Permute):
            return [self._joined(cells, state, step.bits) for cells in step.words]
        if isinstance(step, LanePermute):
            parity = self._parity(step.mask)
            pairs = zip(step.words, step.others, strict=True)
            return [self._joined_by_lane(*pair, state, step.bits, parity) for pair in pairs]
        if isinstance(step, Convert):
            return [self._converted(step, cells, state) for cells in step.words]
        if isinstance(step, Transpose):
            return [self.do("collective", MOVMATRIX, state[word]) for word in step.words]
        if isinstance(step, Shuffle):
            return [
                word if flip is None else self._shuffled(step, flip, word)
                for flip, word in zip(step.flips, state, strict=True)
            ]
        if isinstance(step, Swap):
            bits = min(self.source.container, self.target.container)
            swapped = [self._swapped(word, step.flip, bits) for word in state]
            return [
                self.do("select", new, old, self._parity(step.mask)) for new, old in zip(swapped, state, strict=True)
            ]
        return self._selected(step, state)

    def _selected(self, step: Select, state: list[str]) -> list[str]:
        if not step.mask:
            return [state[word] for word in step.words]
        parity = self._parity(step.mask)
        return [self.do("select", state[word], state[at], parity) for at, word in enumerate(step.words)]

    def _parity(self, mask: int) -> str:
        """Not 0 where a lane has an odd number of bits in a mask."""
        bits = self.do("and", self.lane, mask)
        return self.do("and", self.do("popc", bits), 1) if mask.bit_count() > 1 else bits

    def _shuffled(self, step: Shuffle, flip: int, word: str) -> str:
        if list(step.columns) == [1 << bit for bit in range(len(step.columns))]:
            return self.do("bfly", word, flip)
        return self.do("shfl", word, self._lane_read(step.columns, flip))

    def _lane_read(self, columns: tuple[int, ...], flip: int) -> str:
        """The lane to read: the bits of the lane, moved by as many places as their column says, joined by xor."""
        parts: list[str | int] = []
        width = len(columns)
        for shift in range(1 - width, width):
            mask = sum(
                1 << bit for bit in range(width) if 0 <= bit + shift < width and columns[bit] >> (bit + shift) & 1
            )
            if mask:
                part = self.do("and", self.lane, mask)
                parts.append(part if not shift else self.do("shl" if shift > 0 else "shr", part, abs(shift)))
        if flip or not parts:
            parts.append(flip)
        read = str(parts[0])
        for more in parts[1:]:
            read = self.do("xor", read, more)
        return read

    def _joined(self, cells: tuple[RegisterSlot | None, ...], state: list[str], bits: int) -> str:
        """A word made of cells: whole bytes by prmt, smaller pieces by shifts."""
        whole = whole_word(cells)
        if whole is not None:
            return state[whole]
        if bits < 8:
            return self._by_shifts(cells, state, bits)
        size = bits // 8
        places = [
            None if cell is None else (cell.word, cell.slot * size + byte) for cell in cells for byte in range(size)
        ]
        return self._by_prmt(places, state)

    def _joined_by_lane(
        self,
        cells: tuple[RegisterSlot | None, ...],
        others: tuple[RegisterSlot | None, ...],
        state: list[str],
        bits: int,
        parity: str,
    ) -> str:
        """A word made of bytes of two words by one prmt; which bytes, the lane decides."""
        words = list(dict.fromkeys(cell.word for cell in (*cells, *others) if cell))
        size = bits // 8
        selectors = []
        for some in (others, cells):
            places = [cell and (cell.word, cell.slot * size + byte) for cell in some for byte in range(size)]
            chosen = [place[1] + 4 * words.index(place[0]) if place else 0 for place in places]
            selectors.append(sum(choice << 4 * byte for byte, choice in enumerate(chosen)))
        first, second = state[words[0]], state[words[-1]]
        if selectors[0] == selectors[1]:
            return self.do("prmt", first, second, selectors[0])
        return self.do("prmt by lane", first, second, self.do("select", *selectors, parity))

    def _by_prmt(self, places: list[tuple[int, int] | None], state: list[str]) -> str:
        """A word of four bytes, each from a byte of some word; None where nothing is needed."""
        words = list(dict.fromkeys(place[0] for place in places if place))
        result = state[words[0]]
        if all(place is None or place == (words[0], byte) for byte, place in enumerate(places)):
            return result
        for at, word in enumerate(words[1:] or words):
            selector = 0
            for byte, place in enumerate(places):
                if place is None:
                    choice = 0
                elif place[0] == word:
                    choice = place[1] + (4 if words[1:] else 0)
                elif at == 0:
                    choice = place[1] if place[0] == words[0] else 0
                else:
                    choice = byte  # set by an earlier step
                selector |= choice << (4 * byte)
            result = self.do("prmt", result, state[word], selector)
        return result

    def _by_shifts(self, cells: tuple[RegisterSlot | None, ...], state: list[str], bits: int) -> str:
        """A word of small pieces: those that move alike go together."""
        places = [(cell.word, cell.slot * bits, slot * bits) for slot, cell in enumerate(cells) if cell is not None]
        return self._gathered(places, (1 << bits) - 1, state)

    def _gathered(self, places: list[tuple[int, int, int]], code: int, state: list[str]) -> str:
        """A word of pieces, each described by its word, its first bit there and its first bit here."""
        moved: dict[tuple[int, int], int] = {}  # word and distance: the bits of the word that go there
        for word, there, here in places:
            moved[word, here - there] = moved.get((word, here - there), 0) | code << there
        parts = []
        for (word, distance), mask in moved.items():
            part = self.do("and", state[word], mask) if mask != (1 << WORD_BITS) - 1 else state[word]
            parts.append(part if not distance else self.do("shl" if distance > 0 else "shr", part, abs(distance)))
        joined = parts[0]
        for part in parts[1:]:
            joined = self.do("or", joined, part)
        return joined

    def _swapped(self, word: str, flip: int, bits: int) -> str:
        """A word whose cells have changed places."""
        if bits < 8:
            cells = tuple(RegisterSlot(0, slot ^ flip) for slot in range(WORD_BITS // bits))
            return self._by_shifts(cells, [word], bits)
        size = bits // 8
        return self._by_prmt([(0, (byte // size ^ flip) * size + byte % size) for byte in range(4)], [word])

    def _converted(self, step: Convert, cells: tuple[RegisterSlot | None, ...], state: list[str]) -> str:
        """A word of converted elements."""
        row = conversion(step.source, step.target)
        source, target = self.source, self.target
        if row is None:  # the same format in another container
            places = [
                (cell.word, cell.slot * source.container + source.low, slot * target.container + target.low)
                for slot, cell in enumerate(cells)
                if cell is not None
            ]
            return self._gathered(places, source.format.codes - 1, state)
        if source.container not in {16, 32} or target.low:
            msg = (
                f"no code is known for {step.source} in {source.container} bits to {step.target} in {target.container}"
            )
            raise InvalidOperand(msg)
        size = 2 if row.pair else 1
        together = [cells[at : at + size] for at in range(0, len(cells), size)]
        parts = [self._converted_together(row, some, state) if any(some) else None for some in together]
        width = size * target.container // 8
        made = [(at, byte) if part else None for at, part in enumerate(parts) for byte in range(width)]
        return self._by_prmt(made, [part or "" for part in parts])

    def _converted_together(self, row: Conversion, cells: tuple[RegisterSlot | None, ...], state: list[str]) -> str:
        """What one cvt gives: a pair of elements, or one, in the low bits of a register."""
        container = self.source.container
        if container == 16 and row.pair:
            return self.do("cvt word to half", row.cvt, self._joined(cells, state, container))
        first = next(cell for cell in cells if cell)
        if container == 16:
            return self.do("cvt high half" if first.slot else "cvt low half", row.cvt, state[first.word])
        if not row.pair:
            return self.do("cvt", row.cvt, state[first.word])
        low, high = (state[(cell or first).word] for cell in cells)
        return self.do("cvt pair to word" if self.target.container == 16 else "cvt pair to half", row.cvt, high, low)


def emit_steps(source: Operand, target: Operand, steps: Sequence[Step], *, lang: str, name: str, about: str) -> str:
    """The steps of a relayout as code: a device function in CUDA, a function in PTX."""
    write = WRITERS[check_language(lang)]
    check_function_name(name)
    ends = f"// {source.role} of {source.instruction} -> {target.role} of {target.instruction}"
    head = [INCLUDE, ""] if lang == "cuda" else []
    return "\n".join([*head, ends, f"// {about}", *write(source, target, steps, name)])


def _cuda(source: Operand, target: Operand, steps: Sequence[Step], name: str) -> list[str]:
    code = CudaBuilder()
    words, results = RegisterArray("in", source.words), RegisterArray("out", target.words)
    state = RelayoutLowering(source, target, code).run(steps, words.elements)
    code.line(*(f"{result} = {word};" for result, word in zip(results.elements, state, strict=True)))
    parameters = f"{words.parameter()}, {results.parameter(const=False)}"
    return code.function(f"static __device__ __forceinline__ void {name}(\n        {parameters})")


def _ptx(source: Operand, target: Operand, steps: Sequence[Step], name: str) -> list[str]:
    code = PtxBuilder()
    inputs = {f"in{word}": ".b32" for word in range(source.words)}
    outputs = {f"out{word}": ".b32" for word in range(target.words)}
    state = RelayoutLowering(source, target, code).run(steps, [f"%{register}" for register in inputs])
    for register, word in zip(outputs, state, strict=True):
        code.emit(f"mov.b32 %{register}, {word}")
    return code.function(ptx.signature(name, inputs, outputs, separator=" "))


WRITERS = {"cuda": _cuda, "ptx": _ptx}
