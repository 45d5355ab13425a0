"""`warpfrag at`, `where` and `table` of tensor memory, and of the registers after a tcgen05.ld."""

import pytest

import warpfrag as wf

DENSE = "tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16"
HALF = "tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f16.f16.f16"
PAIR = "tcgen05.mma.cta_group::2.kind::f16.m128n32k16.f32.f16.f16"
SPARSE = "tcgen05.mma.sp.cta_group::1.kind::f16.m64n8k32.f32.f16.f16"
SCALED = "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.m128n32k32.f32.e4m3.e4m3.ue8m0"
LOAD = "tcgen05.ld.sync.aligned.16x256b.x4.b32"
PACKED = "tcgen05.ld.sync.aligned.16x64b.x2.pack::16b.b32"


def test_where_follows_an_element_through_a_load(run):
    answer = run("where", DENSE, "d", 37, 5, "--through", LOAD)

    assert answer.lines[0].endswith(f"f32, after {LOAD}")
    assert answer.lines[1].split() == ["warp", "lane", "reg", "slot", "bits", "element", "row", "col"]
    assert answer.lines[2].split() == ["1", "22", "1", "0", "31:0", "d1", "37", "5"]


@pytest.mark.parametrize("column", [0, 32])
@pytest.mark.parametrize("base_lane", [0, 16])
def test_every_element_through_a_load_is_as_in_python(run, column, base_lane):
    options = ("--through", LOAD, "--column", column, "--base-lane", base_lane)
    records = run("table", DENSE, "d", *options, "--json").json["elements"]
    held = wf.get(DENSE).d.through(LOAD, column, base_lane=base_lane)

    assert len(records) == 4 * 32 * 16
    for record in records[::7]:
        place = {name: record[name] for name in ("warp", "lane", "reg", "slot")}
        assert (record["row"], record["col"]) == held.at(**place)
    found = run("where", DENSE, "d", records[9]["row"], records[9]["col"], *options, "--json").json["holders"]
    assert found == [records[9]]


def test_a_pair_of_blocks_has_its_block_before_the_warp(run):
    load = "tcgen05.ld.sync.aligned.32x32b.x16.b32"
    (found,) = run("where", PAIR, "d", 100, 20, "--through", load, "--json").json["holders"]
    elements = run("at", PAIR, "d", 5, 1, "--through", load, "--json").json["elements"]
    text = run("table", PAIR, "d", "--through", load, "--by", "lane").lines

    assert [found[name] for name in ("block", "warp", "lane", "reg")] == [1, 3, 4, 4]
    assert [(record["block"], record["warp"]) for record in elements] == [(b, w) for b in (0, 1) for w in range(4)]
    assert {"block 0, warp 0", "block 1, warp 3"} < {*text}


def test_the_registers_of_a_load_have_columns_of_tensor_memory(run):
    (found,) = run("where", LOAD, "d", 37, 5, "--json").json["holders"]
    (moved,) = run("where", LOAD, "d", 53, 37, "--column", 32, "--base-lane", 16, "--json").json["holders"]

    assert {name: found[name] for name in ("warp", "lane", "reg", "tlane", "column")} == {
        "warp": 1,
        "lane": 22,
        "reg": 1,
        "tlane": 37,
        "column": 5,
    }
    assert [moved[name] for name in ("warp", "lane", "reg")] == [1, 22, 1]
    assert run("where", LOAD, "d", 20, 3).lines[1] == (
        "D[20, 3] is not in these registers: the load or store does not reach it"
    )


def test_a_packed_load_keeps_the_slots_of_its_registers_apart(run):
    records = run("at", PACKED, "d", 2, 1, "--warp", 1, "--json").json["elements"]
    lines = run("table", PACKED, "d", "--by", "lane", "--warp", 1).lines

    assert [(record["slot"], record["bit_low"], record["column"]) for record in records] == [(0, 0, 6), (1, 16, 7)]
    assert lines[3:6] == ["warp 1", "lane   d0   d1   d2   d3", "   0 32,0 32,1 32,4 32,5"]


def test_json_of_a_load_has_a_record_for_each_place(run):
    rows = run("table", PACKED, "d", "--json").json["elements"]

    assert len(rows) == 4 * 32 * 2 * 2
    assert {(row["tlane"], row["column"]) for row in rows} == {
        (32 * warp + lane, column) for warp in range(4) for lane in range(16) for column in range(8)
    }


def test_scale_factors_are_found_by_columns_of_b_not_by_padded_ones(run):
    """For a pair with m 128, the second half of B's columns begins at lane 64 for every n."""
    holders = run("where", SCALED, "scale_b", 0, 20, "--json").json["holders"]
    columns = {record["col"] for record in run("table", SCALED, "scale_b", "--json").json["elements"]}

    assert [(found["block"], found["tlane"], found["column"]) for found in holders] == [
        (0, 68, 0),
        (0, 100, 0),
        (1, 68, 0),
        (1, 100, 0),
    ]
    assert columns == {*range(32)}


def test_scale_factors_beyond_the_matrix_are_refused(refused):
    assert refused("where", SCALED, "scale_b", 0, 32) == "col must be in 0..31, got 32"


@pytest.mark.parametrize("operand", ["d", "a", "metadata"])
def test_sixteen_of_each_32_lanes_are_said_to_be_used(run, operand):
    notes = run("where", SPARSE, operand, 20, 3, "--json").json["notes"]

    assert "16 of every 32 lanes are used: those that start at base lane 0 or at base lane 16" in notes


def test_lanes_and_columns_head_a_table_by_lane(run):
    lines = run("table", SPARSE, "metadata", "--by", "lane", "--selector", 1).lines

    assert lines[3].split() == ["tlane", *(f"c1:{slot}" for slot in range(8))]
    assert lines[4].split() == ["0", *(f"1,{row},{chunk}" for row in (0, 8) for chunk in range(4))]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ((DENSE, "d", 0, 0, "--column", 4), "--column and --base-lane belong to the address of a load"),
        (
            ("mma.m16n8k16.f32.f16.f16.f32", "d", 0, 0, "--through", LOAD),
            "--through: expected an operand in tensor memory, got d of mma.sync",
        ),
        ((DENSE, "b", 0, 0, "--through", LOAD), "--through: expected an operand in tensor memory, got b"),
        ((DENSE, "d", 0, 0, "--through", DENSE), "expected a tcgen05.ld or tcgen05.st instruction"),
        ((DENSE, "d", 0, 0, "--through", PACKED), "is f32, but a load that packs halves keeps only 16 bits"),
        ((DENSE, "d", 0, 0, "--through", LOAD, "--base-lane", 7), "expected base_lane 0 or 16, got 7"),
        ((HALF, "d", 0, 0, "--through", LOAD), "the access reaches 32 columns, but there are only 8"),
    ],
)
def test_a_load_that_does_not_fit_is_refused(refused, question, message):
    assert message in refused("where", *question)
