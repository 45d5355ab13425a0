"""Plans that move a fragment from or to shared memory: accesses, their addresses, cost and result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from warpfrag.errors import InvalidOperand, quote
from warpfrag.html import card, escape, table
from warpfrag.isa.instruction_table import legal_targets
from warpfrag.isa.legality import resolve
from warpfrag.isa.targets import targets
from warpfrag.layout import providers
from warpfrag.layout.coordinates import LANES
from warpfrag.plans.relayout_operations import price
from warpfrag.smem import shared_memory
from warpfrag.tensorcore.operand import Operand

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.formats.arrays import Bytes, Words

LINES = 8  # the number of rows in a matrix
Direction = Literal["load", "store"]


class Access(NamedTuple):
    """One instruction of an access plan: the registers that it moves, and the address of each lane.

    `addresses` has one entry per lane (for a warpgroup, warp 0 first); None marks a lane without an address. `width` is
    the number of bytes at an address. `slot` is the element of its register that a narrow access moves, or None if
    whole registers are moved.
    """

    instruction: str
    words: tuple[int, ...]
    addresses: tuple[int | None, ...]
    width: int
    slot: int | None = None

    @property
    def passes(self) -> int:
        """The number of shared-memory passes that the instruction takes."""
        return sum(shared_memory.wavefronts(request, self.width) for request in self.requests)

    @property
    def conflicts(self) -> int:
        """The number of passes that bank conflicts cause: lanes need different words of the same bank."""
        return sum(shared_memory.bank_conflicts(request, self.width) for request in self.requests)

    @property
    def requests(self) -> list[tuple[int | None, ...]]:
        """The addresses of each request, that is, of one warp, or of one ldmatrix or stmatrix matrix."""
        warps = [self.addresses[first : first + LANES] for first in range(0, len(self.addresses), LANES)]
        if "matrix" not in self.instruction:
            return warps
        present = [tuple(address for address in warp if address is not None) for warp in warps]
        return [warp[first : first + LINES] for warp in present for first in range(0, len(warp), LINES)]


class AddressTerm(NamedTuple):
    """A term of an address: `bits` bits of the thread index, starting at bit `low`, times `stride`."""

    low: int
    bits: int
    stride: int
    threads: int = LANES

    @property
    def is_masked(self) -> bool:
        """True if the thread index has higher bits than these, which must be masked off."""
        return 1 << (self.low + self.bits) < self.threads


class AddressSum(NamedTuple):
    """A lane's address before the swizzle: a constant plus terms of the thread index."""

    origin: int
    terms: tuple[AddressTerm, ...]

    def at(self, thread: int) -> int:
        """Return the address for a thread index."""
        parts = ((thread >> term.low & ((1 << term.bits) - 1)) * term.stride for term in self.terms)
        return self.origin + sum(parts)


def address_sum(addresses: Sequence[int | None], memory: shared_memory.Memory) -> AddressSum:
    """Return a formula for the address of each lane, relative to the start of the memory."""
    # a swizzle is its own inverse
    flat = [
        None if address is None else shared_memory.swizzled(address, memory.swizzle, memory.base_offset)
        for address in addresses
    ]
    origin = flat[0] or 0
    terms: list[AddressTerm] = []
    for bit in range((len(flat) - 1).bit_length()):
        there = flat[1 << bit]
        stride = 0 if there is None else there - origin  # lanes whose address is not used repeat another lane's
        if not stride:
            continue
        last = terms[-1] if terms else None
        if last and last.low + last.bits == bit and last.stride << last.bits == stride:
            terms[-1] = last._replace(bits=last.bits + 1)
        else:
            terms.append(AddressTerm(bit, 1, stride, len(flat)))
    total = AddressSum(origin, tuple(terms))
    if any(address is not None and address != total.at(thread) for thread, address in enumerate(flat)):
        raise InvalidOperand("the addresses of this access are not a sum over bits of the lane: choose another plan")
    return total


def sum_expression(address: AddressSum) -> str:
    """Return the sum as a C expression in terms of `base` and the thread index."""
    parts = map(_part, address.terms)
    return " + ".join(["base", *([str(address.origin)] if address.origin else []), *parts])


def _part(term: AddressTerm) -> str:
    name = thread_name(term.threads)
    shifted = f"{name} >> {term.low}" if term.low else name
    if term.is_masked:
        shifted = f"{shifted} & {(1 << term.bits) - 1}"
    return f"({shifted}) * {term.stride}" if " " in shifted else f"{shifted} * {term.stride}"


def thread_name(threads: int) -> str:
    """Return the name that generated code uses for the thread index within a warp or warpgroup."""
    return "lane" if threads == LANES else "thread"


def swizzle_expression(memory: shared_memory.Memory, address: str) -> str:
    """Return the swizzled address as a C expression."""
    row = f"{address} / {shared_memory.ROW_OF_UNITS}"
    turned = f"({row} - {memory.base_offset})" if memory.base_offset else row
    return f"{address} ^ ({turned} & {(1 << shared_memory.SWIZZLES[memory.swizzle]) - 1}) * {shared_memory.UNIT}"


MAX_ROWS = 8  # the most accesses that a card lists


@dataclass(frozen=True)
class AccessPlan:
    """A plan to load or store an operand: its instructions in order, and the operations that follow them.

    With `transposes`, movmatrix transposes every register. Every register is then shifted left by `shift` bits.
    """

    operand: Operand
    memory: shared_memory.Memory
    direction: Direction
    accesses: tuple[Access, ...]
    transposes: bool = False
    shift: int = 0

    @property
    def name(self) -> str:
        """The distinct instructions, joined by +."""
        names = dict.fromkeys(access.instruction for access in self.accesses)
        moved = ["movmatrix.sync.aligned.m8n8.trans.b16"] if self.transposes else []
        return " + ".join([*names, *moved] if self.direction == "load" else [*moved, *names])

    @cached_property
    def passes(self) -> int:
        """The total number of shared-memory passes."""
        return sum(access.passes for access in self.accesses)

    @cached_property
    def conflicts(self) -> int:
        """The total number of bank conflicts."""
        return sum(access.conflicts for access in self.accesses)

    @property
    def instructions(self) -> int:
        """The number of instructions that each warp executes."""
        return len(self.accesses) + self.operand.words * (self.transposes + (self.shift > 0))

    @cached_property
    def cost(self) -> int:
        """The number of instructions (including movmatrix) and passes, plus one for each shift or inserted element.

        For a warpgroup, this is the sum over its warps.
        """
        turned = price("movmatrix", self.operand.words) if self.transposes else 0
        joined = sum(access.slot not in {None, 0} for access in self.accesses)
        shifted = self.operand.words if self.shift else 0
        return len(self.warps) * (len(self.accesses) + turned + joined + shifted) + self.passes

    def __repr__(self) -> str:
        """Format the operand, the instructions and the memory."""
        return f"<AccessPlan to {self._purpose}\n {self}\n {self.memory.description}>"

    @property
    def _purpose(self) -> str:
        return f"{self.direction} {self.operand.role} of {self.operand.instruction}"

    def _repr_html_(self) -> str:
        """Return a notebook card with the cost, and for each access its registers, passes and addresses."""
        rows = [
            (
                access.instruction,
                ", ".join(map(str, access.words)),
                str(access.width),
                str(access.passes),
                str(access.conflicts),
                sum_expression(address_sum(access.addresses, self.memory)),
            )
            for access in self.accesses[:MAX_ROWS]
        ]
        more = len(self.accesses) - len(rows)
        swizzle = swizzle_expression(self.memory, "a") if self.memory.swizzle else ""
        notes = [
            f"{self}, cost {self.cost}. Memory: {self.memory.description}.",
            f"Each address a is then swizzled: {swizzle}." if swizzle else "",
            f"The first {MAX_ROWS} of {len(self.accesses)} accesses." if more else "",
        ]
        return card(
            f"<code>{escape(self._purpose)}</code>",
            *(f"<p>{escape(text)}</p>" for text in notes if text),
            table(("instruction", "registers", "bytes per lane", "passes", "conflicts", "address by lane"), rows),
        )

    def __str__(self) -> str:
        """Format the instructions and their cost."""
        conflicts = "no bank conflicts" if not self.conflicts else f"{self.conflicts} bank conflicts"
        return f"{self.instructions} x {self.name}, {self.passes} passes, {conflicts}"

    def expression(self, access: Access) -> str:
        """Return the swizzled address that a lane passes, as a C expression in terms of `base` and `lane`.

        Lanes whose address is not read repeat another lane's address.
        """
        if not isinstance(access, Access):
            raise InvalidOperand(f"access: expected one of the accesses of this plan, got {quote(access)}")
        total = sum_expression(address_sum(access.addresses, self.memory))
        if not self.memory.swizzle:
            return total
        return f"swizzle({total})  /* swizzle(a) = {swizzle_expression(self.memory, 'a')} */"

    def emit(self, lang: str = "cuda", name: str = "") -> str:
        """Return the code, as `wf.emit` does; the function is called `load` or `store` unless `name` is given.

        It takes the registers and an address in shared memory. The swizzle applies to absolute addresses, so the memory
        must be aligned to eight rows: 256, 512 or 1024 bytes.
        """
        return providers.emit_plan(self, lang, name)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that support every instruction."""
        names = [part for part in self.name.split(" + ") if "matrix" in part]
        legal = [set(legal_targets(resolve(name))) for name in names]
        return tuple(target for target in targets() if all(target in some for some in legal))

    def load(self, shared: ArrayLike) -> Words:
        """Return the registers loaded from a memory: uint32[32, regs], or uint32[4, 32, regs] for a warpgroup."""
        import numpy as np

        from warpfrag.tensorcore import matrix_moves

        memory, operand = self._reached(shared_memory.as_bytes(shared)), self.operand
        shape = (*operand.threads, operand.words)
        words = np.zeros((math.prod(shape[:-1]), shape[-1]), np.uint32)
        for access in self.accesses:
            if "matrix" not in access.instruction:
                threads, addresses = _plain_addresses(access)
                held = np.ascontiguousarray(words[threads][:, list(access.words)]).view(np.uint8)
                held[:, _own_bytes(access)] = memory[addresses]
                words[np.ix_(threads, access.words)] = held.view(np.uint32)
                continue
            form = resolve(access.instruction)
            for warp in self.warps:
                words[warp, list(access.words)] = matrix_moves.load(form, _filled(access.addresses[warp]), memory)
        loaded = words.reshape(shape)
        turned = matrix_moves.move_words(loaded) if self.transposes else loaded
        return turned << np.uint32(self.shift)

    def store(self, words: ArrayLike, shared: ArrayLike) -> Bytes:
        """Return a copy of the memory with the registers stored in it."""
        import numpy as np

        from warpfrag.tensorcore import matrix_moves

        operand = self.operand
        registers, memory = operand.check_words(words), self._reached(shared_memory.as_bytes(shared)).copy()
        held = (*operand.threads, operand.words)
        if registers.shape != held:
            extents = ", ".join(map(str, held))
            raise InvalidOperand(
                f"expected the registers of one operand, uint32[{extents}], got shape {registers.shape}"
            )
        turned = (matrix_moves.move_words(registers) if self.transposes else registers).reshape(-1, held[-1])
        for access in self.accesses:
            if "matrix" in access.instruction:
                form = resolve(access.instruction)
                for warp in self.warps:
                    moved = turned[warp, list(access.words)]
                    memory = matrix_moves.store(form, _filled(access.addresses[warp]), moved, memory)
                continue
            threads, addresses = _plain_addresses(access)
            own = np.ascontiguousarray(turned[threads][:, list(access.words)]).view(np.uint8)
            memory[addresses] = own[:, _own_bytes(access)]
        return memory

    def _reached(self, memory: Bytes) -> Bytes:
        """Return the memory as bytes; raise InvalidOperand if an access extends beyond it."""
        last = max(
            address + access.width for access in self.accesses for address in access.addresses if address is not None
        )
        if last > len(memory):
            raise InvalidOperand(f"{self.name} reaches byte {last - 1}, but the memory has {len(memory)} bytes")
        return memory

    @property
    def warps(self) -> list[slice]:
        """The threads of each warp."""
        return [slice(first, first + LANES) for first in range(0, math.prod(self.operand.threads), LANES)]


def _plain_addresses(access: Access) -> tuple[list[int], NDArray[Any]]:
    """Return the threads that pass an address, and the addresses of the bytes that they access."""
    import numpy as np

    by_thread = {thread: address for thread, address in enumerate(access.addresses) if address is not None}
    return list(by_thread), np.array([*by_thread.values()], np.intp)[:, None] + np.arange(access.width)


def _own_bytes(access: Access) -> slice:
    """Return the slice of a register's bytes that a thread moves."""
    first = 0 if access.slot is None else access.slot * access.width
    return slice(first, first + access.width)


def _filled(addresses: tuple[int | None, ...]) -> list[int]:
    """Return the addresses of all lanes, with 0 for lanes without an address."""
    return [address or 0 for address in addresses]
