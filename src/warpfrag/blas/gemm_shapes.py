"""The shapes of a gemm's matrices and scale factors; pruning and compression of a sparse A."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy import broadcast_shapes
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, check_name
from warpfrag.formats.arrays import Array, Bytes, as_array, as_doubles
from warpfrag.isa.patterns import Pattern, pattern
from warpfrag.tables import read_table
from warpfrag.tensorcore.operand import Scale
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.sparsity import compress as compress_codes

Shape = tuple[int, ...]


class ProductShape(NamedTuple):
    """M, N, K and the broadcast batch axes of A and B."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int

    @classmethod
    def of(cls, a: Shape, b: Shape) -> ProductShape:
        """Return the shape of the gemm of A and B; raise InvalidOperand if their shapes do not match."""
        if a[-1] != b[-2]:
            raise InvalidOperand(f"A is {_text(a)} and B is {_text(b)}: the inner extents differ")
        try:
            batch = broadcast_shapes(a[:-2], b[:-2])
        except ValueError:
            raise InvalidOperand(f"A is {_text(a)} and B is {_text(b)}: their batch axes do not broadcast") from None
        return cls(batch, a[-2], b[-1], a[-1])

    @property
    def shape(self) -> Shape:
        """The shape of D."""
        return (*self.batch, self.rows, self.columns)

    def check_c(self, shape: Shape) -> None:
        """Raise InvalidOperand unless C has the shape of D; its batch axes may broadcast."""
        if shape[-2:] != self.shape[-2:] or not self._serves(shape):
            raise InvalidOperand(f"C: expected shape {_text(self.shape)}, got {_text(shape)}")

    def check_bias(self, count: int) -> None:
        """Raise InvalidOperand unless the bias has one number per column."""
        if count != self.columns:
            raise InvalidOperand(f"bias: expected {self.columns} numbers, one for each column, got {count}")

    def scale_count(self, rule: Rule) -> int:
        """Return the number of scale factors per row of A, with K rounded up to a multiple of the instruction's k."""
        return max(1, -(-self.depth // rule.k)) * rule.scales

    def check_scales(self, rule: Rule, role: str, shape: Shape) -> None:
        """Raise InvalidOperand if scale factors have the wrong shape or batch axes."""
        needed, allowed = -(-self.depth // (rule.k // rule.scales)), self.scale_count(rule)
        along, expected = (-1, (self.rows, needed)) if role == "scale_a" else (-2, (needed, self.columns))
        across = -3 - along
        if shape[across] != expected[across] or not needed <= shape[along] <= allowed:
            raise InvalidOperand(f"{role}: expected shape {expected}, got {shape}")
        if not self._serves(shape):
            raise InvalidOperand(f"{role}: batch axes {shape[:-2]} do not broadcast to {self.batch}")

    def padded_scales(self, codes: NDArray[Any], rule: Rule, operand: Scale) -> NDArray[Any]:
        """Return scale codes for every instruction along k, with a scale of 1 for blocks of padding."""
        self.check_scales(rule, operand.role, codes.shape)
        along = -1 if operand.role == "scale_a" else -2
        padding = [(0, 0)] * codes.ndim
        padding[along] = (0, self.scale_count(rule) - codes.shape[along])
        return self.flat(np.pad(codes, padding, constant_values=operand.format.encode(1.0)))

    def flat(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return an operand with its batch axes merged into one."""
        if codes.shape[:-2] != self.batch:  # a broadcast array is read-only, and kernels copy it
            codes = np.broadcast_to(codes, (*self.batch, *codes.shape[-2:]))
        return codes.reshape(math.prod(self.batch), *codes.shape[-2:])

    def _serves(self, shape: Shape) -> bool:
        """Return True if the batch axes of an operand broadcast to those of D."""
        axes = shape[:-2]
        return len(axes) <= len(self.batch) and all(
            size in (1, other) for size, other in zip(axes[::-1], self.batch[::-1], strict=False)
        )


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape))


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
