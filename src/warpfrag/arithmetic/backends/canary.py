"""The canary: two small tiles whose codes depend on the floating-point environment, against the reference.

LLVM does not promise that float operations stay between two changes of the rounding mode. If a new version moved one
of them, or a machine kept another mode than it was told, codes would be wrong without a sign. So every kind of
compiled kernel computes these tiles first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import reference
from warpfrag.arithmetic.protocol import Operands
from warpfrag.arithmetic.schedule import run_split
from warpfrag.numerics.formats import FORMATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.arithmetic.protocol import Kernel
    from warpfrag.arithmetic.rules import Rule

TILES, ROWS, COLUMNS = 2, 5, 21
"""More rows than a strip, and columns for vector code and for what it leaves over."""


def passes(kernel: Kernel, rule: Rule, *, split: bool) -> bool:
    """Whether a kernel computes what the reference does."""
    operands = operands_of(rule)
    found = run_split(kernel, operands, threads=1) if split else kernel.run_whole(operands)
    return np.array_equal(found, reference.matmul(rule, operands))


def operands_of(rule: Rule) -> Operands:
    """Operands of every sign with full significands near 1; in one tile a row and a column of small subnormals.

    And a very large C, so that loops that have a part for exponents near the ends of the range run it for that tile.
    """
    random = np.random.default_rng(7)

    def draw(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        row = FORMATS[name]
        kind = np.dtype(f"uint{max(8, row.bits)}")
        if not row.is_float:
            return random.integers(0, row.codes, shape, dtype=np.uint64).astype(kind)
        exponent = np.clip(row.bias + random.integers(-3, 4, shape), 0, (1 << row.exponent) - 2).astype(np.uint64)
        fraction = random.integers(0, 1 << row.fraction, shape, dtype=np.uint64)
        sign = random.integers(0, 2, shape, dtype=np.uint64) * np.uint64(row.sign_bit)
        codes = (exponent << np.uint64(row.fraction) | fraction) << np.uint64(row.unused) | sign
        return codes.astype(kind)

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
        return Operands(a, b, c, columns)
    return Operands(
        a,
        b,
        c,
        columns,
        draw(rule.scale_format, (TILES, ROWS, rule.scales)),
        draw(rule.scale_format, (TILES, rule.scales, COLUMNS)),
    )
