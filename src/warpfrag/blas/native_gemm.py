"""The native backend: run the real instruction on a GPU's tensor cores.

The layouts of the operands determine how codes are gathered into registers. A warp then issues the instruction along K;
the D of each is the C of the next. The result is exact by construction, but only for the GPU's own architecture.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np

from warpfrag.errors import NotModelled
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.targets import targets
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.backends.device_kernel import (
    INT,
    THREADS,
    DeviceKernel,
    aligned,
    cupy,
    current_gpu,
    in_memory_of,
    on_device,
    struct,
)
from warpfrag.tensorcore.fragment import elements
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.resolved_instruction import ResolvedInstruction
from warpfrag.tensorcore.rules import Rule

Device = Any

WARPS = 4
DOWN, ACROSS = 2, 4
"""The numbers of output tiles per warp, down and across."""
CONSTRAINTS = {"f32": "f", "f64": "d"}
"""Constraint letters of inline PTX, by format; all other formats use 32-bit registers."""


FRAGMENT = aligned(height=INT, width=INT, slots=INT, bits=INT, low=INT, words=INT)
EXTENTS = aligned(height=INT, width=INT, down=INT, across=INT)


def _own_target() -> str:
    """Return the target of the GPU that CuPy uses."""
    capability = cupy().cuda.Device().compute_capability
    return next((name for name in (f"sm_{capability}a", f"sm_{capability}") if name in targets()), f"sm_{capability}")


class NativeKernel(DeviceKernel):
    """The GPU kernel for one instruction."""

    source = "native"
    bytes_per_element = 8.0

    def __init__(self, rule: Rule, form: Form, rows: dict[str, OperandBase]) -> None:
        """Store the instruction's form and its operands."""
        super().__init__(rule)
        self.form, self.rows = form, rows

    @cached_property
    def registers(self) -> dict[str, tuple[str, int]]:
        """The constraint letter and the number of registers of each operand."""
        kinds = {role: CONSTRAINTS.get(row.format.name, "r") for role, row in self.rows.items()}
        return {role: (kind, self.rows[role].words // (2 if kind == "d" else 1)) for role, kind in kinds.items()}

    def macros(self) -> dict[str, int | str]:
        """Return the C++ macros that define registers per fragment and tiles per warp."""
        types = {"f": "float", "d": "double", "r": "u32"}
        return {
            "REGISTERS_A": self.rows["a"].words,
            "REGISTERS_B": self.rows["b"].words,
            "REGISTERS_C": self.rows["d"].words,
            "REGISTER_A": types[self.registers["a"][0]],
            "REGISTER_C": types[self.registers["d"][0]],
            "DOWN": DOWN,
            "ACROSS": ACROSS,
            "WARPS": WARPS,
        }

    @property
    def prologue(self) -> str:
        """The C++ code that issues the instruction."""
        numbers = iter(range(sum(count for _, count in self.registers.values())))
        lists = {role: ", ".join(f"%{next(numbers)}" for _ in range(self.registers[role][1])) for role in "dab"}
        braced = ", ".join(f"{{{lists[role]}}}" for role in "dabd")
        outputs, *inputs = (
            [f'"{sign}{kind}"(({role.upper()})[{i}])' for i in range(count)]
            for role, sign in (("d", "+"), ("a", ""), ("b", ""))
            for kind, count in [self.registers[role]]
        )
        taken = ", ".join(name for side in inputs for name in side)
        issue = f'asm volatile("{spell(self.form)} {braced};" : {", ".join(outputs)} : {taken})'
        return f"#define ISSUE(D, A, B) {issue}\n"

    @cached_property
    def fragments(self) -> dict[str, tuple[np.ndarray[Any, Any], Device, Device]]:
        """The row and column of each element in the registers of each operand."""
        fragments = {}
        for role, operand in self.rows.items():
            row = operand.spec
            height, width = row.layout.shape
            down, across = (cupy().asarray(table.astype(np.int32)) for table in np.divmod(elements(row.layout), width))
            numbers = (height, width, row.layout.slots, row.container, row.low, operand.words)
            fragments[role] = (struct(FRAGMENT, *numbers), down, across)
        return fragments

    def pack(self, codes: Device, role: str, *, by_column: bool = False) -> tuple[Device, int, int]:
        """Pack codes into the registers of all fragments; return them with the number of fragments down and across."""
        fragment = self.fragments[role][0]
        tiles, height, width = codes.shape
        down, across = -(-height // int(fragment["height"])), -(-width // int(fragment["width"]))
        words = cupy().empty((tiles, down * across, 32 * int(fragment["words"])), np.uint32)
        sizes = (struct(EXTENTS, height, width, down, across), INT(by_column))
        grid = (-(-words[0].size // THREADS), tiles, 1)
        self.launch(f"pack{8 * codes.dtype.itemsize}", grid, THREADS, codes, *self.fragments[role], words, *sizes)
        return words, down, across

    def run(self, operands: ProductOperands) -> Device:
        """Return the codes of D = A B + C."""
        a, down, instructions = self.pack(operands.a, "a")
        b, _, across = self.pack(operands.b, "b", by_column=True)
        c, *_ = self.pack(operands.c, "c")
        d = cupy().empty_like(c)
        grid = (-(-across // (ACROSS * WARPS)), -(-down // DOWN), len(c))
        self.launch("native", grid, 32 * WARPS, a, b, c, d, INT(down), INT(across), INT(instructions))
        tiles, height, width = operands.c.shape
        out = cupy().empty(operands.c.shape, code_dtype(FORMATS[self.rule.d]))
        extents = struct(EXTENTS, height, width, down, across)
        grid = (-(-d[0].size // THREADS), tiles, 1)
        self.launch(f"unpack{8 * out.dtype.itemsize}", grid, THREADS, d, *self.fragments["d"], out, extents)
        return out


class TensorCores:
    """The tensor cores of the current GPU."""

    name = "native"
    on_gpu = True

    def __init__(self, resolved: ResolvedInstruction) -> None:
        """Create the device.

        Raise an error if this GPU cannot run the instruction, or if `NativeKernel` does not support it.
        """
        form, wanted, own = resolved.form, resolved.arch, _own_target()
        if targets()[own].arch != wanted:
            raise NotModelled(f"backend 'native': this GPU is {own}, not {wanted}; backend 'cuda' emulates it")
        rows = {role: resolved.operands[role] for role in "abcd"}
        why = (
            "is sparse" if form.operation.sparsity
            else "has scale factors" if form.block_scale
            else "has operands in shared memory" if any(row.storage != "warp" for row in rows.values())
            else "computes four tiles per warp" if any(len(row.shape) != 2 for row in rows.values())
            else ""
        )  # fmt: skip
        if why:
            raise NotModelled(f"backend 'native' runs a dense mma on registers, but {resolved.name} {why}; use 'cuda'")
        self.form, self.rows = form, rows

    def matmul(self, rule: Rule, operands: ProductOperands) -> Codes:
        """Return the codes of D = A B + C."""
        kernel = _kernel_of(rule, self.form, tuple(self.rows.items()), current_gpu())
        product = on_device(kernel, operands).astype(code_dtype(FORMATS[rule.d]), copy=False)
        return in_memory_of(product, operands)


@cache
def _kernel_of(rule: Rule, form: Form, rows: tuple[tuple[str, OperandBase], ...], _gpu: int) -> NativeKernel:
    return NativeKernel(rule, form, dict(rows))
