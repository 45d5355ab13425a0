"""The search for garbage is paused, and goes on afterwards as before."""

from __future__ import annotations

import gc

import pytest

from warpfrag.layout.garbage import count_as_old, no_garbage_collection


class Cycle:
    """Garbage that only a search finds."""

    found = 0

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        Cycle.found += 1


def test_nothing_is_searched_meanwhile_and_garbage_is_found_later():
    gc.collect()
    before = Cycle.found
    with no_garbage_collection():
        assert not gc.isenabled()
        for _ in range(2000):
            Cycle()
        assert Cycle.found == before
    assert gc.isenabled()
    gc.collect()
    assert Cycle.found == before + 2000


def test_what_a_program_has_chosen_stays():
    with pytest.raises(ValueError, match="stop"), no_garbage_collection():
        raise ValueError("stop")  # noqa: EM101 (as short as that)
    assert gc.isenabled()
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with no_garbage_collection():
            pass
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()


def test_what_counts_as_old_is_searched_with_the_old():
    gc.collect()
    before = Cycle.found
    with no_garbage_collection():
        Cycle()
        count_as_old()
    gc.collect(0)
    assert Cycle.found == before
    gc.collect()
    assert Cycle.found == before + 1


def test_objects_that_a_program_keeps_out_of_searches_stay_out():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        count_as_old()
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
