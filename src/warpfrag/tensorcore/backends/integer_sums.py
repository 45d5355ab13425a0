"""Integer gemms with NumPy's BLAS: exact, because every partial sum is an integer that float32 represents.

Products of two 8-bit integers are at most 2**14 (u8: 255 * 255), so a sum of 1024 of them (u8: 258) is at most 2**24,
in any order and with or without fused multiply-adds. K is split into parts of that length; the sums of the parts are
added as int32, which wraps like the tensor core. So s8 takes about as long as a float32 gemm in NumPy, without compiled
code. A BLAS that multiplies float32 with fewer bits would not be exact, so a gemm of the largest integers is checked
first; float64 is used if the check fails.

A rule that clamps does so once per instruction. If C and K are too small for a sum to reach 2**31, nothing is clamped
and K is split as above; otherwise K is split at every instruction.

BLAS chooses its own number of threads (OPENBLAS_NUM_THREADS, OMP_NUM_THREADS and similar variables).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.rules import IntegerSum
from warpfrag.tensorcore.thread_split import allocate

Floats = np.dtype[np.floating[Any]]

EXACT_BITS = {np.dtype(np.float32): 24, np.dtype(np.float64): 30}
"""For each dtype, the number of bits up to which sums are exact and fit int32."""
ROWS_AT_ONCE = 512
"""The number of rows whose sums fit in the cache."""
BYTE = 1 << 8
INT32_MAX = (1 << 31) - 1
INT32_MIN = -(1 << 31)


@cache
def exact_floats_of_blas() -> Floats:
    """Return the dtype in which BLAS multiplies integers exactly: float32, or float64 if float32 fails the check."""
    random = np.random.default_rng(5)
    depth = 1 << 10
    a, b = random.choice([-128, -127, 127], (8, depth)), random.choice([-128, -127, 127], (depth, 8))
    a[0], b[:, 0] = -128, -128  # gives the largest possible sum
    made = a.astype(np.float32) @ b.astype(np.float32)
    return np.dtype(np.float32 if np.array_equal(made, a @ b) else np.float64)


def largest_of(fmt: Format) -> int:
    """Return the largest magnitude of an integer format."""
    return fmt.codes // 2 if fmt.signed else fmt.codes - 1


def decode_into(numbers: NDArray[Any], fmt: Format, codes: Codes) -> None:
    """Decode codes into an array."""
    bits = codes.astype(np.uint8, copy=False)
    if fmt.codes < BYTE:
        bits = bits & np.uint8(fmt.codes - 1)
        if fmt.signed:
            half = np.uint8(fmt.codes // 2)
            bits ^= half
            bits -= half
    numbers[...] = bits.view(np.int8) if fmt.signed else bits


def with_zeros(stored: NDArray[Any], columns: Codes, depth: int) -> NDArray[Any]:
    """Return a sparse A expanded with zeros."""
    full = np.zeros((*stored.shape[:-1], depth), stored.dtype)
    np.put_along_axis(full, columns.astype(np.int64), stored, axis=-1)
    return full


def integer_sums(rule: IntegerSum, operands: ProductOperands) -> Codes:
    """Return the codes of D for the given tiles."""
    kind, formats = exact_floats_of_blas(), (FORMATS[rule.a], FORMATS[rule.b])
    depth, (*tiles, height, width) = operands.b.shape[-2], operands.c.shape
    stored, row_count = operands.a.shape[-1], min(height, ROWS_AT_ONCE)
    a_rows, b, products, parts = allocate(
        ((*tiles, row_count, stored), kind),
        (operands.b.shape, kind),
        ((*tiles, row_count, width), kind),
        ((*tiles, row_count, width), np.int32),
    )
    decode_into(b, formats[1], operands.b)
    total = operands.c.astype(np.uint32).view(np.int32)
    largest = largest_of(formats[0]) * largest_of(formats[1])
    clamps = rule.clamps and int(np.abs(total.astype(np.int64)).max(initial=0)) + depth * largest > INT32_MAX
    at_once = rule.k if clamps else (1 << EXACT_BITS[kind]) // largest
    for first_row in range(0, height, ROWS_AT_ONCE):
        rows = slice(first_row, first_row + ROWS_AT_ONCE)
        sums = total[..., rows, :]
        here = slice(sums.shape[-2])
        a, product, part = a_rows[..., here, :], products[..., here, :], parts[..., here, :]
        decode_into(a, formats[0], operands.a[..., rows, :])
        if operands.columns is not None:
            a = with_zeros(a, operands.columns[..., rows, :], depth)
        for first in range(0, depth, at_once):
            some = slice(first, first + at_once)
            np.matmul(a[..., some], b[..., some, :], out=product)
            np.copyto(part, product, casting="unsafe")  # the float32 is an exact integer
            if clamps:
                sums[...] = np.clip(np.add(sums, part, dtype=np.int64), INT32_MIN, INT32_MAX)
            else:
                sums += part
    return total.view(np.uint32)
