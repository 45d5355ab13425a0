"""`warpfrag table`."""

import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"
OPERANDS = [
    (NAME, "a"),
    (NAME, "d"),
    ("mma.m16n8k64.s32.s4.s4.s32", "b"),
    ("mma.m16n8k256.s32.b1.b1.s32.xor.popc", "a"),
    ("mma.m8n8k4.row.col.f32.f16.f16.f32", "c"),
    ("mma.sp.m16n8k32.f32.f16.f16.f32", "metadata"),
    ("mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "scale_b"),
    ("wmma.load.a.row.m16n16k16.f16", "a"),
    ("stmatrix.m16n8.x4.trans.b8", "a"),
]


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
@pytest.mark.parametrize("by", ["matrix", "lane"])
def test_json_has_every_place_once_and_in_order(run, name, operand, by):
    rows = run("table", name, operand, "--by", by, "--json").json["elements"]
    layout = wf.get(name).operands[operand].layout
    places = [(row["lane"], row["reg"], row["slot"]) for row in rows]

    assert sorted(places) == list(layout.places())
    assert (by == "lane") == (places == sorted(places))
    for row, (lane, reg, slot) in zip(rows, places, strict=True):
        at = layout.at(lane=lane, reg=reg, slot=slot)._asdict()
        group = at.pop("byte_id", None)
        assert at == {dim: row[dim] for dim in at}
        assert group is None or row["byte_id"] == 2 * group


def test_the_table_by_matrix(run):
    lines = run("table", NAME, "c").lines

    assert lines[1] == "cell = lane:element; element = register"
    assert lines[3].split() == ["row\\col", *map(str, range(8))]
    assert lines[4].split() == ["0", "0:0", "0:1", "1:0", "1:1", "2:0", "2:1", "3:0", "3:1"]
    assert lines[19].split() == ["15", "28:2", "28:3", "29:2", "29:3", "30:2", "30:3", "31:2", "31:3"]


def test_the_table_by_lane(run):
    lines = run("table", NAME, "c", "--by", "lane").lines

    assert lines[1] == "cell = row,col"
    assert lines[3].split() == ["lane", "c0", "c1", "c2", "c3"]
    assert lines[9].split() == ["5", "1,2", "1,3", "9,2", "9,3"]


@pytest.mark.parametrize("columns", [40, 100, 200])
def test_a_table_is_cut_to_the_width_of_the_terminal(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("table", NAME, "a").lines[3:]  # a title is not cut

    assert max(map(len, lines)) <= columns
    headers = [line.split()[1:] for line in lines if line.startswith("row\\col")]
    assert [int(label) for header in headers for label in header] == list(range(16))
    assert len({len(header) for header in headers}) == 1


def test_each_matrix_has_its_own_table(run):
    lines = run("table", "ldmatrix.m8n8.x4.b16", "d").lines

    assert [line for line in lines if line.startswith("matrix ")] == ["matrix 0", "matrix 1", "matrix 2", "matrix 3"]
    assert [line for line in run("table", "ldmatrix.m8n8.x4.b16", "d", "--matrix", 2).lines if "matrix " in line][
        1:
    ] == []


def test_the_table_of_addresses(run):
    lines = run("table", "ldmatrix.m8n8.x4.b16", "addresses").lines

    assert lines[3].split() == ["matrix\\row", *map(str, range(8))]
    assert lines[5].split() == ["1", *map(str, range(8, 16))]
    assert run("table", "ldmatrix.m8n8.x4.b16", "addresses", "--by", "lane").lines[13].split() == ["9", "1,1"]


def test_by_lane_a_choice_leaves_only_the_lanes_it_reads(run):
    lines = run("table", "mma.sp.m16n8k32.f32.f16.f16.f32", "metadata", "--selector", 1, "--by", "lane").lines

    assert [int(line.split()[0]) for line in lines[4:]] == [lane for lane in range(32) if lane & 2]


def test_an_unknown_view_is_refused(refused):
    assert "'column' is not one of 'matrix', 'lane'" in refused("table", NAME, "a", "--by", "column")
