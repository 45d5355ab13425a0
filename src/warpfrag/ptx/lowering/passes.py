"""The passes that lower an entry to a program: `PASSES` lists them in order, and `lower` runs them.

Each pass has one job. An opcode is bound to its action only when the state spaces of its addresses are known, because
the action may depend on them. A check of the decoded program is a separate pass, after the pass whose result it reads.
Checks of a running kernel are requested with the option `checks` of `Kernel.launch`.
"""

from collections.abc import Callable
from typing import cast

from warpfrag.errors import PtxError, quote
from warpfrag.machine.ir import program
from warpfrag.machine.ir.actions import Branch, DirectCall, IndirectCall, Refused, Unbound
from warpfrag.machine.ir.state_spaces import SHARED_START, WINDOWS, StateSpace
from warpfrag.machine.ops.opcode_lookup import find, rebind
from warpfrag.ptx.lowering.contraction import contract
from warpfrag.ptx.lowering.operand_checks import check
from warpfrag.ptx.lowering.statements import KernelLowering
from warpfrag.ptx.lowering.storage import functions_of
from warpfrag.ptx.reader.syntax import ModuleSyntax

MAX_FRAMES = 512  # maximum supported recursion depth
FRAMES_BYTES = 64 * 1024  # the size of all frames in bytes, unless a single frame is larger
STACK_BYTES = 16 * 1024  # the size of the alloca stack in bytes
ACCESSES = {"ld", "ldu", "st", "atom", "red"}  # opcodes that may access a variable in a state space by name


def lower(source: ModuleSyntax, entry: str) -> program.Program:
    """Lower an entry, and all functions that it calls, to a program."""
    functions = functions_of(source)
    function = functions.get(entry)
    if function is None or not function.is_entry:
        names = ", ".join(function.name for function in source.functions if function.is_entry) or "none"
        raise PtxError(0, f"expected one of the entries ({names}), got {quote(entry)}")
    kernel = KernelLowering(source, functions, function)
    for run in PASSES:
        run(kernel)
    return program.Program(
        name=kernel.entry.name,
        target=kernel.source.target,
        instructions=kernel.instructions,
        registers=kernel.variables.bits,
        parameters=kernel.parameters,
        parameter_bytes=kernel.parameter_bytes,
        shared_bytes=kernel.variables.shared - SHARED_START,
        dynamic_start=kernel.dynamic_start,
        has_dynamic=kernel.variables.has_dynamic,
        local_bytes=kernel.local_bytes,
        frame=kernel.variables.frame,
        frame_bytes=kernel.variables.local,
        directives=kernel.entry.directives,
        variables=kernel.variables.values,
        leaders=kernel.leaders,
    )


def expand_indirect_calls(kernel: KernelLowering) -> None:
    """Expand each call by address to direct calls of the possible functions, each followed by a branch back."""
    for at, calls in kernel.indirect_calls:
        inst = kernel.instructions[at]
        for call in calls:
            inst.targets = (*inst.targets, len(kernel.instructions))
            back = program.DecodedInstruction(inst.line, find("bra", 1), targets=(at + 1,), text=inst.text)
            kernel.instructions += [call, back]


def resolve_state_spaces(kernel: KernelLowering) -> None:
    """Replace the generic space of an access to a variable with the variable's space; function parameters are local."""
    for at, inst in enumerate(kernel.instructions):
        if inst.row is None or "space" not in inst.row.modifiers:
            continue
        space = _resolved_space(inst, in_function=at >= kernel.entry_end)
        if space != inst.attributes.space:
            inst.opcode = rebind(inst.opcode, space)


def _resolved_space(inst: program.DecodedInstruction, *, in_function: bool) -> StateSpace:
    attributes = inst.attributes
    if attributes.opcode == "cvta" and not attributes.to_space:
        return "local" if attributes.space == "param" and in_function else attributes.space
    if attributes.opcode not in ACCESSES or not inst.sources:
        return attributes.space
    place = inst.sources[0]
    if not isinstance(place, program.MemoryOperand):
        return attributes.space
    if attributes.space == "generic" and place.space in WINDOWS:
        return cast("StateSpace", place.space)
    if attributes.space == "param" and (place.space == "local" or (place.base is not None and in_function)):
        return "local"
    return attributes.space


def bind_opcodes(kernel: KernelLowering) -> None:
    """Bind every opcode to its action; the operands of unsupported instructions are dropped."""
    for inst in kernel.instructions:
        if isinstance(inst.action, Unbound):
            inst.action = inst.opcode.action
            if isinstance(inst.action, Refused):
                inst.results = inst.sources = ()


def check_operands(kernel: KernelLowering) -> None:
    """Check that every instruction has the operands that its action takes (`operand_checks`)."""
    for inst in kernel.instructions:
        check(inst)


def link_targets(kernel: KernelLowering) -> None:
    """Replace labels and functions with instruction indices; blocks start at targets and after jumps."""
    for at, labels in kernel.branches:
        kernel.instructions[at].targets = tuple(label[0] for label in labels)
    kernel.leaders = {0}
    for at, inst in enumerate(kernel.instructions):
        if isinstance(inst.action, DirectCall):
            inst.targets = (kernel.called[inst.text][0],)
        if isinstance(inst.action, Branch | DirectCall | IndirectCall):
            kernel.leaders.update(inst.targets)
        if inst.action.ends_block:
            kernel.leaders.add(at + 1)


def save_frames(kernel: KernelLowering) -> None:
    """Make each call that may recurse save the caller's registers in a frame."""
    for inst, caller in kernel.recursive_calls:
        inst.saved_registers, inst.pushes_frame = tuple(kernel.variables.owned.get(caller, ())), True


def place_shared_memory(kernel: KernelLowering) -> None:
    """Put dynamic shared memory after the static variables, resolve its address, and initialise variables."""
    start = kernel.dynamic_start = kernel.variables.place_dynamic()

    def placed(operand: program.PtxOperand) -> program.PtxOperand:
        if isinstance(operand, program.MemoryOperand) and operand.space == "dynamic":
            return program.MemoryOperand(operand.base, operand.offset + 1 + start, "shared", operand.name)
        if isinstance(operand, program.VectorOperand):
            return program.VectorOperand(tuple(placed(element) for element in operand.items))
        return operand

    if kernel.variables.has_dynamic:
        for inst in kernel.instructions:
            inst.results = tuple(placed(result) for result in inst.results)
            inst.sources = tuple(placed(source) for source in inst.sources)
    kernel.variables.initialise()


def place_local_memory(kernel: KernelLowering) -> None:
    """Reserve local memory: a frame for each call of a recursive function, then the alloca stack."""
    variables, frames = kernel.variables, 1
    if any(inst.pushes_frame for inst in kernel.instructions):
        variables.local = max(16, -(-variables.local // 16) * 16)
        frames = max(16, min(MAX_FRAMES, FRAMES_BYTES // variables.local))
    kernel.local_bytes = frames * variables.local
    if kernel.allocates:
        start = -(-kernel.local_bytes // 16) * 16
        kernel.local_bytes = start + STACK_BYTES
        for inst in kernel.instructions:
            if inst.attributes.opcode == "alloca":
                inst.sources = (*inst.sources[:-1], program.Immediate(start))
            elif isinstance(inst.action, DirectCall) and inst.text in kernel.allocates:
                inst.saved_registers += (variables.stack,)  # returning frees what the function has allocated


def contract_products(kernel: KernelLowering) -> None:
    """Contract mul and add without a rounding mode to fma, as ptxas does except in debug modules."""
    if not kernel.source.is_debug:
        kernel.instructions = contract(kernel.instructions)


PASSES: tuple[Callable[[KernelLowering], None], ...] = (
    KernelLowering.lower, expand_indirect_calls, resolve_state_spaces, bind_opcodes, check_operands, link_targets,
    save_frames, place_shared_memory, place_local_memory, contract_products,
)  # fmt: skip
