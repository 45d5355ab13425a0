"""Loads and stores as code: a function of registers and of an address in shared memory, in CUDA and in PTX.

In CUDA an address is written as a person would: a sum over parts of the lane, then the swizzle. In PTX the same sum is
made of `operations`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from warpfrag.memory.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT
from warpfrag.motion.addresses import address_sum, sum_expression, swizzle_expression, thread_name
from warpfrag.motion.code_operations import (
    CUDA_LANE,
    CUDA_THREAD,
    PTX_LANE,
    PTX_THREAD,
    Operations,
    check_names,
    written,
)

if TYPE_CHECKING:
    from warpfrag.execution.operand import Operand
    from warpfrag.memory.shared_memory import Memory
    from warpfrag.motion.access import Access, Direction

MOVMATRIX = "movmatrix.sync.aligned.m8n8.trans.b16"


class Way(Protocol):
    """What is printed: accesses in order, and whether movmatrix goes with them."""

    @property
    def operand(self) -> Operand:
        """What is loaded or stored."""

    @property
    def memory(self) -> Memory:
        """How it lies in shared memory."""

    @property
    def direction(self) -> Direction:
        """Whether it is loaded or stored."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The loads or stores."""

    @property
    def transposes(self) -> bool:
        """Whether every register is transposed."""

    @property
    def shift(self) -> int:
        """By how many bits every register is shifted after it was loaded."""


def emit_way(way: Way, *, lang: str, name: str) -> str:
    """A way as code: a device function in CUDA, a function in PTX."""
    check_names(lang, name)
    toward = "from" if way.direction == "load" else "to"
    head = [
        f"// {way.operand.role} of {way.operand.instruction}, {toward} shared memory: {way.memory.described}",
        f"// {way}",
        *([f"// base is a multiple of {8 * way.memory.swizzle}"] if way.memory.swizzle else []),
    ]
    return "\n".join([*head, *(_cuda if lang == "cuda" else _ptx)(way, name), ""])


def _is_load(way: Way) -> bool:
    return way.direction == "load"


def _in_warp(way: Way) -> bool:
    return len(way.operand.threads) == 1


def _listed(access: Access, registers: list[str]) -> str:
    """The registers of an access, in braces where the instruction wants them."""
    joined = ", ".join(registers)
    return f"{{{joined}}}" if len(registers) > 1 or "matrix" in access.instruction else joined


# ---- CUDA


def _cuda(way: Way, name: str) -> list[str]:
    words = way.operand.words
    given = f"uint32_t (&out)[{words}]" if _is_load(way) else f"const uint32_t (&in)[{words}]"
    body = _cuda_load(way) if _is_load(way) else _cuda_store(way)
    signature = f"static __device__ __forceinline__ void {name}({given}, uint32_t base) {{"
    return [signature, CUDA_LANE if _in_warp(way) else CUDA_THREAD, *(f"    {line}" for line in body), "}"]


def _cuda_address(way: Way, number: int, access: Access) -> list[str]:
    address = f"at{number}"
    lines = [f"uint32_t {address} = {sum_expression(address_sum(access.addresses, way.memory))};"]
    return [*lines, f"{address} = {swizzle_expression(way.memory, address)};"] if way.memory.swizzle else lines


def _cuda_load(way: Way) -> list[str]:
    lines: list[str] = []
    for number, access in enumerate(way.accesses):
        lines += _cuda_address(way, number, access)
        if access.slot is not None:
            (word,) = access.words
            shift = 8 * access.width * access.slot
            found = f'"=r"(e{number}) : "r"(at{number}) : "memory"'
            lines.append(f'uint32_t e{number}; asm volatile("{access.instruction} %0, [%1];" : {found});')
            lines.append(f"out[{word}] |= e{number} << {shift};" if shift else f"out[{word}] = e{number};")
            continue
        registers = _listed(access, [f"%{place}" for place in range(len(access.words))])
        outputs = ", ".join(f'"=r"(out[{word}])' for word in access.words)
        lines.append(
            f'asm volatile("{access.instruction} {registers}, [%{len(access.words)}];"'
            f' : {outputs} : "r"(at{number}) : "memory");'
        )
    if way.transposes:
        lines += [
            f'asm volatile("{MOVMATRIX} %0, %1;" : "=r"(out[{word}]) : "r"(out[{word}]));'
            for word in range(way.operand.words)
        ]
    if way.shift:
        lines += [f"out[{word}] <<= {way.shift};" for word in range(way.operand.words)]
    return lines


def _cuda_store(way: Way) -> list[str]:
    lines: list[str] = []
    if way.transposes:
        lines = [
            f'uint32_t t{word}; asm volatile("{MOVMATRIX} %0, %1;" : "=r"(t{word}) : "r"(in[{word}]));'
            for word in range(way.operand.words)
        ]
    for number, access in enumerate(way.accesses):
        lines += _cuda_address(way, number, access)
        names = [f"t{word}" if way.transposes else f"in[{word}]" for word in access.words]
        if access.slot:
            names = [f"{names[0]} >> {8 * access.width * access.slot}"]
        registers = _listed(access, [f"%{place}" for place in range(1, len(names) + 1)])
        inputs = ", ".join(f'"r"({name})' for name in names)
        lines.append(
            f'asm volatile("{access.instruction} [%0], {registers};" : : "r"(at{number}), {inputs} : "memory");'
        )
    return lines


# ---- PTX


def _ptx(way: Way, name: str) -> list[str]:
    code = Operations("%t{}".format, f"%{thread_name(math.prod(way.operand.threads))}")
    done = 0
    body: list[str] = []

    def flush() -> None:
        """Write the operations that were added since."""
        nonlocal done
        body.extend(written(code.operations[done:], "ptx"))
        done = len(code.operations)

    load = _is_load(way)
    state = [f"%{'out' if load else 'in'}{word}" for word in range(way.operand.words)]
    if way.transposes and not load:
        state = [code.do("movmatrix", word) for word in state]
    for number, access in enumerate(way.accesses):
        address = _ptx_address(code, way, access)
        names = [state[word] for word in access.words]
        if access.slot and not load:
            names = [code.do("shr", names[0], 8 * access.width * access.slot)]
        flush()
        if access.slot is not None and load:
            body.append(f"{access.instruction} %e{number}, [{address}];")
            shift = 8 * access.width * access.slot
            body.append(
                f"mad.lo.u32 {names[0]}, %e{number}, {1 << shift:#x}, {names[0]};"
                if shift
                else f"mov.b32 {names[0]}, %e{number};"
            )
            continue
        listed = _listed(access, names)
        body.append(f"{access.instruction} {f'{listed}, [{address}]' if load else f'[{address}], {listed}'};")
    if way.transposes and load:
        body += [f"{MOVMATRIX} {word}, {word};" for word in state]
    if way.shift:
        body += [f"shl.b32 {word}, {word}, {way.shift};" for word in state]
    flush()
    registers = ", ".join(f".reg .b32 {'%out' if load else '%in'}{word}" for word in range(way.operand.words))
    signature = (
        f".func ({registers}) {name} (.reg .b32 %base)" if load else f".func {name} ({registers}, .reg .b32 %base)"
    )
    narrow = load and any(access.slot is not None for access in way.accesses)
    return [
        signature,
        "{",
        f"    .reg .b32 %t<{max(1, len(code.operations))}>;",
        *([f"    .reg .b32 %e<{len(way.accesses)}>;"] if narrow else []),
        *((PTX_LANE if _in_warp(way) else PTX_THREAD) if code.uses_lane else ()),
        *(f"    {line}" for line in body),
        "    ret;",
        "}",
    ]


def _ptx_address(code: Operations, way: Way, access: Access) -> str:
    """The operations that make an address; the register that holds it."""
    origin, terms = address_sum(access.addresses, way.memory)
    address = code.do("add", "%base", origin) if origin else "%base"
    for term in terms:
        part = code.do("shr", code.lane, term.low) if term.low else code.lane
        if term.is_masked:
            part = code.do("and", part, (1 << term.bits) - 1)
        address = code.do("mad", part, term.stride, address)
    if not way.memory.swizzle:
        return address
    row = code.do("shr", address, ROW_OF_UNITS.bit_length() - 1)
    if way.memory.base_offset:
        row = code.do("add", row, -way.memory.base_offset)
    unit = code.do("shl", code.do("and", row, (1 << SWIZZLES[way.memory.swizzle]) - 1), UNIT.bit_length() - 1)
    return code.do("xor", address, unit)
