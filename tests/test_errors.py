"""What messages repeat of what a user gave."""

from __future__ import annotations

import pytest

import warpfrag as wf
from warpfrag.errors import MOST_SHOWN, shown


class Broken:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("é", "'é'"),
        ("\x1b[31m\u202e\n", r"'\x1b[31m\u202e\n'"),
        (-5, "-5"),
        (None, "None"),
        ([1, 2], "[1, 2]"),
        (10**5000, "an integer of 16610 bits"),
        (Broken(), "an object of type Broken"),
        ("x" * 1000, f"'{'x' * MOST_SHOWN}'... (1000 characters)"),
        (b"x" * 1000, f"b'{'x' * MOST_SHOWN}'... (1000 bytes)"),
        ([0] * 1000, f"{str([0] * 1000)[:MOST_SHOWN]}... (3000 characters)"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_was_given_is_shown_on_one_line(given, text):
    assert shown(given) == text


def test_a_name_of_a_megabyte_is_not_repeated():
    with pytest.raises(wf.IllegalInstruction) as caught:
        wf.get("mma." + "x" * 1_000_000)

    assert len(str(caught.value)) < 2000
