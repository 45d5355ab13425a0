"""Mark cases of long parameter lists that only `make slow` runs; `conftest.py` marks more of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def sampled(cases: Iterable[object], step: int) -> list[object]:
    """Return the cases for `parametrize`: the first of every `step` cases as it is, the others marked slow."""
    return [case if index % step == 0 else slow(case) for index, case in enumerate(cases)]


def slow(case: object) -> object:
    """Return a case that is marked slow; a plain tuple has a value for each parameter."""
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow)
