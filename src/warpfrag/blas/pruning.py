"""Prune matrices to a sparsity pattern, and compress pruned matrices to the half that sparse instructions read."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, check_name
from warpfrag.formats.arrays import Array, Bytes, as_array, as_doubles
from warpfrag.isa.sparsity_patterns import Pattern, pattern
from warpfrag.tables import read_table
from warpfrag.tensorcore.sparsity import compress as compress_codes


def prune(A: ArrayLike, pattern: str = "2:4") -> Array:
    """Return A with the smallest magnitudes of each chunk set to zero, as sparse instructions require.

    If magnitudes are equal, the first ones are kept. Pairs (4:8) are compared by the sum of their magnitudes. A row
    that ends inside a chunk is pruned as if zeros followed. The dtype is kept; a NaN counts as the largest magnitude.

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
    """Return the stored half of a pruned A, and the metadata code of each chunk: uint8[..., rows, chunks].

    Rows that end inside a chunk are padded with zeros. Raises InvalidSparsity, which names the first row that is not
    pruned.
    """
    rule = _find(pattern)
    matrix = _rows(A)
    chunks, _columns = _chunks(matrix, rule)
    full = chunks.reshape(*matrix.shape[:-1], chunks.shape[-2] * rule.chunk)
    kind = np.dtype(f"uint{8 * matrix.dtype.itemsize}")
    stored, codes = compress_codes(rule, np.ascontiguousarray(full).view(kind))
    return stored.view(matrix.dtype), codes


def _find(name: object) -> Pattern:
    return pattern(check_name("pattern", name, read_table("sparsity")["pattern"]))


def _rows(A: ArrayLike) -> NDArray[Any]:
    matrix = as_array(A, "A")
    if matrix.ndim < 2 or not (matrix.dtype.kind in "biuf" or hasattr(ml_dtypes, matrix.dtype.name)):
        raise InvalidOperand(f"A: expected a matrix of real numbers, got dtype {matrix.dtype} of shape {matrix.shape}")
    if matrix.dtype.itemsize > 8:
        raise InvalidOperand(f"A: expected elements of at most 8 bytes, got dtype {matrix.dtype}")
    return matrix


def _chunks(matrix: NDArray[Any], rule: Pattern) -> tuple[NDArray[Any], int]:
    """Return the rows, padded with zeros, as chunks [..., chunks, chunk], and the original number of columns."""
    columns = matrix.shape[-1]
    padded = np.pad(matrix, [(0, 0)] * (matrix.ndim - 1) + [(0, -columns % rule.chunk)])
    return padded.reshape(*matrix.shape[:-1], padded.shape[-1] // rule.chunk, rule.chunk), columns
