"""Helpers of the arithmetic tests: forms, both implementations, and interesting codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_table import forms
from warpfrag.isa.qualifiers import Form, Shape
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends.compiled import BLOCK, FUSED_LAYOUT, Compiled, FusedJob
from warpfrag.tensorcore.backends.portable import Portable
from warpfrag.tensorcore.rules import IntegerSum

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.tensorcore.backend_protocol import Backend
    from warpfrag.tensorcore.rules import Rule


def compiled_by(backend: Backend, rule: Rule) -> Any:
    """The kernel of a rule; integers have no compiled loops, and NumPy's instead."""
    return (Portable() if isinstance(rule, IntegerSum) else backend).compile(rule)


def _twin(backend: Backend) -> Callable[..., Any]:
    """A backend as a function of a rule and operands."""

    def run(rule: Rule, *operands: Any, **named: Any) -> Any:
        codes = compiled_by(backend, rule).run_whole(ProductOperands(*operands, **named))
        return codes.astype(code_type(rule.d))

    return run


TWINS: dict[str, Callable[..., Any]] = {
    "reference": lambda rule, *operands, **named: reference.matmul(rule, ProductOperands(*operands, **named)),
    "portable": _twin(Portable()),
    "compiled": _twin(Compiled()),
}


def prepared_job(rule: Rule, operands: ProductOperands) -> FusedJob:
    """A product of the fused loops, with its first tile prepared."""
    job = FusedJob(Compiled().compile(rule).load(operands))
    for task in job.prepare(0, 1):
        task()
    return job


def groups_of_b(job: FusedJob) -> tuple[Any, Any]:
    """The groups of B in a job's memory, by line and column, and the bytes of groups that short steps read."""
    arguments, memory = job.arguments, job.tile[-1]
    (_, stored), (depth, width) = arguments.a.shape[1:], arguments.b.shape[1:]
    layout, products = np.empty(3, np.int64), int(arguments.numbers[13])
    FUSED_LAYOUT.run(layout, arguments.numbers, *job.out.shape[1:], stored, depth)
    lines = 1 + -(-(depth * products // stored) // 32)
    count = -(-width // BLOCK) * (stored // products) * lines * BLOCK
    first = -memory.ctypes.data % 64 + int(layout[1])
    groups = memory[first : first + 4 * count].view(np.int32).reshape(-1, lines, BLOCK)
    return groups, memory[-memory.ctypes.data % 64 + int(layout[2]) :]


def rule_of(form: Form, arch: str) -> Rule:
    """The rule that a form follows on an architecture."""
    return plan(form, arch).rule


def instruction(op: str, shape: str, types: str, **qualifiers: Any) -> Form:
    """`instruction("mma", "m16n8k16", "f32.f16.f16.f32")`: the types are D, A, B, C, as PTX writes them."""
    words = {"satfinite": False, "kind": "", "scale_vec": "", "rounding": "", "bitop": "", **qualifiers}
    words |= dict(zip("dabc", types.split("."), strict=True), op=op, shape=Shape.parse(shape))
    return next(form for form in forms() if all(getattr(form, name) == word for name, word in words.items()))


def code_type(name: str) -> type[np.unsignedinteger[Any]]:
    """The array type of a format's codes."""
    bits = FORMATS[name].bits
    return {16: np.uint16, 32: np.uint32, 64: np.uint64}.get(bits, np.uint8)


def notable_codes(name: str) -> list[int]:
    """Zeros, ones, the ends of the range, subnormals, infinities, NaNs and neighbours of powers of two."""
    row = FORMATS[name]
    if not row.is_float:
        half = row.codes // 2
        return sorted({0, 1, half - 1, half, row.codes - 1})
    top = 1 << (row.exponent + row.fraction)
    one = row.bias << row.fraction
    step = 1 << row.fraction
    last = top - 1
    magnitudes = {0, 1, 2, step - 1, step, step + 1, one - step, one - 1, one, one + 1, one + step - 1, one + step}
    magnitudes |= {last, last - 1, last - step, last - step + 1, last - 2 * step + 1}
    kept = [magnitude << row.unused for magnitude in magnitudes if 0 <= magnitude < top]
    return sorted({code | sign for code in kept for sign in (0, row.sign_bit)})


def extreme_codes(name: str) -> list[int]:
    """The ends of a format and their neighbours: each distinguishes one overflow, underflow or carry from another."""
    row = FORMATS[name]
    if not row.is_float:
        return notable_codes(name)
    largest = row.encode(row.max)
    one = row.encode(1.0)
    step = 1 << (row.fraction + row.unused)
    magnitudes = {0, 1 << row.unused, step - (1 << row.unused), step, one, one + step, largest, largest - step}
    magnitudes |= {largest + (1 << row.unused), row.nan_code or 0}  # infinity, or a NaN, where there is one
    return sorted(
        {code | sign for code in magnitudes if code < (row.sign_bit or row.codes) for sign in (0, row.sign_bit)}
    )


def operand_shapes(rule: Rule, rows: int, columns: int, instructions: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Format and shape of each operand of a product of a few instructions in K."""
    depth = rule.k * instructions
    stored = rule.stored * instructions
    shapes = {
        "a": (rule.a, (1, rows, stored)),
        "b": (rule.b, (1, depth, columns)),
        "c": (rule.c, (1, rows, columns)),
    }
    if rule.scales:
        shapes["scale_a"] = (rule.scale_format, (1, rows, rule.scales * instructions))
        shapes["scale_b"] = (rule.scale_format, (1, rule.scales * instructions, columns))
    return shapes


def stored_columns(rule: Rule, choices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logical columns of a sparse A from random numbers of A's shape: any legal positions, rising or not."""
    places = np.arange(choices.shape[-1])
    if rule.a == "tf32":
        return (2 * places + choices % 2).astype(np.int32)
    pair = np.array([(x, y) for x in range(4) for y in range(4) if x != y])
    if rule.a in ("s4", "u4"):
        field = pair[choices[..., ::4] % 12]
        positions = np.repeat(field, 2, axis=-1).reshape(choices.shape)
        return (8 * (places // 4) + 2 * positions + places % 2).astype(np.int32)
    field = pair[choices[..., ::2] % 12]
    return (4 * (places // 2) + field.reshape(choices.shape)).astype(np.int32)
