"""The canary: two small tiles whose codes depend on rounding and subnormals, compared with the reference.

A GPU is used only after its kernels have computed these tiles correctly. Tests run them on every compiled kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.formats.random_codes import random_codes
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.backend_protocol import ProductKernel, ProductOperands
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.schedule import run_split

TILES, ROWS, COLUMNS = 2, 5, 21
"""Enough rows for more than one strip, and enough columns for the vector code and its remainder."""


def passes(kernel: ProductKernel, rule: Rule, *, split: bool) -> bool:
    """Return True if a kernel computes the same codes as the reference."""
    operands = operands_of(rule)
    codes = run_split(kernel, operands, threads=1) if split else kernel.run_whole(operands)
    return np.array_equal(codes, reference.matmul(rule, operands))


def operands_of(rule: Rule) -> ProductOperands:
    """Return operands of both signs with full significands near 1.

    The second tile has a row and a column of small subnormals and a very large C, to exercise special cases for extreme
    exponents.
    """
    random = np.random.default_rng(7)

    def draw(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        fmt = FORMATS[name]
        return random_codes(fmt, "narrow" if fmt.is_float else "plain", shape, random).astype(code_dtype(fmt))

    a, b = draw(rule.a, (TILES, ROWS, rule.stored)), draw(rule.b, (TILES, rule.k, COLUMNS))
    c = draw(rule.c, (TILES, ROWS, COLUMNS))
    if FORMATS[rule.a].is_float:
        a[-1, -1], c[-1, -1] = 1 << FORMATS[rule.a].unused, 3
        c[-1, 0, 0] = FORMATS[rule.c].encode(FORMATS[rule.c].max / 2)
        b[-1, :, -1] = 3 << FORMATS[rule.b].unused
    columns = None
    if rule.is_sparse:
        places = np.arange(rule.stored, dtype=np.int32)
        first = 2 * places if rule.k == 2 * rule.stored and rule.a == "tf32" else 4 * (places // 2) + places % 2
        columns = np.broadcast_to(first, a.shape).copy()
    if not rule.scales:
        return ProductOperands(a, b, c, columns)
    return ProductOperands(
        a,
        b,
        c,
        columns,
        draw(rule.scale_format, (TILES, ROWS, rule.scales)),
        draw(rule.scale_format, (TILES, rule.scales, COLUMNS)),
    )
