"""Register dumps as printf and debuggers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfrag.cli.dumps import dump_lines, parse_dump
from warpfrag.errors import InvalidOperand

ROWS = [[lane, 0x3F800000, 0, 0xDEADBEEF - lane] for lane in range(32)]


def write(template, rows=ROWS, *, lanes=range(32)):
    return "\n".join(template % (lane, *rows[lane]) for lane in lanes)


@pytest.mark.parametrize(
    "template",
    [
        "lane %d: 0x%08x 0x%08x 0x%08x 0x%08x",
        "Lane %d : {0x%x, 0x%x, 0x%x, 0x%x};",
        "lane_id=%d %08x %08x %08x %08x",
        "T%d 0x%x 0x%x 0x%x 0x%x",
        "T%d: %x %x %x %x",
        "t%d, %x, %x, %x, %x",
        "[%d] %x %x %x %x",
        "[%d] = 0x%x, 0x%x, 0x%x, 0x%x",
        "(%d): %x %x %x %x",
        "%d: %x %x %x %x",
        "%d : 0x%X, 0x%X, 0x%X, 0x%X",
        "tid=%d a0=%x a1=%x a2=%x a3=%x",
        "tid %d: %%r12 = 0x%x; %%r13 = 0x%x; %%r14 = 0x%x; %%r15 = 0x%x;",
        "thread (%d,0,0) %#x %#x %#x %#x",
        "threadIdx.x = %d d[0]=0x%x d[1]=0x%x d[2]=0x%x d[3]=0x%x",
        "warp 0, lane %d: R4 0x%x R5 0x%x R6 0x%x R7 0x%x",
        "block 7 thread 99 lane %d reg 0: 0x%xu 0x%xU 0x%x 0x%x  // after the loop",
        "lane %d: 0x%x 0x%x 0x%x 0x%x  # d0..d3",
    ],
)
def test_labelled_lines_are_read_in_any_order(template):
    assert parse_dump(write(template), 4) == ROWS
    assert parse_dump(write(template, lanes=reversed(range(32))), 4) == ROWS


def test_lines_about_one_lane_are_joined():
    text = "\n".join(f"lane {lane}: %r{reg} = 0x{ROWS[lane][reg]:x}" for reg in range(4) for lane in range(32))

    assert parse_dump(text, 4) == ROWS


def test_a_debugger_that_shows_decimal_beside_hex_is_understood():
    text = "\n".join(f"lane {lane}: R12   0x{row[0]:x}   {row[0]}" for lane, row in enumerate(ROWS))

    assert parse_dump(text, 1) == [[row[0]] for row in ROWS]


def test_lines_without_labels_are_the_lanes_in_order():
    assert parse_dump("\n".join(dump_lines(ROWS)), 4) == ROWS
    assert parse_dump("\n".join(" ".join(f"{word:x}" for word in row) for row in ROWS), 4) == ROWS


@pytest.mark.parametrize("per_line", [1, 8, 16, 128])
def test_a_stream_may_be_broken_anywhere(per_line):
    words = [f"{word:08x}" for row in ROWS for word in row]
    text = "\n".join(" ".join(words[start : start + per_line]) for start in range(0, 128, per_line))

    assert parse_dump(text, 4) == ROWS


def test_a_line_per_register_must_be_said():
    text = "\n".join(" ".join(f"{ROWS[lane][reg]:x}" for lane in range(32)) for reg in range(4))

    with pytest.raises(InvalidOperand, match="4 lines of 32 words: say --by register if a line is a register"):
        parse_dump(text, 4)
    assert parse_dump(text, 4, by="register") == ROWS
    assert parse_dump(text, 4, by="lane") != ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a dump of 32 lanes of 4 words, got no hex numbers"),
        ("lane 32: 0x0", "line 1: a lane is 0..31, got '32'"),
        ("0 0\nhello", "line 2: 'hello' is not a hex number"),
        ("1.5 2.5", "line 1: '1.5' is not a hex number"),
        ("-1", "line 1: '-1' is not a hex number"),
        ("1234567890", "line 1: '1234567890' has more than 32 bits; words are hex"),
        ("0x1ffffffff", "has more than 32 bits"),
        ("0 " * 127, "expected 128 words, 4 in each of 32 lines or all in one stream, got 127"),
        ("0 0 0 0\n" * 31 + "0 0 0", "got 3 in line 32"),
        (write("T%d %x %x %x %x", lanes=range(31)), "expected 4 words of lane 31, but it is missing"),
        (write("T%d %x %x %x %x").replace("T7 7 ", "T7 "), "expected 4 words of lane 7, got 3"),
        (write("T%d %x %x %x %x").replace("T7 ", ""), "line 8 names no lane, though other lines do"),
    ],
)
def test_a_bad_dump_is_refused_with_what_was_expected(text, message):
    with pytest.raises(InvalidOperand) as caught:
        parse_dump(text, 4)

    assert message in str(caught.value)


def test_a_register_called_t3_is_no_lane():
    text = "\n".join("t0=0x1 t1=0x2" for _ in range(32))

    assert parse_dump(text, 2) == [[1, 2]] * 32


def test_leading_zeros_do_not_matter():
    assert parse_dump("00000000000000ff " * 32, 1) == [[255]] * 32
    assert parse_dump("00000001000000ff " * 32, 2, wide=True) == [[255, 1]] * 32


@pytest.mark.parametrize(
    "text",
    [
        "lane" + " " * 100_000,
        "lane " * 50_000,
        "lane=" + "[" * 100_000,
        "thread (" + "0," * 100_000,
        "tid" + " ," * 100_000 + "x",
        "a" * 200_000,
        "a." * 100_000,
        "%" * 200_000,
        "_[" + "0" * 200_000,
        "T" + "0" * 200_000 + " x",
        "(" + " " * 200_000 + "x",
        "0x" + "0" * 200_000 + "ug",
        "/" * 200_001,
        "9" * 200_000 + ":",
        "lane " + "9" * 5_000 + ": 0",
    ],
    ids=lambda text: text[:12],
)
def test_no_text_takes_longer_than_its_length(text):
    """Each of these, or a shorter one like it, once took minutes; a pattern that tries twice would hang here."""
    with pytest.raises(InvalidOperand) as caught:
        parse_dump(text, 4)

    assert len(str(caught.value)) < 500


def test_a_lane_is_told_from_words_behind_it():
    assert parse_dump("\n".join(f"lane {lane} {lane:x} 2" for lane in range(32)), 2)[31] == [31, 2]
    assert parse_dump("\n".join(f"thread ({lane}, 0, 0), 5 2" for lane in range(32)), 2)[31] == [5, 2]
    assert parse_dump("\n".join(f"lane {lane}, 5 2" for lane in range(32)), 2)[31] == [5, 2]


LABELS = ["lane %d:", "T%d", "[%d]", "(%d) =", "%d:", "tid=%d,", "warp 3 lane_id = %d", "thread (%d,0,0)", "LANE[%d] :"]
NAMES = ["", "r%d=", "%%r%d = ", "a[%d]:", "_x.%d="]


@given(
    words=st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(st.integers(0, 2**32 - 1), min_size=count, max_size=count), min_size=32, max_size=32
        )
    ),
    label=st.sampled_from(LABELS),
    name=st.sampled_from(NAMES),
    number=st.sampled_from(["%x", "0x%x", "%08X", "0x%08xu"]),
    gap=st.sampled_from([" ", ", ", "; ", "  \t", " {"]),
    order=st.permutations(range(32)),
)
def test_what_is_written_in_any_of_these_ways_is_read_back(words, label, name, number, gap, order):
    def line(lane):
        parts = [(name % reg if "%d" in name else name) + number % word for reg, word in enumerate(words[lane])]
        return f"{label % lane} {gap.join(parts)}"

    assert parse_dump("\n".join(map(line, order)), len(words[0])) == words


@given(st.text(st.sampled_from("lane tid T0123x%:=,;()[]{}abcf._\n\t#/é\x00"), max_size=300), st.integers(1, 4))
def test_any_text_is_read_or_refused(text, words):
    try:
        found = parse_dump(text, words)
    except InvalidOperand:
        return
    assert [len(row) for row in found] == [words] * 32
    assert all(0 <= word < 2**32 for row in found for word in row)
