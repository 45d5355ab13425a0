"""Code as a list of simple operations on registers, which CUDA and PTX write alike.

Every operation is a row of `SPELLINGS`: how each language writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Language = Literal["cuda", "ptx"]


class Spelling(NamedTuple):
    """One operation in each language; {0} is the result, {1}, {2}, ... the operands."""

    cuda: str
    ptx: str


SPELLINGS = {
    "and": Spelling("{0} = {1} & {2:#x};", "and.b32 {0}, {1}, {2:#x};"),
    "or": Spelling("{0} = {1} | {2};", "or.b32 {0}, {1}, {2};"),
    "xor": Spelling("{0} = {1} ^ {2};", "xor.b32 {0}, {1}, {2};"),
    "shl": Spelling("{0} = {1} << {2};", "shl.b32 {0}, {1}, {2};"),
    "shr": Spelling("{0} = {1} >> {2};", "shr.u32 {0}, {1}, {2};"),
    "add": Spelling("{0} = {1} + {2};", "add.u32 {0}, {1}, {2};"),
    "mad": Spelling("{0} = {1} * {2} + {3};", "mad.lo.u32 {0}, {1}, {2}, {3};"),
    "popc": Spelling("{0} = __popc({1});", "popc.b32 {0}, {1};"),
    "prmt": Spelling("{0} = __byte_perm({1}, {2}, {3:#06x});", "prmt.b32 {0}, {1}, {2}, {3:#06x};"),
    "select": Spelling(
        "{0} = {3} ? {1} : {2};", "{{ .reg .pred p; setp.ne.b32 p, {3}, 0; selp.b32 {0}, {1}, {2}, p; }}"
    ),
    "shfl": Spelling("{0} = __shfl_sync(0xffffffff, {1}, {2});", "shfl.sync.idx.b32 {0}, {1}, {2}, 31, 0xffffffff;"),
    "bfly": Spelling(
        "{0} = __shfl_xor_sync(0xffffffff, {1}, {2});", "shfl.sync.bfly.b32 {0}, {1}, {2}, 31, 0xffffffff;"
    ),
    "movmatrix": Spelling(
        'asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"({0}) : "r"({1}));',
        "movmatrix.sync.aligned.m8n8.trans.b16 {0}, {1};",
    ),
    # conversions: {1} is the instruction; of a pair the upper element comes first
    "cvt pair to word": Spelling('asm("{1} %0, %1, %2;" : "=r"({0}) : "r"({2}), "r"({3}));', "{1} {0}, {2}, {3};"),
    "cvt pair to half": Spelling(
        'asm("{{ .reg .b16 h; {1} h, %1, %2; cvt.u32.u16 %0, h; }}" : "=r"({0}) : "r"({2}), "r"({3}));',
        "{{ .reg .b16 h; {1} h, {2}, {3}; cvt.u32.u16 {0}, h; }}",
    ),
    "cvt word to half": Spelling(
        'asm("{{ .reg .b16 h; {1} h, %1; cvt.u32.u16 %0, h; }}" : "=r"({0}) : "r"({2}));',
        "{{ .reg .b16 h; {1} h, {2}; cvt.u32.u16 {0}, h; }}",
    ),
    "cvt": Spelling('asm("{1} %0, %1;" : "=r"({0}) : "r"({2}));', "{1} {0}, {2};"),
    "cvt low half": Spelling(
        'asm("{{ .reg .b16 l, h; mov.b32 {{l, h}}, %1; {1} %0, l; }}" : "=r"({0}) : "r"({2}));',
        "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; {1} {0}, l; }}",
    ),
    "cvt high half": Spelling(
        'asm("{{ .reg .b16 l, h; mov.b32 {{l, h}}, %1; {1} %0, h; }}" : "=r"({0}) : "r"({2}));',
        "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; {1} {0}, h; }}",
    ),
}


class Operation(NamedTuple):
    """One operation: what it is called above, its result, its operands."""

    name: str
    result: str
    operands: tuple[str | int, ...]


class Operations:
    """Operations in order; every result is a register of its own, and what was done before is not done again."""

    def __init__(self, register: Callable[[int], str], lane: str) -> None:
        """`register` names the registers that are made, `lane` holds the number of the lane."""
        self.operations: list[Operation] = []
        self.lane = lane
        self._register = register
        self._done: dict[tuple[str, tuple[str | int, ...]], str] = {}

    def do(self, name: str, *operands: str | int) -> str:
        """Add an operation, unless it was done before; the register that holds its result."""
        key = name, operands
        if key not in self._done:
            self._done[key] = self._register(len(self._done))
            self.operations.append(Operation(name, self._done[key], operands))
        return self._done[key]

    @property
    def uses_lane(self) -> bool:
        """Whether anything depends on the number of the lane."""
        return any(self.lane in operation.operands for operation in self.operations)


CUDA_LANE = '    uint32_t lane; asm("mov.u32 %0, %laneid;" : "=r"(lane));'
CUDA_THREAD = "    uint32_t thread = threadIdx.x % 128;"
PTX_LANE = ("    .reg .b32 %lane;", "    mov.u32 %lane, %laneid;")
PTX_THREAD = ("    .reg .b32 %thread;", "    mov.u32 %thread, %tid.x;", "    and.b32 %thread, %thread, 127;")
"""Which thread it is: in its warp, or in its warpgroup."""


def written(operations: Iterable[Operation], lang: Language) -> Iterator[str]:
    """Operations as lines of a language."""
    for operation in operations:
        yield getattr(SPELLINGS[operation.name], lang).format(operation.result, *operation.operands)


def check_names(lang: str, name: str) -> None:
    """Refuse a language that there is not, and what cannot be the name of a function."""
    if not isinstance(lang, str) or lang not in get_args(Language):
        msg = f"lang is one of {', '.join(get_args(Language))}, got {quote(lang)}"
        raise InvalidOperand(msg)
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        msg = f"name is that of a function, such as relayout; got {quote(name)}"
        raise InvalidOperand(msg)
