"""A sample of the planted mistakes of `tools.printed_mistakes`."""

from itertools import islice

import pytest

from tools.printed_mistakes import cases, judge


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_planted_mistakes_are_found_in_printed_results(seed):
    assert [judge(case) for case in islice(cases(seed), 12)] == ["found"] * 12
