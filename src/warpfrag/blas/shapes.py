"""What the shapes of a product say: which matrices make one, and how many scale factors they take."""

from __future__ import annotations

from typing import NamedTuple

from numpy import broadcast_shapes

from warpfrag.errors import InvalidOperand
from warpfrag.isa.qualifiers import Form

Shape = tuple[int, ...]


class ScaleCounts(NamedTuple):
    """How many scale factors K needs, and how many whole instructions take: padding alone reaches the others."""

    needed: int
    allowed: int


class ProductShape(NamedTuple):
    """M, N, K and the batch axes that A and B have together."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int

    @classmethod
    def of(cls, a: Shape, b: Shape) -> ProductShape:
        """Those of A and B; shapes that do not fit are refused."""
        if a[-1] != b[-2]:
            msg = f"A is {_text(a)} and B is {_text(b)}: the inner extents differ"
            raise InvalidOperand(msg)
        try:
            batch = broadcast_shapes(a[:-2], b[:-2])
        except ValueError:
            msg = f"A is {_text(a)} and B is {_text(b)}: their batch axes do not broadcast"
            raise InvalidOperand(msg) from None
        return cls(batch, a[-2], b[-1], a[-1])

    @property
    def shape(self) -> Shape:
        """That of D."""
        return (*self.batch, self.rows, self.columns)

    def check_c(self, shape: Shape) -> None:
        """Refuse a C that is not D's size; its batch axes may broadcast."""
        if shape[-2:] != self.shape[-2:] or not self._serves(shape):
            msg = f"C is {_text(shape)}, expected {_text(self.shape)}"
            raise InvalidOperand(msg)

    def check_bias(self, count: int) -> None:
        """Refuse a bias that is not one number for each column."""
        if count != self.columns:
            msg = f"bias: expected {self.columns} numbers, one for each column, got {count}"
            raise InvalidOperand(msg)

    def scale_counts(self, form: Form) -> ScaleCounts:
        """How many scale factors a row of the product takes."""
        each = int(form.scale_vec.removesuffix("X"))
        return ScaleCounts(-(-self.depth // (form.shape.k // each)), max(1, -(-self.depth // form.shape.k)) * each)

    def check_scales(self, counts: ScaleCounts, role: str, shape: Shape) -> None:
        """Refuse scale factors that are too few, too many, or of another batch."""
        needed, allowed = counts
        along, expected = (-1, (self.rows, needed)) if role == "scale_a" else (-2, (needed, self.columns))
        across = -3 - along
        if shape[across] != expected[across] or not needed <= shape[along] <= allowed:
            msg = f"{role}: expected shape {expected}, got {shape}"
            raise InvalidOperand(msg)
        if not self._serves(shape):
            msg = f"{role}: its batch axes {shape[:-2]} do not broadcast to {self.batch}"
            raise InvalidOperand(msg)

    def _serves(self, shape: Shape) -> bool:
        """Whether an operand's batch axes broadcast to those of the product."""
        axes = shape[:-2]
        return len(axes) <= len(self.batch) and all(
            size in (1, other) for size, other in zip(axes[::-1], self.batch[::-1], strict=False)
        )


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape))
