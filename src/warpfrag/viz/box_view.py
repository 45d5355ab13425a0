"""A box of a tensor map: in units of 16 bytes, and the places in shared memory that a copy leaves them in.

Both pictures are those of `staged_view`, in the same colours. Lines of a box are what its outer axes count, one after
the other; of im2col they are pixels. With `interleave` a unit is the slice of a pixel, or half of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import InvalidOperand
from warpfrag.smem.shared_memory import UNIT
from warpfrag.viz.drawing import Drawing
from warpfrag.viz.staged_view import MemoryUnit, left_out, staged_grids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.smem.tensor_map import TensorMapFields
    from warpfrag.viz.cells import Cut


MAX_ACROSS = 16  # units of a line of the box: of longer ones memory is shown alone


class BoxFigure(NamedTuple):
    """What a map says; its box is drawn."""

    fields: TensorMapFields
    name: str = "The box"

    @property
    def letters(self) -> tuple[str, str]:
        """What lines count, and what runs along them: pixels, channels, or rows and columns."""
        if self.fields.im2col is not None:
            return "pixel", "channel"
        return "row", "pixel" if self.fields.interleave else "column"

    @property
    def row_bytes(self) -> int:
        """The bytes of a line."""
        return self.fields.box_shape[0] * self.fields.element.bytes

    def words(self, unit: MemoryUnit) -> tuple[str, str]:
        """The text of a unit's cell: its line, and the range of its elements."""
        fields, (line, _) = self.fields, self.letters
        per_unit = UNIT // fields.element.bytes
        first = unit.number * per_unit
        if fields.interleave and fields.im2col is None:
            pixel, first = divmod(first, fields.elements_per_index)
            part = f" c{first}-{first + per_unit - 1}" if fields.interleave > UNIT else ""
            return f"r{unit.line}:", f"x{pixel}{part}"
        return f"{line[0]}{unit.line}:", f"c{first}-{first + per_unit - 1}"

    def units(self) -> Iterator[MemoryUnit]:
        """Every unit that is copied, line by line."""
        across = self.row_bytes // UNIT
        for unit, address in enumerate(self.fields.shared_units(0).tolist()):
            line, number = divmod(unit, across)
            yield MemoryUnit(line, number, line, number * UNIT // self.fields.element.bytes, address // UNIT)


def box_drawing(described: str, fields: TensorMapFields, cut: Cut) -> Drawing:
    """The figure of a map that the driver takes."""
    problems = fields.problems()
    if problems:
        msg = f"{described} is no tensor map that the driver takes: {'; '.join(problems)}"
        raise InvalidOperand(msg)
    figure = BoxFigure(fields)
    extents = " x ".join(map(str, fields.box_shape[::-1]))
    notes = [f"A box is {extents} of {fields.element.name}: a copy completes {fields.box_bytes} bytes of its mbarrier."]
    swizzle = (
        f"16-byte units are permuted by the {fields.swizzle}-byte swizzle" if fields.swizzle else "without swizzle"
    )
    gap = f", rows lie {fields.shared_pitch} bytes apart" if fields.shared_pitch > figure.row_bytes else ""
    notes.append(f"Byte 0 is where the box begins, at a multiple of 1024; {swizzle}{gap}.")
    if fields.interleave:
        notes.append(f"A pixel has {fields.interleave} bytes, one slice of its channels.")
    if len(fields.box_shape) > 2:
        notes.append("Rows count the outer axes of the box, the last of them first.")
    notes += [left_out(figure, cut)] if left_out(figure, cut) else []
    grids = staged_grids(figure, cut)
    if figure.row_bytes // UNIT > MAX_ACROSS:
        grids = grids[1:]
    return Drawing("A box of a tensor map, in shared memory", described, tuple(notes), tuple((grid,) for grid in grids))
