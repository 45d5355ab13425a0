"""Whole products: the codes that a kernel built from one instruction gives for any M, N and K.

Each output is its own chain: the D of one instruction is the C of the next, k ascending. Edges are padded with zeros,
as a kernel pads its last tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import matmul, plan
from warpfrag.arrays import as_array
from warpfrag.codes import code_dtype, codes_of, from_codes
from warpfrag.errors import IllegalInstruction, InvalidOperand
from warpfrag.isa.legality import arithmetic_arch, form_of
from warpfrag.isa.names import spell
from warpfrag.operand import operands_of
from warpfrag.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.arrays import Array
    from warpfrag.formats import Rounding
    from warpfrag.isa.words import Form, HasForm
    from warpfrag.operand import Registers


def gemm(
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    instruction: str | HasForm,
    arch: str = "sm_90",
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    raw: bool = False,
    rounding: Rounding = None,
    threads: int | None = None,
) -> Array:
    """D = A B + C for A of M x K and B of K x N, as a kernel of that instruction computes it, on all cores.

    Arrays are taken as `Operand.pack` takes them; C=None is zero. A sparse instruction takes the full, pruned A. A
    block-scaled one takes scale factors (M, blocks) and (blocks, N), one block for each run of K that shares a scale.
    Refused where C and D have different formats: such an instruction cannot be chained.
    """
    form = form_of(instruction)
    wanted = arithmetic_arch(form, arch)
    if form.c != form.d:
        raise IllegalInstruction(spell(form), f"it cannot be chained along k: D is {form.d} but C is {form.c}")
    operands = operands_of(form, wanted)
    a = _codes(operands["a"], A, "A", raw=raw, rounding=rounding)
    b = _codes(operands["b"], B, "B", raw=raw, rounding=rounding)
    if a.shape[1] != b.shape[0]:
        msg = f"A is {a.shape[0]} x {a.shape[1]} and B is {b.shape[0]} x {b.shape[1]}: the inner extents differ"
        raise InvalidOperand(msg)
    rows, columns = a.shape[0], b.shape[1]
    if C is None:
        c = np.zeros((rows, columns), code_dtype(operands["c"].format))
    else:
        c = _codes(operands["c"], C, "C", raw=raw, rounding=rounding)
    if c.shape != (rows, columns):
        msg = f"C is {c.shape[0]} x {c.shape[1]}, expected {rows} x {columns}"
        raise InvalidOperand(msg)
    depth = a.shape[1]
    padding = max(1, -(-depth // form.shape.k)) * form.shape.k - depth
    if padding:
        a, b = np.pad(a, ((0, 0), (0, padding))), np.pad(b, ((0, padding), (0, 0)))
    extra: dict[str, Any] = {}
    rule = operands.a.pattern
    if rule is not None:
        a, fields = compress(rule, a)
        extra["columns"] = logical_columns(rule, fields)[None]
    if form.block_scale or scale_a is not None or scale_b is not None:
        extra |= _scales(form, scale_a, scale_b, (rows, depth, columns), raw=raw, rounding=rounding)
    codes = matmul(plan(form, wanted).rule, a[None], b[None], c[None], threads=threads, **extra)[0]
    return codes if raw else from_codes(operands["d"].format, codes)


def _codes(operand: Registers, array: ArrayLike, what: str, *, raw: bool, rounding: Rounding) -> NDArray[Any]:
    """Codes of a matrix of any extents."""
    matrix = as_array(array, what)
    if matrix.ndim != 2:
        msg = f"{what}: expected a matrix, got an array of shape {matrix.shape}"
        raise InvalidOperand(msg)
    return codes_of(operand.format, matrix, raw=raw, rounding=rounding, what=what)


def _scales(
    form: Form,
    scale_a: ArrayLike | None,
    scale_b: ArrayLike | None,
    extents: tuple[int, int, int],
    *,
    raw: bool,
    rounding: Rounding,
) -> dict[str, NDArray[Any]]:
    """Scale codes for every step; blocks that only padding reaches get the scale 1."""
    if not form.block_scale:
        msg = f"{spell(form)} takes no scale_a and no scale_b"
        raise InvalidOperand(msg)
    if scale_a is None or scale_b is None:
        msg = f"{spell(form)} needs scale_a and scale_b"
        raise InvalidOperand(msg)
    operands = operands_of(form, "")
    rows, depth, columns = extents
    per_step = operands["scale_a"].shape[1]
    blocks = max(1, -(-depth // form.shape.k)) * per_step
    needed = -(-depth // (form.shape.k // per_step))  # the others are reached by padding only
    one = operands["scale_a"].format.encode(1.0)
    found = {}
    for axis, (operand, scales, what) in enumerate(
        [(operands["scale_a"], scale_a, "scale_a"), (operands["scale_b"], scale_b, "scale_b")]
    ):
        codes = _codes(operand, scales, what, raw=raw, rounding=rounding)
        outer, given = (codes.shape[0], codes.shape[1]) if axis == 0 else (codes.shape[1], codes.shape[0])
        if outer != (rows, columns)[axis] or not needed <= given <= blocks:
            shape = (rows, needed) if axis == 0 else (needed, columns)
            msg = f"{what}: expected shape {shape}, got {codes.shape}"
            raise InvalidOperand(msg)
        padding = ((0, 0), (0, blocks - given)) if axis == 0 else ((0, blocks - given), (0, 0))
        found[what] = np.pad(codes, padding, constant_values=one)[None]
    return found
