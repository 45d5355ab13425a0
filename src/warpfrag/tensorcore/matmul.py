"""Matrix products of codes: D = matmul(rule, A, B, C), bit for bit as `reference` computes it, on all cores.

    A [T, M, K], B [T, K, N], C [T, M, N]: T tiles, all codes

K may be any multiple of the instruction's K: the D of one instruction is the C of the next, k ascending. So the same
function runs a batch of instructions (K equal to the instruction's) and a whole matrix product (T = 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import InvalidOperand
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import KernelSelector, kernel_selector
from warpfrag.tensorcore.schedule import check_threads, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.tensorcore.rules import Rule

    Codes = NDArray[Any]


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
    """D's codes [T, M, N] from the codes of A, B and C.

    A sparse rule takes `a` [T, M, K/2] and `columns` [T, M, K/2], the logical column of each stored element, as
    `sparsity.logical_columns` gives them: each in its chunk, no two the same. A
    block-scaled rule takes `scale_a` [T, M, s] and `scale_b` [T, s, N]. `threads` is at most the cores by default;
    the result does not depend on it. What BLAS computes has BLAS's threads besides: `backends.integer_sums`.
    """
    return multiply(kernel_selector(rule), ProductOperands(a, b, c, columns, scale_a, scale_b), threads)


def multiply(selector: KernelSelector, operands: ProductOperands, threads: int | None) -> Codes:
    """Check the operands, and multiply by the kernels of a selector."""
    check_threads(threads)
    check_operands(selector.rule, operands)
    return run_product(selector, operands, threads)


def run_product(selector: KernelSelector, operands: ProductOperands, threads: int | None) -> Codes:
    """Multiply operands that are known to fit together."""
    rule = selector.rule
    code_type = code_dtype(FORMATS[rule.d])
    if operands.c.size == 0:
        return np.empty(operands.c.shape, code_type)
    return run(selector.kernel(operands), operands, threads, rule.k).astype(code_type, copy=False)


def check_operands(rule: Rule, operands: ProductOperands) -> None:
    """Refuse operands that do not fit together; the elements themselves are taken as they are."""
    a, b, c, columns, scale_a, scale_b = operands
    for name, codes in (("a", a), ("b", b), ("c", c)):
        if codes.ndim != 3 or codes.dtype.kind != "u":
            msg = f"{name} must be unsigned codes [tile, row, column], got {codes.dtype} of shape {codes.shape}"
            raise InvalidOperand(msg)
    tiles, depth, width = b.shape
    height = c.shape[1]
    stored = depth // 2 if rule.is_sparse else depth
    if a.shape != (tiles, height, stored) or c.shape != (tiles, height, width):
        msg = f"a {a.shape}, b {b.shape} and c {c.shape} do not fit: expected a ({tiles}, {height}, {stored})"
        raise InvalidOperand(msg)
    if depth == 0 or depth % rule.k:
        msg = f"K must be a multiple of the instruction's {rule.k}, got {depth}"
        raise InvalidOperand(msg)
    if depth != rule.k and rule.c != rule.d:
        msg = f"K = {depth} needs D as the next C, but C is {rule.c} and D is {rule.d}; only K = {rule.k} is possible"
        raise InvalidOperand(msg)
    if rule.is_sparse != (columns is not None) or (columns is not None and columns.shape != a.shape):
        msg = "a sparse rule takes columns of the shape of a" if rule.is_sparse else "a dense rule takes no columns"
        raise InvalidOperand(msg)
    if columns is not None:
        _check_columns(columns)
    scales = rule.scales * (depth // rule.k)
    for name, scale, expected in (
        ("scale_a", scale_a, (tiles, height, scales)),
        ("scale_b", scale_b, (tiles, scales, width)),
    ):
        shape = None if scale is None else scale.shape
        if shape != (expected if rule.scales else None):
            msg = f"{name}: expected {'shape ' + str(expected) if rule.scales else 'none'}, got {shape}"
            raise InvalidOperand(msg)


def _check_columns(columns: Codes) -> None:
    """Refuse columns that lie nowhere near their elements: whatever the pattern, four elements share eight columns."""
    astray = columns >> 3 != np.arange(columns.shape[-1], dtype=np.int32) >> 2
    if astray.any():
        tile, row, place = (int(index) for index in np.argwhere(astray)[0])
        first = 8 * (place // 4)
        msg = (
            f"columns: stored element {place} of row {row}, tile {tile}, is from one of the columns {first} to "
            f"{first + 7}; got {columns[tile, row, place]}"
        )
        raise InvalidOperand(msg)
