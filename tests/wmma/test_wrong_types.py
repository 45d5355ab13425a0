"""For any argument of wmma, only a WarpfragError is raised, and it states what was expected."""

import inspect

import numpy as np
import pytest

from warpfrag import WarpfragError, wmma

ODD = [
    None, -1, 5, 1.5, "x", "\x1b[31m", b"x", [], {}, (1, 2), True, object(), np.zeros(3), np.float16(1), 1j,
    np.zeros((2, 2), complex), float("nan"), 10**400, type, wmma.half, wmma.matrix_a, np.array([{}]), np.array("a"),
]  # fmt: skip


def fragments():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.col_major)
    return a, b, wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)


def calls():
    """Return each call with an unusual value for one argument."""
    a, b, c = fragments()
    bits = [wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)]
    bits += [wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.experimental.precision.b1, wmma.col_major)]
    count = wmma.fragment(wmma.accumulator, 8, 8, 128, wmma.int)
    half, single = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float32)
    yield wmma.fragment, [wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major, "sm_90"]
    yield wmma.load_matrix_sync, [a, half, 16]
    yield wmma.load_matrix_sync, [c, single, 16, wmma.mem_row_major]
    yield wmma.store_matrix_sync, [single, c, 16, wmma.mem_row_major]
    yield wmma.fill_fragment, [c, 1.0]
    yield wmma.fill_fragment, [count, 1]
    yield wmma.mma_sync, [c, a, b, c, False]
    yield wmma.experimental.bmma_sync, [count, *bits, count, wmma.experimental.bmmaBitOpXOR]
    yield wmma.float_to_tf32, [1.0]
    yield wmma.ptr, [half]
    yield lambda step: wmma.ptr(half) + step, [1]
    yield lambda step: wmma.ptr(half) - step, [0]
    yield lambda words: setattr(a, "words", words), [a.words]
    yield lambda elements: setattr(a, "x", elements), [a.x]
    yield a.set_codes, [a.codes()]
    yield lambda t, lane: a.layout().at(t=t, lane=lane), [0, 0]
    yield lambda row, col: a.layout().where(row=row, col=col), [0, 0]


@pytest.mark.parametrize("odd", ODD, ids=[repr(odd)[:20] for odd in ODD])
def test_only_errors_of_ours_come_back(odd):
    messages = []
    for function, arguments in calls():
        function(*arguments)
        for place in range(len(arguments)):
            try:
                function(*arguments[:place], odd, *arguments[place + 1 :])
            except WarpfragError as error:
                messages.append(str(error))

    assert len(messages) > 20
    assert "\x1b" not in "".join(messages)


def test_every_function_is_tried():
    tried = {function for function, _ in calls()}
    public = [getattr(module, name) for module in (wmma, wmma.experimental) for name in module.__all__]
    functions = {one for one in public if inspect.isfunction(one)}

    assert len(functions) > 5
    assert {function.__name__ for function in functions - tried} == set()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, "row"), "row_major or col_major, got 'row'"),
        (lambda: wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float, wmma.row_major), "no Layout, got row_major"),
        (
            lambda: wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major, ["sm_90"]),
            r"unknown arch \['sm_90'\]",
        ),
        (lambda: wmma.mma_sync(*(fragments()[i] for i in (2, 0, 1, 2)), "yes"), "satf to be True or False, got 'yes'"),
        (lambda: wmma.ptr(np.zeros(4)) + 1.5, "integer number of elements, got 1.5"),
        (lambda: wmma.float_to_tf32("1"), "float_to_tf32: expected real numbers, got '1'"),
        (lambda: setattr(fragments()[0], "words", np.zeros((2, 32, 8), np.uint32)), r"expected uint32\[32, 8\], got"),
        (lambda: setattr(fragments()[0], "x", np.zeros(3)), r"x: expected half\[16, 32\]: could not broadcast"),
        (lambda: fragments()[0].set_codes(np.zeros((2, 16, 16), np.uint16)), r"shape \(16, 16\), got \(2, 16, 16\)"),
    ],
)
def test_what_was_expected_is_said(call, message):
    with pytest.raises(WarpfragError, match=message):
        call()


def test_what_is_too_large_becomes_an_infinity():
    a, _, _ = fragments()
    a.x = 1e10

    assert np.isinf(a.x).all()
    assert wmma.float_to_tf32(1e300) == np.inf
