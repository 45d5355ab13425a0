"""What the arithmetic tests share: forms, the twins, and codes worth trying."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import fast, reference
from warpfrag.formats import FORMATS
from warpfrag.isa.words import Form, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.arithmetic import Plan

TWINS: dict[str, Callable[..., Any]] = {"reference": reference.matmul, "fast": fast.matmul}


def instruction(op: str, shape: str, types: str, **qualifiers: Any) -> Form:
    """`instruction("mma", "m16n8k16", "f32.f16.f16.f32")`: the types are D, A, B, C, as PTX writes them."""
    d, a, b, c = types.split(".")
    return Form(op, Shape.parse(shape), d=d, a=a, b=b, c=c, **qualifiers)


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


def operand_shapes(plan: Plan, rows: int, columns: int, instructions: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Format and shape of each operand of a product of a few instructions in K."""
    depth = plan.k * instructions
    stored = plan.stored * instructions
    shapes = {
        "a": (plan.a, (1, rows, stored)),
        "b": (plan.b, (1, depth, columns)),
        "c": (plan.c, (1, rows, columns)),
    }
    if plan.scales:
        shapes["scale_a"] = (plan.scale_type, (1, rows, plan.scales * instructions))
        shapes["scale_b"] = (plan.scale_type, (1, plan.scales * instructions, columns))
    return shapes


def stored_columns(plan: Plan, choices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logical columns of a sparse A from random numbers of A's shape: any legal positions, rising or not."""
    places = np.arange(choices.shape[-1])
    if plan.a == "tf32":
        return (2 * places + choices % 2).astype(np.int32)
    pair = np.array([(x, y) for x in range(4) for y in range(4) if x != y])
    if plan.a in ("s4", "u4"):
        field = pair[choices[..., ::4] % 12]
        positions = np.repeat(field, 2, axis=-1).reshape(choices.shape)
        return (8 * (places // 4) + 2 * positions + places % 2).astype(np.int32)
    field = pair[choices[..., ::2] % 12]
    return (4 * (places // 2) + field.reshape(choices.shape)).astype(np.int32)
