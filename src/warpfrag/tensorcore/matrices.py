"""Products of matrices instead of registers: the arithmetic of an instruction without its lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import InvalidOperand
from warpfrag.formats.codes import code_dtype, from_codes
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.tensorcore.arithmetic import matmul, plan
from warpfrag.tensorcore.operand import operands_of
from warpfrag.tensorcore.prepared import batch_of, tiles_of
from warpfrag.tensorcore.sparsity import compress_to_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.formats.arrays import Array
    from warpfrag.formats.number_formats import Rounding
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.operand import Operand


def multiply_matrices(
    form: Form,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    arch: str = "sm_90",
    raw: bool = False,
    rounding: Rounding = None,
    threads: int | None = None,
) -> Array:
    """D of matrices. No registers are read, so wmma works on every architecture.

    A sparse instruction takes the full, pruned A; a block-scaled one the matrices of its scale factors.
    """
    wanted = arithmetic_arch(form, arch)
    operands = operands_of(form, wanted)
    a, extra = _full_a(operands.a, A, raw=raw, rounding=rounding)
    codes: dict[str, NDArray[Any]] = {"a": a, "b": operands.b.codes(B, raw=raw, rounding=rounding)}
    if C is not None:
        codes["c"] = operands.c.codes(C, raw=raw, rounding=rounding)
    for role, scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        if (scales is not None) != (role in operands):
            msg = f"{spell(form)} {'needs' if scales is None else 'takes no'} {role}"
            raise InvalidOperand(msg)
        if scales is not None:
            extra[role] = operands[role].codes(scales, raw=raw, rounding=rounding)
    axes = len(operands.d.shape)
    batch = batch_of([o.shape[:-axes] for o in codes.values()] + [e.shape[:-2] for e in extra.values()])
    # the four products of m8n8k4 are four tiles
    tiled = {role: tiles_of(o, batch, axes).reshape(-1, *o.shape[-2:]) for role, o in codes.items()}
    if C is None:
        shape = (len(tiled["a"]), tiled["a"].shape[1], tiled["b"].shape[2])
        tiled["c"] = np.zeros(shape, code_dtype(operands.c.format))
    extra = {role: tiles_of(array, batch, 2) for role, array in extra.items()}
    d = matmul(plan(form, wanted).rule, **tiled, threads=threads, **extra).reshape(*batch, *operands.d.shape)
    return d if raw else from_codes(operands.d.format, d)


def _full_a(
    operand: Operand, A: ArrayLike, *, raw: bool, rounding: Rounding
) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Codes of A; of a sparse one the stored codes, and their logical columns."""
    if operand.pattern is None:
        return operand.codes(A, raw=raw, rounding=rounding), {}
    stored, columns = compress_to_columns(operand.pattern, operand.full_codes(A, raw=raw, rounding=rounding))
    return stored, {"columns": columns}
