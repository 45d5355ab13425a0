"""Matrix products of codes: D = matmul(rule, A, B, C), bit for bit as `reference` computes it, on all cores.

    A [T, M, K], B [T, K, N], C [T, M, N]: T tiles, all codes

K may be any multiple of the instruction's K: the D of one instruction is the C of the next, k ascending. The same
function therefore runs a batch of instructions (K equal to the instruction's) and a whole gemm (T = 1).
"""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import Array
from warpfrag.formats.codes import code_dtype, from_codes
from warpfrag.formats.number_formats import FORMATS, Rounding
from warpfrag.isa.qualifiers import Form
from warpfrag.tensorcore.array_types import MatrixLike, Scaled
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.backends import KernelSelector, kernel_selector
from warpfrag.tensorcore.resolved_instruction import batch_of, resolve_form, tiles_of
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.sparsity import compress_to_columns
from warpfrag.tensorcore.thread_split import check_threads, run


def matmul(
    rule: Rule,
    a: Codes,
    b: Codes,
    c: Codes,
    *,
    columns: Codes | None = None,
    scale_a: Codes | None = None,
    scale_b: Codes | None = None,
    threads: int | None = None,
) -> Codes:
    """Return D's codes [T, M, N] from the codes of A, B and C.

    A sparse rule takes `a` [T, M, K/2] and `columns` [T, M, K/2], the logical column of each stored element, as
    returned by `sparsity.logical_columns`: within its chunk, without duplicates. A block-scaled rule takes `scale_a`
    [T, M, s] and `scale_b` [T, s, N]. `threads` defaults to at most one per core; the result does not depend on it.
    BLAS uses its own number of threads: see `backends.portable`.
    """
    return multiply(kernel_selector(rule), ProductOperands(a, b, c, columns, scale_a, scale_b), threads)


def multiply(selector: KernelSelector, operands: ProductOperands, threads: int | None) -> Codes:
    """Multiply operands that have been checked, using a selector's kernels."""
    check_threads(threads)
    code_type = code_dtype(FORMATS[selector.rule.d])
    if operands.c.size == 0:
        return np.empty(operands.c.shape, code_type)
    return run(selector.kernel(operands), operands, threads, selector.rule.k).astype(code_type, copy=False)


def multiply_matrices(
    form: Form,
    A: MatrixLike | Scaled,
    B: MatrixLike | Scaled,
    C: ArrayLike | None = None,
    *,
    arch: str = "sm_90",
    raw: bool = False,
    rounding: Rounding = None,
    threads: int | None = None,
) -> Array:
    """Return D for matrices of the instruction's shape. No registers are involved, so wmma works on all architectures.

    A sparse instruction takes the full, pruned A; a block-scaled one takes A and B as `Scaled` matrices.
    """
    resolved = resolve_form(form, arch)
    operands = resolved.operands
    matrices: dict[str, Any] = {"a": A, "b": B, "c": C}
    extra: dict[str, NDArray[Any]] = {}
    for role in "ab":
        matrix, name = matrices[role], f"scale_{role}"
        if isinstance(matrix, Scaled) != (name in operands):
            advice = (
                "needs {}: pass Scaled(matrix, scales)" if name in operands else "takes no {}: pass the matrix alone"
            )
            raise InvalidOperand(f"{resolved.name} {advice.format(name)}")
        if isinstance(matrix, Scaled):
            matrices[role], scales = matrix
            extra[name] = operands[name].codes(cast("ArrayLike", scales), raw=raw, rounding=rounding)
    codes: dict[str, NDArray[Any]] = {
        role: operands[role].codes(matrix, raw=raw, rounding=rounding)
        for role, matrix in matrices.items()
        if (matrix is not None or role != "c") and not (role == "a" and operands.a.pattern)
    }
    if operands.a.pattern is not None:
        full = operands.a.full_codes(matrices["a"], raw=raw, rounding=rounding)
        codes["a"], extra["columns"] = compress_to_columns(operands.a.pattern, full)
    axes = len(operands.d.shape)
    batch = batch_of([o.shape[:-axes] for o in codes.values()] + [e.shape[:-2] for e in extra.values()])
    # the four tiles of m8n8k4 become a batch
    tiled = {role: tiles_of(o, batch, axes).reshape(-1, *o.shape[-2:]) for role, o in codes.items()}
    if C is None:
        shape = (len(tiled["a"]), tiled["a"].shape[1], tiled["b"].shape[2])
        tiled["c"] = np.zeros(shape, code_dtype(operands.c.format))
    extra = {role: tiles_of(array, batch, 2) for role, array in extra.items()}
    d = multiply(resolved.kernels, ProductOperands(**tiled, **extra), threads).reshape(*batch, *operands.d.shape)
    return d if raw else from_codes(operands.d.format, d)
