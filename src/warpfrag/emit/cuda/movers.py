"""CUDA C++ for ldmatrix, stmatrix and movmatrix by themselves: a wrapper, and a kernel that shows what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.cuda.text import DEVICE, Extra, Variable, assembly, function, kernel, loop
from warpfrag.emit.statement import raw_name, registers

if TYPE_CHECKING:
    from warpfrag.instruction import Instruction

# An address of shared memory, and a generic one: constraint, operand, C++ type, and that of this lane's line.
ADDRESS = (
    ("l", "address", "const void*", "lines + threadIdx.x * 4"),
    ("r", "address", "uint32_t", "static_cast<uint32_t>(__cvta_generic_to_shared(lines + threadIdx.x * 4))"),
)


def mover(instruction: Instruction) -> list[str]:
    """Everything for one mover."""
    every = {role: Variable(role, operand, role) for role, operand in registers(instruction).items()}
    address = None if instruction.op == "movmatrix" else Extra(*ADDRESS[instruction.form.space != ""][:2])
    outputs = [every["d"]] if "d" in every else []
    inputs = [every["a"]] if "a" in every else []
    parameters = [variable.parameter(const=variable in inputs) for variable in (*outputs, *inputs)]
    if address:
        parameters.append(f"{ADDRESS[instruction.form.space != ''][2]} address")
    lines = []
    given = instruction.addresses
    if given is not None:
        who = "Every lane gives" if given.lanes == 32 else f"Lanes 0 to {given.lanes - 1} give"
        rest = "" if given.lanes == 32 else "; the others give any valid one"
        which = "shared memory" if instruction.form.space else "generic"
        lines.append(f"// {who} the {which} address of a {given.dims[1]}, 16 bytes{rest}.")
    wrapper = f"{DEVICE} void {instruction.op}({', '.join(parameters)})"
    lines += function(wrapper, assembly(instruction, outputs, inputs, address=address))
    return lines + _kernel(instruction, every)


def _kernel(instruction: Instruction, every: dict[str, Variable]) -> list[str]:
    """d and a are the registers, uint32[32][words], or the 16 bytes to which each lane points, uint32[32][4]."""
    line = ADDRESS[instruction.form.space != ""][3]
    body = [f"uint32_t fragment_{role}[{variable.count}];" for role, variable in every.items()]
    if instruction.op != "movmatrix":
        body.append("__shared__ __align__(16) uint32_t lines[128];")
    if "a" in every:
        count = every["a"].count
        body += loop(count, [f"fragment_a[i] = a[threadIdx.x * {count} + i];"])
    else:
        body += loop(4, ["lines[threadIdx.x * 4 + i] = a[threadIdx.x * 4 + i];"])
        body.append("__syncwarp();")
    if instruction.op == "movmatrix":
        body.append("movmatrix(fragment_d, fragment_a);")
    elif instruction.op == "ldmatrix":
        body.append(f"ldmatrix(fragment_d, {line});")
    else:
        body += loop(4, ["lines[threadIdx.x * 4 + i] = d[threadIdx.x * 4 + i];"])
        body += ["__syncwarp();", f"stmatrix(fragment_a, {line});", "__syncwarp();"]
    if "d" in every:
        count = every["d"].count
        body += loop(count, [f"d[threadIdx.x * {count} + i] = fragment_d[i];"])
    else:
        body += loop(4, ["d[threadIdx.x * 4 + i] = lines[threadIdx.x * 4 + i];"])
    moves = {
        "ldmatrix": "a: the 16 bytes to which each lane points, uint32[32][4]; d: registers, uint32[32][words].",
        "stmatrix": "a: registers, uint32[32][words]; d: the 16 bytes to which each lane points, uint32[32][4].",
        "movmatrix": "a and d: registers, uint32[32].",
    }
    parameters = ["uint32_t* d", "const uint32_t* a"]
    return [f"// {moves[instruction.op]} Launch one warp.", *kernel(raw_name(instruction), parameters, body)]
