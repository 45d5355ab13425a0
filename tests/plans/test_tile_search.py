"""Tiles of a width: what is said of conflicts is what the banks of shared memory do, counted another way."""

from __future__ import annotations

import pytest

import warpfrag as wf
from warpfrag.plans.tile_search import search_tiles


def conflicts(groups, size):
    """Passes beyond the first, bank by bank."""
    total = 0
    for starts in groups:
        banks = [set() for _ in range(32)]
        for start in starts:
            for byte in range(start, start + size, 4):
                banks[byte // 4 % 32].add(byte // 4)
        total += max(map(len, banks)) - 1
    return total


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, 64, 80, 88, 144])
def test_conflicts_are_those_of_the_banks_and_chunks_do_not_overlap(width):
    tiles, chunks = search_tiles(width), -(-width // 16)

    assert tiles
    for tile in tiles:
        order = [eval(tile.formula, {"row": r, "chunk": c}) for r in range(64) for c in range(chunks)]  # noqa: S307
        assert order == [tile.offset(row, chunk) for row in range(64) for chunk in range(chunks)]
        assert len(set(order)) == len(order)
        reads = [[tile.offset(8 * r + i, c) for i in range(8)] for r in range(8) for c in range(chunks)]
        assert tile.read == conflicts(reads, 16)
        assert tile.copied == conflicts([order[i : i + 8] for i in range(0, len(order), 8)], 16)
        words = [order[chunks * r + w // 4] + w % 4 * 4 for r in range(64) for w in range(width // 4)]
        assert tile.stored == conflicts([words[i : i + 32] for i in range(0, len(words), 32)], 4)
    assert tiles[0].conflicts == 0
    assert [tile.conflicts for tile in tiles] == sorted(tile.conflicts for tile in tiles)


@pytest.mark.slow
def test_known_tiles():
    assert search_tiles(80)[0].formula == "row * 80 + chunk * 16"  # an odd number of chunks needs nothing
    assert search_tiles(128)[0].tma == 128
    padded = search_tiles(128, pitch=144)[0]
    assert (padded.formula, padded.read, padded.tma) == ("row * 144 + chunk * 16", 0, None)
    assert {tile.tma for tile in search_tiles(64)} >= {0, 64, None}
    assert search_tiles(88)[0].pitch % 16 == 0
    assert {tile.tma for tile in search_tiles(88)} == {None}  # TMA copies whole units of 16 bytes
    refused = [{"width": 81}, {"width": 88, "pitch": 88}, {"width": 3648}, {"width": 0}, {"width": "80"}]
    for wrong in (*refused, {"width": 80, "pitch": 64}):
        with pytest.raises(wf.errors.InvalidOperand, match="width:|pitch:"):
            search_tiles(**wrong)
