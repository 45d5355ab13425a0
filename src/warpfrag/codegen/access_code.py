"""Access plans as code: a function of registers and of an address in shared memory, in CUDA C++ and in PTX.

In CUDA an address is written as a person would: a sum over parts of the lane, then the swizzle. In PTX the same sum is
made of register operations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from warpfrag.codegen import ptx_builder as ptx
from warpfrag.codegen.builder_operations import RegisterOperations
from warpfrag.codegen.cuda_builder import AsmOperand, CudaBuilder, InlineAssembly, RegisterArray
from warpfrag.codegen.languages import check_function_name, check_language
from warpfrag.codegen.ptx_builder import PtxBuilder
from warpfrag.codegen.spellings import THREAD_INDICES
from warpfrag.plans.addresses import address_sum, sum_expression, swizzle_expression
from warpfrag.smem.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT

if TYPE_CHECKING:
    from warpfrag.plans.access import Access, Direction
    from warpfrag.smem.shared_memory import Memory
    from warpfrag.tensorcore.operand import Operand

INCLUDE = "#include <cstdint>"  # what the code needs to compile alone
MOVMATRIX = "movmatrix.sync.aligned.m8n8.trans.b16"


class PrintablePlan(Protocol):
    """The part of an access plan that becomes code: accesses in order, and what is done to registers around them."""

    @property
    def operand(self) -> Operand:
        """The operand that is loaded or stored."""

    @property
    def memory(self) -> Memory:
        """How the matrix lies in shared memory."""

    @property
    def direction(self) -> Direction:
        """Whether it is loaded or stored."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The loads or stores."""

    @property
    def transposes(self) -> bool:
        """Whether movmatrix transposes every register, after a load or before a store."""

    @property
    def shift(self) -> int:
        """By how many bits every register is shifted left after it was loaded."""


def emit_access_plan(plan: PrintablePlan, *, lang: str, name: str) -> str:
    """An access plan as code: a device function in CUDA, a function in PTX."""
    write = WRITERS[check_language(lang), plan.direction]
    check_function_name(name)
    toward = "from" if plan.direction == "load" else "to"
    head = [
        *([INCLUDE, ""] if lang == "cuda" else []),
        f"// {plan.operand.role} of {plan.operand.instruction}, {toward} shared memory: {plan.memory.described}",
        f"// {plan}",
        *([f"// base is a multiple of {8 * plan.memory.swizzle}"] if plan.memory.swizzle else []),
    ]
    return "\n".join([*head, *write(plan, name)])


def _operand_text(access: Access, registers: list[str]) -> str:
    """The registers of an access, in braces where the instruction wants them."""
    is_vector = len(registers) > 1 or "matrix" in access.instruction
    return ptx.vector(registers) if is_vector else registers[0]


def _shift_of_slot(access: Access) -> int:
    """The bits below the element that an access of a single element moves; 0 for one of whole words."""
    return 8 * access.width * (access.slot or 0)


# ---- CUDA


def _cuda_function(plan: PrintablePlan, name: str, registers: RegisterArray, code: CudaBuilder) -> list[str]:
    code.start_with_index(THREAD_INDICES[math.prod(plan.operand.threads)])
    parameters = f"{registers.parameter(const=plan.direction == 'store')}, uint32_t base"
    return code.function(f"static __device__ __forceinline__ void {name}({parameters})")


def _cuda_address(code: CudaBuilder, plan: PrintablePlan, number: int, access: Access) -> str:
    address = f"at{number}"
    code.line(f"uint32_t {address} = {sum_expression(address_sum(access.addresses, plan.memory))};")
    if plan.memory.swizzle:
        code.line(f"{address} = {swizzle_expression(plan.memory, address)};")
    return address


def _cuda_movmatrix(result: str, source: str) -> str:
    movmatrix = InlineAssembly()
    (to,) = movmatrix.output(AsmOperand("=r", result))
    (word,) = movmatrix.input(AsmOperand("r", source))
    return movmatrix.statement(f"{MOVMATRIX} {to}, {word};")


def _cuda_load(plan: PrintablePlan, name: str) -> list[str]:
    code = CudaBuilder()
    out = RegisterArray("out", plan.operand.words)
    for number, access in enumerate(plan.accesses):
        address = _cuda_address(code, plan, number, access)
        load = InlineAssembly(memory=True)
        targets = [out.elements[word] for word in access.words] if access.slot is None else [f"e{number}"]
        registers = _operand_text(access, load.output(*(AsmOperand("=r", target) for target in targets)))
        (place,) = load.input(AsmOperand("r", address))
        text = load.statement(f"{access.instruction} {registers}, [{place}];")
        if access.slot is None:
            code.line(text)
            continue
        (word,) = access.words
        code.line(f"uint32_t e{number}; {text}")
        shift = _shift_of_slot(access)
        code.line(f"out[{word}] |= e{number} << {shift};" if shift else f"out[{word}] = e{number};")
    if plan.transposes:
        code.line(*(_cuda_movmatrix(word, word) for word in out.elements))
    if plan.shift:
        code.line(*(f"{word} <<= {plan.shift};" for word in out.elements))
    return _cuda_function(plan, name, out, code)


def _cuda_store(plan: PrintablePlan, name: str) -> list[str]:
    code = CudaBuilder()
    held = RegisterArray("in", plan.operand.words)
    state = held.elements
    if plan.transposes:
        code.line(*(f"uint32_t t{at}; {_cuda_movmatrix(f't{at}', word)}" for at, word in enumerate(state)))
        state = [f"t{at}" for at in range(len(state))]
    for number, access in enumerate(plan.accesses):
        address = _cuda_address(code, plan, number, access)
        words = [state[word] for word in access.words]
        if access.slot:
            words = [f"{words[0]} >> {_shift_of_slot(access)}"]
        store = InlineAssembly(memory=True)
        place, *numbers = store.input(*(AsmOperand("r", word) for word in (address, *words)))
        registers = _operand_text(access, numbers)
        code.line(store.statement(f"{access.instruction} [{place}], {registers};"))
    return _cuda_function(plan, name, held, code)


# ---- PTX


def _ptx_start(plan: PrintablePlan) -> tuple[PtxBuilder, RegisterOperations]:
    code = PtxBuilder()
    return code, RegisterOperations(code, THREAD_INDICES[math.prod(plan.operand.threads)])


def _ptx_load(plan: PrintablePlan, name: str) -> list[str]:
    code, operations = _ptx_start(plan)
    out = [f"%out{word}" for word in range(plan.operand.words)]
    for number, access in enumerate(plan.accesses):
        address = _ptx_address(operations, plan, access)
        words = [out[word] for word in access.words]
        if access.slot is None:
            code.emit(f"{access.instruction} {_operand_text(access, words)}, [{address}]")
            continue
        element, shift = f"%e{number}", _shift_of_slot(access)
        code.emit(f"{access.instruction} {element}, [{address}]")
        if shift:
            code.emit(f"mad.lo.u32 {words[0]}, {element}, {1 << shift:#x}, {words[0]}")
        else:
            code.emit(f"mov.b32 {words[0]}, {element}")
    for word in out if plan.transposes else ():
        code.emit(f"{MOVMATRIX} {word}, {word}")
    for word in out if plan.shift else ():
        code.emit(f"shl.b32 {word}, {word}, {plan.shift}")
    operations.finish()
    if any(access.slot is not None for access in plan.accesses):
        code.declare_range("e", len(plan.accesses))
    outputs = {f"out{word}": ".b32" for word in range(plan.operand.words)}
    return code.function(ptx.signature(name, {"base": ".b32"}, outputs, separator=" "))


def _ptx_store(plan: PrintablePlan, name: str) -> list[str]:
    code, operations = _ptx_start(plan)
    state = [f"%in{word}" for word in range(plan.operand.words)]
    if plan.transposes:
        state = [operations.do("collective", MOVMATRIX, word) for word in state]
    for access in plan.accesses:
        address = _ptx_address(operations, plan, access)
        words = [state[word] for word in access.words]
        if access.slot:
            words = [operations.do("shr", words[0], _shift_of_slot(access))]
        code.emit(f"{access.instruction} [{address}], {_operand_text(access, words)}")
    operations.finish()
    inputs = {f"in{word}": ".b32" for word in range(plan.operand.words)}
    return code.function(ptx.signature(name, {**inputs, "base": ".b32"}, separator=" "))


def _ptx_address(operations: RegisterOperations, plan: PrintablePlan, access: Access) -> str:
    """The register with the address that this thread gives."""
    origin, terms = address_sum(access.addresses, plan.memory)
    address = operations.do("add", "%base", origin) if origin else "%base"
    for term in terms:
        part = operations.do("shr", operations.thread, term.low) if term.low else operations.thread
        if term.is_masked:
            part = operations.do("and", part, (1 << term.bits) - 1)
        address = operations.do("mad", part, term.stride, address)
    if not plan.memory.swizzle:
        return address
    row = operations.do("shr", address, ROW_OF_UNITS.bit_length() - 1)
    if plan.memory.base_offset:
        row = operations.do("add", row, -plan.memory.base_offset)
    low_bits = operations.do("and", row, (1 << SWIZZLES[plan.memory.swizzle]) - 1)
    return operations.do("xor", address, operations.do("shl", low_bits, UNIT.bit_length() - 1))


WRITERS = {
    ("cuda", "load"): _cuda_load,
    ("cuda", "store"): _cuda_store,
    ("ptx", "load"): _ptx_load,
    ("ptx", "store"): _ptx_store,
}
