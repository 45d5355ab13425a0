"""A whole A made sparse: pruned to a pattern, and stored without what was pruned.

The patterns are those of `mma.sp`: 2:4 keeps two of four neighbours, 1:2 one of two, 4:8 two of four pairs.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import Array, Bytes, as_array, as_doubles
from warpfrag.isa.patterns import Pattern, pattern
from warpfrag.tables import read_table
from warpfrag.tensorcore.sparsity import compress as compress_codes


def prune(A: ArrayLike, pattern: str = "2:4") -> Array:
    """A with the smallest magnitudes of each chunk of a row made zero, so that a sparse instruction takes it.

    Of equal magnitudes the first are kept. Pairs (4:8) are compared by the sum of their magnitudes. A row that ends
    inside a chunk is pruned as if zeros followed. The dtype stays; a NaN counts as the largest magnitude.

    >>> prune(np.array([[1, -5, 3, 2]]))
    array([[ 0, -5,  3,  0]])
    """
    rule = _find(pattern)
    matrix = _rows(A)
    chunks, columns = _chunks(matrix, rule)
    magnitude = np.abs(as_doubles(chunks))
    magnitude = np.where(np.isnan(magnitude), np.inf, magnitude)
    units = magnitude.reshape(*chunks.shape[:-1], rule.chunk // rule.unit, rule.unit)
    with np.errstate(over="ignore"):
        rank = np.argsort(np.argsort(-units.sum(axis=-1), axis=-1, kind="stable"), axis=-1, kind="stable")
    keep = np.repeat(rank < rule.kept // rule.unit, rule.unit, axis=-1)
    zero = np.zeros((), matrix.dtype)
    pruned: NDArray[Any] = np.where(keep, chunks, zero).astype(matrix.dtype, copy=False)
    return pruned.reshape(*matrix.shape[:-1], chunks.shape[-2] * rule.chunk)[..., :columns]


def compress(A: ArrayLike, pattern: str = "2:4") -> tuple[Array, Bytes]:
    """The stored half of a whole pruned A, and the metadata code of each chunk: uint8[..., rows, chunks].

    Rows that end inside a chunk are filled up with zeros. InvalidSparsity names the first row that is not pruned.
    """
    rule = _find(pattern)
    matrix = _rows(A)
    chunks, _columns = _chunks(matrix, rule)
    full = chunks.reshape(*matrix.shape[:-1], chunks.shape[-2] * rule.chunk)
    kind = np.dtype(f"uint{8 * matrix.dtype.itemsize}")
    stored, codes = compress_codes(rule, np.ascontiguousarray(full).view(kind))
    return stored.view(matrix.dtype), codes


def _find(name: object) -> Pattern:
    known = read_table("sparsity")["pattern"]
    if not isinstance(name, str) or name not in known:
        msg = f"pattern: expected one of {', '.join(known)}; got {quote(name)}"
        raise InvalidOperand(msg)
    return pattern(name)


def _rows(A: ArrayLike) -> NDArray[Any]:
    matrix = as_array(A, "A")
    if matrix.ndim < 2 or not (matrix.dtype.kind in "biuf" or hasattr(ml_dtypes, matrix.dtype.name)):
        msg = f"A: expected a matrix of real numbers, got dtype {matrix.dtype} of shape {matrix.shape}"
        raise InvalidOperand(msg)
    if matrix.dtype.itemsize > 8:
        msg = f"A: expected elements of at most 8 bytes, got dtype {matrix.dtype}"
        raise InvalidOperand(msg)
    return matrix


def _chunks(matrix: NDArray[Any], rule: Pattern) -> tuple[NDArray[Any], int]:
    """Rows cut into chunks [..., chunks, chunk], filled up with zeros; and how many columns there were."""
    columns = matrix.shape[-1]
    missing = -columns % rule.chunk
    if missing:
        filled = np.zeros((*matrix.shape[:-1], columns + missing), matrix.dtype)
        filled[..., :columns] = matrix
        matrix = filled
    return matrix.reshape(*matrix.shape[:-1], (columns + missing) // rule.chunk, rule.chunk), columns
