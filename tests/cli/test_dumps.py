"""Register dumps as printf and debuggers write them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfrag import get
from warpfrag.cli.io.register_dumps import DumpFormat, dump_lines, dump_of, parse_dump, read_registers
from warpfrag.errors import InvalidOperand

ROWS = [[lane, 0x3F800000, 0, 0xDEADBEEF - lane] for lane in range(32)]


def parse(text, words, **options):
    """The lanes of the only warp of a dump."""
    (lanes,) = parse_dump(text, DumpFormat(words, **options)).values()
    return lanes


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
    assert parse(write(template), 4) == ROWS
    assert parse(write(template, lanes=reversed(range(32))), 4) == ROWS


def test_lines_about_one_lane_are_joined():
    text = "\n".join(f"lane {lane}: %r{reg} = 0x{ROWS[lane][reg]:x}" for reg in range(4) for lane in range(32))

    assert parse(text, 4) == ROWS


def test_a_debugger_that_shows_decimal_beside_hex_is_understood():
    text = "\n".join(f"lane {lane}: R12   0x{row[0]:x}   {row[0]}" for lane, row in enumerate(ROWS))

    assert parse(text, 1) == [[row[0]] for row in ROWS]


def test_lines_without_labels_are_the_lanes_in_order():
    assert parse("\n".join(dump_lines(np.array(ROWS))), 4) == ROWS
    assert parse("\n".join(" ".join(f"{word:x}" for word in row) for row in ROWS), 4) == ROWS


@pytest.mark.parametrize("per_line", [1, 8, 16, 128])
def test_a_stream_may_be_broken_anywhere(per_line):
    words = [f"{word:08x}" for row in ROWS for word in row]
    text = "\n".join(" ".join(words[start : start + per_line]) for start in range(0, 128, per_line))

    assert parse(text, 4) == ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a dump of 32 lanes with 4 words each, got no numbers"),
        ("lane 32: 0x0", "line 1: expected a lane from 0 to 31, got '32'; lanes start at 0"),
        ("0 0\nhello", "line 2: 'hello' is not a hex number"),
        ("1.5 2.5", "line 1: '1.5' is not a hex number"),
        ("-1", "line 1: '-1' is not a hex number"),
        ("1234567890 " + "0 " * 127, "line 1: '1234567890' has more than 32 bits; words are hex"),
        ("0x1ffffffff " + "0x0 " * 127, "has more than 32 bits"),
        ("0 " * 127, "expected 128 words, 4 in each of 32 lines or all in one stream, got 127"),
        ("0 0 0 0\n" * 31 + "0 0 0", "got 3 in line 32"),
        (
            write("T%d %x %x %x %x", lanes=range(31)),
            "lane 31 is missing: the dump has 31 of 32 lanes; print from every lane",
        ),
        (write("T%d %x %x %x %x").replace("T7 7 ", "T7 "), "expected 4 words for lane 7, got 3"),
        (write("T%d %x %x %x %x").replace("T7 ", ""), "line 8 names no lane, though other lines do"),
    ],
)
def test_a_bad_dump_is_refused_with_what_was_expected(text, message):
    with pytest.raises(InvalidOperand) as caught:
        parse(text, 4)

    assert message in str(caught.value)


def test_a_register_called_t3_is_no_lane():
    text = "\n".join("t0=0x1 t1=0x2" for _ in range(32))

    assert parse(text, 2) == [[1, 2]] * 32


def test_leading_zeros_do_not_matter():
    assert parse("00000000000000ff " * 32, 1) == [[255]] * 32
    assert parse("00000001000000ff " * 32, 2, wide=True) == [[255, 1]] * 32


@pytest.mark.parametrize(
    "template",
    [
        "lane %d: a3=0x%x a2=0x%x a1=0x%x a0=0x%x",
        "t=%d, a[3]=0x%x, a[2]=0x%x, a[1]=0x%x, a[0]=0x%x",
        "T%d V3: %x V2: %x V1: %x V0: %x",
        "lane %d: %%r18 = 0x%x, %%r17 = 0x%x, %%r16 = 0x%x, %%r15 = 0x%x",
        "tid %d: R7 0x%x R6 0x%x R5 0x%x R4 0x%x",
        "lane %d reg 3: 0x%x reg 2: 0x%x reg 1: 0x%x reg 0: 0x%x",
    ],
)
def test_names_say_which_register_a_word_is(template):
    assert parse(write(template), 4) == [row[::-1] for row in ROWS]


def test_names_are_read_where_lines_name_no_lane():
    by_lane = "\n".join("a1=0x{1:x} a0=0x{0:x} a3=0x{3:x} a2=0x{2:x}".format(*row) for row in ROWS)
    by_register = "\n".join(f"d{reg}: " + " ".join(f"{row[reg]:x}" for row in ROWS) for reg in (2, 0, 3, 1))
    one_each = "\n".join(f"lane {lane}: a[{reg}] = 0x{ROWS[lane][reg]:x}" for reg in (3, 1, 0, 2) for lane in range(32))

    assert parse(by_lane, 4) == parse(by_register, 4) == parse(one_each, 4) == ROWS


def test_a_line_may_say_whose_the_lines_below_are():
    by_lane = "\n".join(f"lane {lane}:\n  a1 = 0x{lane:x}\n  a0 = 0x7" for lane in range(32))
    by_warp = "\n".join(f"warp {warp}\n" + "\n".join(f"T{lane}: {warp}" for lane in range(32)) for warp in (3, 1))

    assert parse(by_lane, 2) == [[7, lane] for lane in range(32)]
    assert parse_dump(by_warp, DumpFormat(1)) == {1: [[1]] * 32, 3: [[3]] * 32}


def test_several_warps():
    text = "\n".join(f"warp {warp} lane {lane}: {warp:x} {lane:x}" for lane in range(32) for warp in (1, 0, 5))
    found = parse_dump(text, DumpFormat(2))
    by_thread = parse_dump("\n".join(f"thread {thread}: 0x{thread:x}" for thread in range(96)), DumpFormat(1))

    assert list(found) == [0, 1, 5]
    assert found[5][31] == [5, 31]
    assert by_thread[2] == [[64 + lane] for lane in range(32)]
    operand = get("mma.m8n8k4.f64.f64.f64.f64").a
    assert read_registers(text, operand, warp=1).tolist() == found[1]
    assert read_registers(text, operand, batch=True).tolist() == [*found.values()]
    with pytest.raises(InvalidOperand, match="the dump has the warps 0, 1, 5: choose one"):
        read_registers(text, operand)
    with pytest.raises(InvalidOperand, match="the dump has the warps 0, 1, 5: there is no warp 2"):
        read_registers(text, operand, warp=2)


# by their codes: hypothesis throws most floats of 16 bits away; the last are the infinities
HALVES = st.sampled_from([code for code in range(1 << 16) if code & 0x7FFF <= 0x7C00])


@given(st.lists(HALVES, min_size=8, max_size=8), st.sampled_from(["%r", "%.9e", "%.1f"]))
def test_values_of_a_float_operand_are_elements(codes, template):
    operand = get("mma.m16n8k16.f32.f16.f16.f32").a
    values = np.array(codes, np.uint16).view(np.float16).tolist()
    lines = [f"lane {lane}: " + " ".join(f"a{7 - at}={template % value}" for at, value in enumerate(values))
             for lane in range(32)]  # fmt: skip
    expected = np.array([float(template % value) for value in values[::-1]]).astype(np.float16).view(np.uint32)
    (found,) = parse_dump("\n".join([*lines[:-1], lines[-1] + " # 1.0"]), dump_of(operand)).values()

    assert found == [expected.tolist()] * 32


def test_a_float_beside_hex_is_a_remark():
    assert parse(write("lane %d: 0x%x 0x%x 0x%x 0x%x (1.0)"), 4) == ROWS


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["lane 0: a0=0x1 a0=0x2"], "line 1: lane 0: expected 'a1', got 'a0'"),
        (["lane 0: a0=0x1 a2=0x2"], "line 1: lane 0: expected 'a1', got 'a2'"),
        (["lane 0: %r4=0x1 %r6=0x2"], "line 1: lane 0: expected '%r5', got '%r6'"),
        (["lane 0: a0=0x1", "lane 0: 0x2"], "line 2: lane 0 has 'a' and words without a name; expected the registers"),
        (["lane 0: lo=0x1 hi=0x2"], "line 1: lane 0 has 'lo' and 'hi'; expected the registers of one operand"),
        (["lane 0: 0x1 0x2 what?"], "line 1: 'what?', in a line with 0x words, is not a number"),
        (["after lane 0: 0x1 0x2"], "line 1: no word follows 'after'"),
        (["lane 0: a0= a1=0x2"], "line 1: no word follows 'a0'"),
        (["lane 0: 0x1 0x2 end:"], "line 1: no word follows 'end'"),
        (["thread 1024: 0x1"], "line 1: expected a thread from 0 to 1023, got '1024'"),
        (["lane 0: 1.5 2.5"], "line 1: '1.5' is not a hex number"),
    ],
)
def test_names_that_cannot_be_are_refused_with_their_line(lines, message):
    with pytest.raises(InvalidOperand) as caught:
        parse("\n".join([*lines, *(f"lane {lane}: 0x1 0x2" for lane in range(1, 32))]), 2)

    assert message in str(caught.value)


def test_words_and_values_are_not_mixed():
    text = "\n".join(f"lane {lane}: " + ("0x1" if lane else "1.5") for lane in range(32))
    with pytest.raises(InvalidOperand, match="line 2 has the hex number '0x1', line 1 the decimal '1.5': print all"):
        parse_dump(text, dump_of(get("mma.m8n8k4.f64.f64.f64.f64").a))


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 100_000,
        "a" + "9" * 100_000 + "x=",
        "a [" + " " * 100_000 + "x",
        "a 1" * 70_000,
        "%r1=" * 50_000,
        "warp 1 " * 30_000,
        "0x1 " + "1." * 100_000,
        "e+" * 100_000,
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
    """Each of these, or a shorter one like it, once took minutes; a pattern that backtracks would hang here."""
    with pytest.raises(InvalidOperand) as caught:
        parse(text, 4)

    assert len(str(caught.value)) < 500


def test_a_lane_is_told_from_words_behind_it():
    assert parse("\n".join(f"lane {lane} {lane:x} 2" for lane in range(32)), 2)[31] == [31, 2]
    assert parse("\n".join(f"thread ({lane}, 0, 0), 5 2" for lane in range(32)), 2)[31] == [5, 2]
    assert parse("\n".join(f"lane {lane}, 5 2" for lane in range(32)), 2)[31] == [5, 2]


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

    assert parse("\n".join(map(line, order)), len(words[0])) == words


@given(st.text(st.sampled_from("lane tid T0123x%:=,;()[]{}abcf._\n\t#/é\x00"), max_size=300), st.integers(1, 4))
def test_any_text_is_read_or_refused(text, words):
    try:
        found = parse(text, words)
    except InvalidOperand:
        return
    assert [len(row) for row in found] == [words] * 32
    assert all(0 <= word < 2**32 for row in found for word in row)
