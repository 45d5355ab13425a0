"""Pieces of CUDA C++: arrays that hold registers, inline assembly, functions and loops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpfrag.emission.statement import statement
from warpfrag.emission.strides import thread_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.execution.operand import Registers

# The C++ type and the constraint of inline assembly for the registers of each PTX type; packed elements are words.
C_TYPES = {".f32": ("float", "f"), ".f64": ("double", "d"), ".s32": ("int32_t", "r")}
WORD = ("uint32_t", "r")
DEVICE = "__device__ __forceinline__"  # inline, so that any number of files may include it


@dataclass(frozen=True)
class Variable:
    """The registers of one operand as a C++ array called `name`; `role` is what the statement calls the operand."""

    role: str
    operand: Registers
    name: str

    @property
    def c_type(self) -> str:
        """The element type of the array."""
        return C_TYPES.get(self.operand.ptx_type, WORD)[0]

    @property
    def constraint(self) -> str:
        """What inline assembly calls such a register."""
        return C_TYPES.get(self.operand.ptx_type, WORD)[1]

    @property
    def count(self) -> int:
        """How many registers."""
        return self.operand.regs

    def parameter(self, *, const: bool = True) -> str:
        """The array as a function takes it."""
        return f"{'const ' if const else ''}{self.c_type} (&{self.name})[{self.count}]"

    def constraints(self, prefix: str = "") -> str:
        """Every register as an operand of inline assembly."""
        return ", ".join(f'"{prefix}{self.constraint}"({self.name}[{reg}])' for reg in range(self.count))


@dataclass(frozen=True)
class Extra:
    """A further input of inline assembly: an address, a stride, an immediate."""

    constraint: str
    expression: str


def assembly(
    instruction: Instruction,
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    *,
    immediates: Sequence[Extra] = (),
    address: Extra | None = None,
    stride: Extra | None = None,
) -> list[str]:
    """The inline assembly of one instruction; operands are numbered in the order outputs, inputs, extras."""
    numbers = iter(range(1000))
    names = {variable.role: [f"%{next(numbers)}" for _ in range(variable.count)] for variable in (*outputs, *inputs)}
    extras = [*immediates, *(extra for extra in (address, stride) if extra)]
    places = [f"%{next(numbers)}" for _ in extras]
    memory = places[len(immediates) :]
    text = statement(
        instruction,
        names,
        places[: len(immediates)],
        address=memory[0] if address else "",
        stride=memory[1] if stride else "",
    )
    name, operands = text.split(" ", maxsplit=1)
    sources = [variable.constraints() for variable in inputs]
    if extras:
        sources.append(", ".join(f'"{extra.constraint}"({extra.expression})' for extra in extras))
    lines = [
        "asm volatile(",
        f'    "{name} "',
        f'    "{operands}"',
        "    : " + ",\n      ".join(variable.constraints("=") for variable in outputs),
        "    : " + ",\n      ".join(sources),
    ]
    if address:
        lines.append('    : "memory"')
    lines[-1] += ");"
    return [part.rstrip() for line in lines for part in line.split("\n")]


def thread_index(operand: Registers) -> str:
    """The declaration of `lane` or `thread`: which of the threads that hold an operand this one is."""
    return f"const int {thread_name(operand)} = threadIdx.x & {math.prod(operand.threads) - 1};"


def function(signature: str, body: Iterable[str]) -> list[str]:
    """A function with an indented body."""
    return [f"{signature} {{", *indented(body), "}", ""]


def kernel(name: str, parameters: Sequence[str], body: Iterable[str]) -> list[str]:
    """A kernel that a program finds by its plain name."""
    return function(f'extern "C" __global__ void {name}(\n    ' + ",\n    ".join(parameters) + ")", body)


def indented(lines: Iterable[str]) -> list[str]:
    """Lines moved four columns to the right; preprocessor lines and empty ones stay."""
    return [line if not line or line.startswith("#") else f"    {line}" for line in lines]


def loop(count: int, body: Iterable[str], index: str = "i") -> list[str]:
    """An unrolled loop: register arrays must be indexed by constants."""
    return ["#pragma unroll", f"for (int {index} = 0; {index} < {count}; ++{index}) {{", *indented(body), "}"]
