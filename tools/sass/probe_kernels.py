"""Build probe kernels: code that loads the operands of each probe, runs the probe, and stores its results.

The code replaces the body of a kernel that ptxas assembles (`template`), whose prologue computes the address of a
thread's words. Every instruction waits for all earlier ones. nvdisasm decodes the finished code, so that a wrong field
is found here and not on the GPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tools.fuzz.inputs import random_bytes
from tools.sass.captures import assemble
from tools.sass.probes import (
    ADDRESS,
    ARCH,
    CELL_BYTES,
    CONSTANT_BYTES,
    DESCRIPTOR,
    LANES_LAYOUT,
    SCRATCH,
    SHARED_BASE,
    SHARED_OPCODES,
    THREADS,
    UNIFORM_SCRATCH,
    NoProbe,
    Probe,
    ProbeKernel,
    barrier_registers,
    constant_of,
    is_control,
    is_uniform_global,
    split_name,
)
from warpfrag.layout.coordinates import LANES
from warpfrag.sass.sass_instruction import (
    AddressOperand,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray


STRIDE = 16 * THREADS
"""The distance in bytes between a thread's groups of four words."""
INPUT_WORDS, PREDICATE_WORDS = 56, 8
SHARED_WORD = INPUT_WORDS + PREDICATE_WORDS
"""The word with the thread's offset in shared memory, followed by that offset + SHARED_BASE, SHARED_BASE, and 0."""
INDEX_WORD = SHARED_WORD + 4
"""The word with an offset into the constants."""
PARTNER_WORD, WARP_VOTE, BLOCK_VOTE = INDEX_WORD + 1, INDEX_WORD + 2, INDEX_WORD + 3
"""Words with a shared-memory address of a thread in another warp, and bits that are 0, 1 or mixed per warp or block."""
FIRST_RESULT = SHARED_WORD + 8
MAX_RESULTS = 1016
BRANCH_OVER_ONE, BRANCH_FIELDS = 4 << 16, 0xFF << 16 | ((1 << 48) - 1) << 34
BODY = 1900
"""The number of instructions that fit into a template's body."""
CONTROL = ((1 << 21) - 1) << 105
STALL, NO_BARRIER, ALL_BARRIERS = 13, 7, 0x3F
IMMEDIATES = 1600
"""The number of immediates, some of them equal, that are tried for an instruction that reads nothing else."""
DELAY, MATRIX_DELAY = 6, 16
"""The number of NOPs after a probe whose opcode has a fixed latency: usually, and for matrix opcodes."""
NOP = 0x7918
MOV, MOV_UNIFORM, UMOV, R2UR = (
    0xF00 << 64 | 0x7202,
    0x8000F00 << 64 | 0x7C02,
    0x8000000 << 64 | 0x7C82,
    0xE0000 << 64 | 0x72CA,
)
LDG, STG, LDS, STS = 0xC1E1900 << 64 | 0x7981, 0xC101900 << 64 | 0x7986, 0x800 << 64 | 0x7984, 0x800 << 64 | 0x7388
ISETP_NE, UISETP_NE = 0x3F05270 << 64 | 0xFF0000720C, 0xBF05270 << 64 | 0x3F0000728C
MOV_IMMEDIATE, ALL_LANES = 0xF00 << 64 | 0x7802, 0xFFFFFFFF
ARRIVES, SYNCS = 0x2000 << 64, 0x10000 << 64
BLOCK_BARRIER = SYNCS | 0x7B1D
"""The fields of BAR.ARV and BAR.SYNC."""
B2R_COUNT, B2R_VOTE, VOTE = 0xE4000 << 64 | 0x731C, 0x4000 << 64 | 0xFF0000 | 0x731C, "P0"
"""Instructions that read the result of BAR.RED into a register and into P0, and the name of that predicate."""
GUARD, UNUSED = 0xF << 12, 247
SEL, USEL = 0x1FF007807, 0x8000000 << 64 | 0x13F007887  # 0 if the predicate is true, else 1


class CodeWriter:
    """The body of a kernel."""

    def __init__(self, prologue: Template) -> None:
        """Start with copies of the thread's address and the memory descriptor from the prologue's registers."""
        self.code: list[int] = []
        self.next_result = FIRST_RESULT
        for _ in range(4):
            self.add(NOP)
        for step in range(2):
            self.add(MOV | ADDRESS + step << 16 | prologue.address + step << 32)
            self.add(UMOV | DESCRIPTOR + step << 16 | prologue.descriptor + step << 32)

    def add(self, encoding: int, write: int = NO_BARRIER, read: int = NO_BARRIER) -> None:
        """Append an instruction that waits for all earlier ones."""
        control = STALL | write << 5 | read << 8 | ALL_BARRIERS << 11
        self.code.append(encoding & ~CONTROL | control << 105)

    def load(self, register: int, word: int) -> None:
        """Load one of the thread's words into a register."""
        self.add(LDG | register << 16 | ADDRESS << 24 | DESCRIPTOR << 32 | offset_of(word) << 40, write=0)

    def store(self, register: int) -> int:
        """Store a register as the thread's next result, and return its word."""
        word = self.next_result
        self.next_result += 1
        self.add(STG | ADDRESS << 24 | register << 32 | offset_of(word) << 40 | DESCRIPTOR << 64, read=1)
        return word

    def load_named(self, name: str, word: int) -> None:
        """Load a word into any register; a predicate is true if the word is not 0."""
        file, index = split_name(name)
        if file == "R":
            self.load(index, word)
            return
        self.load(SCRATCH, word)
        if file == "P":
            self.add(ISETP_NE | SCRATCH << 24 | index << 81)
        elif file == "UR":
            self.add(R2UR | index << 16 | SCRATCH << 24)
        else:
            self.add(R2UR | UNIFORM_SCRATCH << 16 | SCRATCH << 24)
            self.add(NOP)
            self.add(UISETP_NE | UNIFORM_SCRATCH << 24 | index << 81)

    def store_named(self, name: str) -> int:
        """Store any register."""
        file, index = split_name(name)
        if file == "R":
            return self.store(index)
        if file == "P":
            self.add(SEL | SCRATCH << 16 | index << 87)
        elif file == "UR":
            self.add(MOV_UNIFORM | SCRATCH << 16 | index << 32)
        else:
            self.add(USEL | UNIFORM_SCRATCH << 16 | index << 87)
            self.add(NOP)
            self.add(MOV_UNIFORM | SCRATCH << 16 | UNIFORM_SCRATCH << 32)
        return self.store(SCRATCH)

    def probe(self, probe: Probe, number: int) -> tuple[int, ...]:
        """Append a probe, and return the words with its results."""
        encoding = probe.inst.encoding
        cell: list[int] = []
        for name in probe.reads:
            self.load_named(name, input_word(name, number))
        if probe.address is not None:
            self.next_result += -self.next_result % 4
            cell = [self.next_result + step for step in range(4)]
            self.next_result += 4
            encoding = self.set_address(probe, encoding, cell)
        constant = constant_of(probe.inst)
        if constant is not None and constant.base is not None:
            self.load_named(f"{constant.base.file}{constant.base.index}", INDEX_WORD)
        if any(name.startswith("U") for name in probe.reads) or constant is not None:
            for _ in range(2):  # uniform registers take longer to arrive than a stall can wait
                self.add(NOP)
        if is_control(probe.inst):
            return self.control(probe, number)
        barrier = encoding >> 110 & 7
        if probe.address is not None and probe.writes:  # an atomic whose result ptxas does not need sets no barrier
            barrier = 0
        self.add(encoding, barrier, encoding >> 113 & 7)
        for _ in range(MATRIX_DELAY if "MMA" in probe.inst.opcode else DELAY):
            self.add(NOP)
        words = [self.store_named(name) for name in probe.writes]
        if probe.address is not None and probe.inst.opcode in SHARED_OPCODES:
            words += self.shared_cell_words()
            cell = []
        return (*words, *cell)

    def control(self, probe: Probe, number: int) -> tuple[int, ...]:
        """Append a barrier, or a branch of whole warps, and return the words with its results."""
        if probe.inst.opcode == "BAR":
            return self.block_barrier(probe, number)
        if probe.inst.opcode == "BRA":
            return self.branch_over(probe)
        for name in probe.reads:
            self.add(MOV_IMMEDIATE | split_name(name)[1] << 16 | ALL_LANES << 32)
        encoding, is_branch = probe.inst.encoding, "COLLECTIVE" in probe.inst.modifiers
        self.add(encoding & ~BRANCH_FIELDS | BRANCH_OVER_ONE if is_branch else encoding)
        self.add(NOP)
        return tuple(self.store_named(name) for name in probe.writes)

    def block_barrier(self, probe: Probe, number: int) -> tuple[int, ...]:
        """Append a barrier of all threads between a store and a load from another warp's cell; return the result words.

        Threads that arrive without waiting wait at the same barrier afterwards.
        """
        inst, size = probe.inst, LANES_LAYOUT[1]
        is_arrival = "ARV" in inst.modifiers
        self.load(SCRATCH, SHARED_WORD + 1)
        self.load(SCRATCH + 1, number % INPUT_WORDS)
        self.add(STS | SCRATCH << 24 | SCRATCH + 1 << 32, read=1)
        for index, shift in (barrier_registers(inst) or {}).items():
            count = size << (1 if is_arrival else 0)
            value = 1 + number % 15 if shift < 0 else count << shift | (1 + number % 15 if shift else 0)
            self.add(MOV_IMMEDIATE | index << 16 | value << 32)
        for name in probe.reads:
            if name[0] == "P" and "POPC" not in inst.modifiers:  # few random votes are all true or all false
                self.load_named(name, BLOCK_VOTE)
        self.add(inst.encoding)
        if is_arrival:
            self.add(inst.encoding & ~ARRIVES | SYNCS)
        words = []
        if "RED" in inst.modifiers:
            is_count = "POPC" in inst.modifiers
            self.add(B2R_COUNT | SCRATCH << 16 if is_count else B2R_VOTE, write=0)
            words.append(self.store(SCRATCH) if is_count else self.store_named(VOTE))
        self.load(SCRATCH, PARTNER_WORD)
        self.add(LDS | SCRATCH << 16 | SCRATCH << 24, write=0)
        words.append(self.store(SCRATCH))
        self.add(BLOCK_BARRIER)  # before the next store to this cell
        return tuple(words)

    def branch_over(self, probe: Probe) -> tuple[int, ...]:
        """Append a branch over a move of another word, and return the word with its result."""
        encoding = probe.inst.encoding
        self.load(SCRATCH, 0)
        self.load(SCRATCH + 1, 1)
        if probe.reads == ("P0",):
            self.load(UNUSED, WARP_VOTE)
            self.add(ISETP_NE | UNUSED << 24)
            encoding &= ~GUARD
        self.add(encoding & ~BRANCH_FIELDS | BRANCH_OVER_ONE)
        self.add(MOV | SCRATCH << 16 | SCRATCH + 1 << 32)
        return (self.store(SCRATCH),)

    def set_address(self, probe: Probe, encoding: int, cell: list[int]) -> int:
        """Set the registers of an address to a thread's cell in global memory, or in shared memory after filling it."""
        address = probe.address
        if address is None:
            raise NoProbe("no address")
        is_global, offset = probe.inst.opcode not in SHARED_OPCODES, 0
        if is_uniform_global(probe.inst, address) and address.uniform is not None:
            for step in range(2):
                self.add(R2UR | address.uniform.index + step << 16 | ADDRESS + step << 24)
            self.add(NOP)
            return encoding & ~(0xFFFFFF << 40) | offset_of(cell[0]) << 40
        if is_global and address.base is not None:
            offset = offset_of(cell[0])
            for step in range(2):
                self.add(MOV | address.base.index + step << 16 | ADDRESS + step << 32)
                if address.descriptor is not None:
                    self.add(UMOV | address.descriptor.index + step << 16 | DESCRIPTOR + step << 32)
            if address.uniform is not None:  # a uniform offset, which the immediate compensates
                offset -= SHARED_BASE
                self.load_named(f"UR{address.uniform.index}", SHARED_WORD + 2)
                self.load_named(f"UR{address.uniform.index + 1}", SHARED_WORD + 3)
            self.add(NOP)
            is_long = probe.inst.opcode in {"LD", "ST"} and address.descriptor is address.uniform is None
            field, mask = (32, 0xFFFFFFFF) if is_long else (40, 0xFFFFFF)
            return encoding & ~(mask << field) | (offset & mask) << field
        self.load(SCRATCH, SHARED_WORD + 1)
        for step in range(4):
            self.load(SCRATCH + 1, cell[step])
            self.add(STS | SCRATCH << 24 | SCRATCH + 1 << 32 | 4 * step << 40, read=1)
        if address.uniform is not None and address.base is not None and not address.base.is_constant:
            self.load_named(f"R{address.base.index}", SHARED_WORD)
            self.load_named(f"UR{address.uniform.index}", SHARED_WORD + 2)
        elif address.uniform is not None:
            self.load_named(f"UR{address.uniform.index}", SHARED_WORD + 1)
        elif address.base is not None:
            self.load_named(f"R{address.base.index}", SHARED_WORD + 1)
        self.add(NOP)
        return encoding & ~(0xFFFFFF << 40)

    def shared_cell_words(self) -> list[int]:
        """Store the thread's cell in shared memory."""
        words = []
        for step in range(4):
            self.load(SCRATCH, SHARED_WORD + 1)
            self.add(LDS | SCRATCH << 16 | SCRATCH << 24 | 4 * step << 40, write=0)
            words.append(self.store(SCRATCH))
        return words


def offset_of(word: int) -> int:
    """Return the offset of a thread's word."""
    return word // 4 * STRIDE + word % 4 * 4


def input_word(name: str, number: int) -> int:
    """Return the input word for a register of a probe; register pairs get pairs of words."""
    file, index = split_name(name)
    if file in {"P", "UP"}:
        return INPUT_WORDS + (index + number) % PREDICATE_WORDS
    return (index + 2 * number + (28 if file == "UR" else 0)) % INPUT_WORDS


# --- kernels


class Template(NamedTuple):
    """A kernel from ptxas whose instructions from `first` to `last` are replaced.

    `address` and `descriptor` are the registers that its first load uses; `start` is the file offset of its code.
    """

    cubin: bytes
    start: int
    first: int
    last: int
    address: int
    descriptor: int


@cache
def template() -> Template:
    """Return the template, which uses 254 registers and 16 barriers and has at least BODY instructions to replace."""
    lines = [
        ".version 8.0", f".target {ARCH}", ".address_size 64",
        f".visible .entry k(.param .u64 data, .param .align 4 .b8 words[{CONSTANT_BYTES}])", "{",
        ".reg .b32 %r<250>, %thread, %block, %size;", ".reg .b64 %data, %at;", "ld.param.u64 %data, [data];",
        "mov.u32 %thread, %tid.x;", "mov.u32 %block, %ctaid.x;", "mov.u32 %size, %ntid.x;",
        "mad.lo.u32 %thread, %block, %size, %thread;", f"mul.wide.u32 %at, %thread, {CELL_BYTES};",
        "add.u64 %data, %data, %at;",
        *(f"ld.volatile.global.u32 %r{index}, [%data+{4096 * index}];" for index in range(242)),
        *(f"st.volatile.global.u32 [%data+{4096 * (at % 1900)}], %r{at % 242};" for at in range(BODY - 242)),
        "barrier.sync %r0, %r1;", "ret;", "}", "",
    ]  # fmt: skip
    module = assemble("\n".join(lines), ARCH)
    code = module.decode("k")
    first = next(number for number, inst in enumerate(code) if inst.opcode == "LDG")
    last = next(number for number, inst in enumerate(code) if inst.opcode == "EXIT")
    address = code[first].operands[1]
    if not isinstance(address, AddressOperand) or address.base is None or address.descriptor is None:
        raise RuntimeError(f"unexpected code in the template: {code[first].text}")
    cubin = module.cubin.data
    start = cubin.index(module.cubin["k"].code.data)
    return Template(cubin, start, first, last, address.base.index, address.descriptor.index)


def kernels_of(probes: Iterable[Probe]) -> Iterator[ProbeKernel]:
    """Yield kernels for all probes, each with as many probes as fit."""
    by_layout: dict[tuple[int, int], list[Probe]] = {}
    for probe in probes:
        by_layout.setdefault(probe.layout, []).append(probe)
    for layout, group in by_layout.items():
        rest = group
        while rest:
            kernel = kernel_of(rest, layout)
            yield kernel
            rest = rest[len(kernel.probes) :]


def kernel_of(probes: Sequence[Probe], layout: tuple[int, int]) -> ProbeKernel:
    """Return a kernel with the first probes that fit."""
    prologue = template()
    writer = CodeWriter(prologue)
    words: list[tuple[int, ...]] = []
    code: list[int] = []
    for number, probe in enumerate(probes):
        left = writer.probe(probe, number)
        if len(writer.code) > prologue.last - prologue.first or writer.next_result > MAX_RESULTS:
            break
        words.append(left)
        code = list(writer.code)
    if not words:
        raise NoProbe(f"{probes[0].inst.text} does not fit a kernel")
    code += [NOP | (STALL | NO_BARRIER << 5 | NO_BARRIER << 8) << 105] * (prologue.last - prologue.first - len(code))
    data = b"".join(encoding.to_bytes(16, "little") for encoding in code)
    at = prologue.start + 16 * prologue.first
    cubin = prologue.cubin[:at] + data + prologue.cubin[at + len(data) :]
    return ProbeKernel(cubin, tuple(probes[: len(words)]), tuple(words), layout)


@cache
def given_data() -> NDArray[np.uint32]:
    """Return the memory before a launch, [groups of four words, thread, word], which is the same for all kernels.

    Register pairs get the low and the high word of the same 64-bit number.
    """
    groups = MAX_RESULTS // 4 + 1
    data = random_bytes(90, groups * STRIDE).view(np.uint32).reshape(groups, THREADS, 4).copy()
    for word in range(PREDICATE_WORDS):
        at = INPUT_WORDS + word
        data[at // 4, :, at % 4] &= 1
    return data


def arguments_of(kernel: ProbeKernel) -> tuple[NDArray[np.uint32], bytes]:
    """Return the memory and the constants of a launch; offsets in shared memory depend on the block."""
    data = given_data().copy()
    offsets = np.arange(THREADS, dtype=np.uint32) % kernel.layout[1] * CELL_BYTES
    group = data[SHARED_WORD // 4]
    group[:, 0], group[:, 1], group[:, 2], group[:, 3] = offsets, offsets + SHARED_BASE, SHARED_BASE, 0
    group = data[INDEX_WORD // 4]
    threads = np.arange(THREADS)
    group[:, PARTNER_WORD % 4] = (offsets + SHARED_BASE) ^ LANES * CELL_BYTES
    for word, size in ((WARP_VOTE, LANES), (BLOCK_VOTE, LANES_LAYOUT[1])):
        group[:, word % 4] = np.choose(threads // size % 3, [0, 1, threads % 2])
    group[:, 0] = threads % (CONSTANT_BYTES // CELL_BYTES - 1) * 8
    return data, random_bytes(91, CONSTANT_BYTES).tobytes()


def left_by(kernel: ProbeKernel, data: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """Return the results of each probe, [word, thread]."""
    return [np.array([data[word // 4, :, word % 4] for word in words], np.uint32) for words in kernel.words]


def with_immediates(probe: Probe) -> tuple[Probe, ...]:
    """Return variants of a probe without register sources, with many other 32-bit immediates."""
    given = given_data()[0, :IMMEDIATES, :2].reshape(-1)[::2]
    without = probe.inst.encoding & ~(0xFFFFFFFF << 32)
    return tuple(
        probe._replace(inst=replace(probe.inst, encoding=without | int(value) << 32)) for value in np.unique(given)
    )
