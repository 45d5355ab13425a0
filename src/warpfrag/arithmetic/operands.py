"""What every engine multiplies: the codes of a batch of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Operands(NamedTuple):
    """Codes of A [T, M, K], B [T, K, N] and C [T, M, N]; what a plan has no use for is None.

    A sparse A holds half of K, and `columns` its logical columns. Scale factors are [T, M, s] and [T, s, N].
    """

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]
    columns: NDArray[Any] | None = None
    scale_a: NDArray[Any] | None = None
    scale_b: NDArray[Any] | None = None
