"""The interface of a backend: operands, blocks of outputs, and three protocols.

    Backend.compile(rule) -> ProductKernel      once per rule
    ProductKernel.start(operands) -> Job        once per gemm
    Job.run(block)                              once per block of outputs, in any order, on any thread

An output depends only on its row, its column and its C, so any division into blocks gives the same codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from numpy.typing import NDArray

from warpfrag.tensorcore.rules import Rule

Codes: TypeAlias = NDArray[Any]
Task: TypeAlias = Callable[[], None]


class ProductOperands(NamedTuple):
    """The codes of A [T, M, K], B [T, K, N] and C [T, M, N]; operands that the rule does not use are None.

    A sparse A stores half of K; `columns` are the logical columns of its elements. Scale factors are [T, M, s] and [T,
    s, N].
    """

    a: Codes
    b: Codes
    c: Codes
    columns: Codes | None = None
    scale_a: Codes | None = None
    scale_b: Codes | None = None

    @property
    def work(self) -> int:
        """The number of multiply-adds in the gemm."""
        return int(self.a.size * self.b.shape[2])

    def part(self, tiles: int | slice, rows: slice, columns: slice) -> ProductOperands:
        """Return the operands for some rows and columns of D, in one or more tiles."""
        a, b, c, met, scale_a, scale_b = self
        return ProductOperands(
            a[tiles, rows],
            b[tiles, :, columns],
            c[tiles, rows, columns],
            None if met is None else met[tiles, rows],
            None if scale_a is None else scale_a[tiles, rows],
            None if scale_b is None else scale_b[tiles, :, columns],
        )


class OutputBlock(NamedTuple):
    """A block of outputs: half-open ranges of tiles, rows and columns."""

    first_tile: int
    last_tile: int
    first_row: int
    last_row: int
    first_column: int
    last_column: int


class Grain(NamedTuple):
    """The granularity of a split: the extents of blocks are multiples of `rows` and `columns`.

    `max_rows` limits the rows of a block if a tile is split along its rows; `pieces_per_thread` is the number of blocks
    for each thread.
    """

    rows: int = 1
    columns: int = 1
    max_rows: int = 1 << 30
    pieces_per_thread: int = 1


class Job(Protocol):
    """A gemm in progress."""

    out: Codes
    """The codes of D, in any unsigned dtype; complete once every block has run."""

    def prepare(self, tile: int, pieces: int) -> list[Task]:
        """Return about `pieces` tasks that must run before a tile is split into blocks; whole tiles need none."""

    def run(self, block: OutputBlock) -> None:
        """Compute a block: whole tiles, or part of a prepared tile."""


class ProductKernel(Protocol):
    """A compiled rule."""

    grain: Grain

    def max_depth(self, height: int, width: int) -> int:
        """Return the longest K, a multiple of the instruction's, that can run at once for outputs of this extent."""

    def start(self, operands: ProductOperands) -> Job:
        """Load the operands of a gemm and return its job."""

    def run_whole(self, operands: ProductOperands) -> Codes:
        """Run every block in the calling thread, with as little overhead as possible."""


class Backend(Protocol):
    """The interface of a backend, which compiles rules into kernels."""

    name: str

    def compile(self, rule: Rule) -> ProductKernel:
        """Return a kernel for a rule."""
