"""Figures of tensor maps: the positions of a box's units after a copy."""

import re

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.errors import InvalidOperand

TILES = np.zeros((32, 128), np.float16)


@pytest.mark.parametrize(
    ("box", "swizzle"), [((8, 64), 128), ((8, 32), 64), ((8, 8), 32), ((6, 24), 0)], ids=["128", "64", "gaps", "none"]
)
def test_a_unit_stands_where_the_copy_leaves_it(box, swizzle):
    tiles = wf.ptx.TensorMap(TILES, box, swizzle)
    text = wf.draw(tiles).text.rpartition("\n\n")[2]
    lines = [re.findall(r"r\d+: c\d+-\d+|-(?= |$)", line) for line in text.splitlines()[2:]]
    found = {cell: 128 * y + 16 * x for y, line in enumerate(lines) for x, cell in enumerate(line) if cell != "-"}
    addresses = tiles.memory().addresses(box, 16)
    wanted = {
        f"r{row}: c{col}-{col + 7}": int(addresses[row, col]) for row in range(box[0]) for col in range(0, box[1], 8)
    }
    assert found == wanted


def test_slices_of_channels_and_columns_of_pixels():
    half = wf.ptx.TensorMap(np.zeros((2, 3, 5, 8, 16), np.float16), (1, 1, 3, 8), interleave=32)
    drawn = wf.draw(half)
    assert "r2: x7 c8-15" in drawn.text
    assert "A pixel has 32 bytes, one slice of its channels." in drawn.notes
    assert "Rows enumerate the indices of the outer axes; the last of these axes varies fastest." in drawn.notes
    column = wf.ptx.TensorMap(np.zeros((2, 8, 8, 32), np.float16), wf.ptx.Im2col((0, 0), (0, 0), 32, 12), 64)
    assert "p11: c24-31" in wf.draw(column).text


def test_colours_and_lines_are_chosen():
    tiles = wf.ptx.TensorMap(TILES, (32, 64), 128)
    assert "Only the first 16 of 32 lines of memory are shown; select others with rows." in wf.draw(tiles).notes
    drawn = wf.draw(tiles, rows=(30, 31), theme="dark", title="Two lines")
    assert (drawn.title, drawn.theme) == ("Two lines", "dark")
    assert "r31: c0-7" in drawn.text
    assert "r29: c0-7" not in drawn.text
    assert drawn.svg.startswith("<svg")


def test_long_lines_are_shown_in_memory_alone():
    wide = wf.ptx.TensorMap(np.zeros((4, 256)), (2, 256))
    assert [grid.title for scene in wf.draw(wide).scenes for grid in scene] == ["Shared memory: lines of 128 bytes"]


def test_what_is_no_figure_of_a_map_is_refused():
    with pytest.raises(InvalidOperand, match="take only a theme and a title"):
        wf.draw(wf.ptx.TensorMap(TILES, (8, 64)), "a")
    with pytest.raises(InvalidOperand, match="the driver would reject .*: expected an innermost box extent"):
        wf.draw(wf.ptx.TensorMap(TILES, (8, 63)))
