"""Fragments that tests fill, load and store."""

import pytest

from warpfrag import wmma


@pytest.fixture
def accumulator():
    return wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)


@pytest.fixture
def multiplicand():
    return wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
