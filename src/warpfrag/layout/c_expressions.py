"""C: each coordinate as an expression of `lane` and of PTX's element number `i`, ready to paste into a kernel.

    // i = 2 * reg + slot
    int row = (lane >> 2) + (i >> 1 & 1) * 8;

The expressions are those of the command line and of emitted code. They shift and mask, so a size that is no power of
two is taken only where it is the highest part of its index: 24 = 8 * 3 is, two tiles of it side by side are not.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> print(Layout.parse(dict(row=8, col=8), lane="c2 c4 r1 r2 r4", slot="c1").to("c"))
    // i = slot
    int row = lane >> 2;
    int col = (lane & 3) * 2 + i;
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand
from warpfrag.layout.index_expressions import element_formulas

if TYPE_CHECKING:
    from warpfrag.layout.linear_layout import Layout


def write(layout: Layout) -> str:
    """A declaration per coordinate, below a line that says what i is."""
    weights = [weight for source in layout.ins for weight, _ in layout.digits(source)]
    weights += [run.multiply for dim in layout.dims for run in layout.runs(dim)]
    weights += [layout.slots] * (layout.regs > 1)  # what a register counts in i
    if any(weight & (weight - 1) for weight in weights):
        msg = f"c cannot express {layout} by shifts: a size that is no power of two is below another part of its index"
        raise InvalidOperand(msg)
    lines = [f"int {dim} = {formula};" for dim, formula in element_formulas(layout).items()]
    return "\n".join([*_number(layout), *lines])


def _number(layout: Layout) -> list[str]:
    """What i counts, as a comment."""
    if layout.regs == layout.slots == 1:
        return []
    if layout.slots == 1:
        return ["// i = reg"]
    return ["// i = slot" if layout.regs == 1 else f"// i = {layout.slots} * reg + slot"]
