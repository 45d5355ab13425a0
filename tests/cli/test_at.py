"""`warpfrag at`."""

import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def test_at_says_which_element_a_place_holds(run):
    answer = run("at", NAME, "a", 5, 2, 1)

    assert answer.code == 0
    assert answer.lines == [
        "a of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: 16\N{MULTIPLICATION SIGN}16 f16",
        "lane  reg  slot  bits   element  row  col",
        "   5    2     1  31:16  a5         1   11",
    ]


def test_at_in_json(run):
    assert run("at", NAME, "a", 5, 2, 1, "--json").json == {
        "schema": 2,
        "verb": "at",
        "instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "operand": "a",
        "elements": [
            {"lane": 5, "reg": 2, "slot": 1, "element": 5, "bit_high": 31, "bit_low": 16, "row": 1, "col": 11}
        ],
        "notes": [],
    }


@pytest.mark.parametrize("place", [[5], [5, 2]])
def test_at_without_register_or_slot_shows_all_of_them(run, place):
    elements = run("at", NAME, "a", *place, "--json").json["elements"]

    assert [element["element"] for element in elements] == ([4, 5] if place[1:] else list(range(8)))
    for element in elements:
        found = wf.get(NAME).a.layout.at(lane=5, reg=element["reg"], slot=element["slot"])
        assert (element["row"], element["col"]) == found


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ([32], "lane must be in 0..31, got 32"),
        ([-1], "lane must be in 0..31, got -1"),
        ([0, 4], "reg must be in 0..3, got 4"),
        ([0, 0, 2], "slot must be in 0..1, got 2"),
    ],
)
def test_a_place_out_of_range_is_refused(refused, place, message):
    assert refused("at", NAME, "a", *place) == message


def test_at_shows_the_bits_of_a_container(run):
    # e2m1 sits in bits 5:2 of its byte with kind::f8f6f4
    assert run("at", "mma.m16n8k32.kind::f8f6f4.f32.e2m1.e2m1.f32", "a", 0, 0, 1).lines[2].split()[3] == "13:10"


def test_at_a_sparse_a_shows_stored_and_logical_columns(run):
    answer = run("at", SPARSE, "a", 5, 2, 1)

    assert answer.lines[1].endswith("row  stored col  logical cols")
    assert answer.lines[2].split()[-3:] == ["1", "11", "20..23"]
    assert "note: half of A is stored" in answer.out


def test_at_metadata(run):
    (element,) = run("at", SPARSE, "metadata", 5, 0, 4, "--json").json["elements"]

    assert (element["selector"], element["row"], element["chunk"]) == (0, 9, 4)
    assert (element["bit_high"], element["bit_low"]) == (19, 16)
    assert (element["logical_first"], element["logical_last"]) == (16, 19)
    assert wf.get(SPARSE).metadata.at(lane=5, bit=16, selector=0) == (9, 4)


def test_at_a_scale_word_counts_byte_ids_in_bytes(run):
    elements = run("at", SCALED, "scale_a", 2, "--json").json["elements"]

    assert [(entry["thread_id"], entry["byte_id"], entry["row"], entry["scale"]) for entry in elements] == [
        (1, 0, 0, 0),
        (1, 0, 0, 1),
        (1, 2, 0, 0),
        (1, 2, 0, 1),
    ]


def test_of_a_lane_whose_address_is_not_read_nothing_is_said_but_that(run, refused):
    name = "ldmatrix.m8n8.x2.b16"
    note = "the addresses of lanes 16 to 31 are not read"
    answer = run("at", name, "addresses", 20)

    assert answer.code == 0
    assert answer.lines[1:] == ["", f"note: {note}"]
    found = run("at", name, "addresses", 20, "--json").json
    assert (found["elements"], found["notes"]) == ([], [note])
    assert run("at", name, "addresses", 5, "--json").json["notes"] == [note]
    assert run("at", "ldmatrix.m8n8.x4.b16", "addresses", 20, "--json").json["notes"] == []
    assert refused("at", name, "addresses", 32) == "lane must be in 0..31, got 32"
    assert refused("at", name, "addresses", 20, 1) == "reg must be in 0..0, got 1"


def test_at_the_addresses_of_ldmatrix(run):
    assert run("at", "ldmatrix.m8n8.x4.b16", "addresses", 9).lines[1:] == ["lane  matrix  row", "   9       1    1"]


def test_wmma_says_whose_fragments_it_shows(run):
    answer = run("at", "wmma.load.a.row.m16n16k16.f16", "a", 0)

    assert "these are for sm_90 (see --arch)" in answer.out
    assert "every element is held 2 times; the hardware reads the first" in answer.out


def test_what_nobody_knows_is_refused(refused):
    assert refused("at", "wmma.load.a.row.m16n16k16.f16", "a", 0, "--arch", "sm_80").startswith(
        "the wmma fragments of sm_80"
    )
    assert "were not measured" in refused("at", "ldmatrix.m8n16.x4.s8.s4", "d", 0)


def test_f64_says_which_words_a_register_is(run):
    answer = run("at", "mma.m8n8k4.f64.f64.f64.f64", "c", 0, 1)

    assert answer.lines[2].split()[3] == "63:0"
    assert "register r is the 32-bit words 2r and 2r + 1" in answer.out
