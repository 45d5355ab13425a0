"""`warpfrag identify`, and `--to` of `table` and `info`."""

import pytest

import warpfrag as wf

MMA = "mma.m16n8k16.f32.f16.f16.f32"
FULL = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
CUTE_A = "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))"
CUTE_B = "((_4,_8),(_2,_2)):((_16,_1),(_8,_64))"


def test_a_text_of_cute_leads_to_its_operands(run):
    answer = run("identify", "--cute", CUTE_A, "--shape", "16x16", "--slots", 2)
    assert answer.code == 0
    assert answer.lines[:3] == [
        "lane: c2 c4 r1 r2 r4 | reg: r8 c8 | slot: c1, 2 values per register",
        "  a   mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        f"  a   {FULL}",
    ]
    assert "  and 23 more: --all lists them" in answer.lines
    everything = run("identify", "--cute", CUTE_A, "--shape", "16,16", "--slots", 2, "--all").lines
    assert len([line for line in everything if line.startswith("  a ")]) > 9


def test_without_slots_every_packing_is_tried_and_b_is_found_as_cute_has_it(run):
    answer = run("identify", "--cute", CUTE_B, "--shape", "8x16")
    titles = [line for line in answer.lines if line.startswith("lane: ")]
    assert titles == [
        "lane: c2 c4 r1 r2 r4 | reg: c8 | slot: c1, 2 values per register",
        "lane: r2 r4 c1 c2 c4 | reg: r8 | slot: r1, 2 values per register, read as N x K, the order of B in CuTe",
    ]
    assert f"  b   {FULL}" in answer.lines
    turned = run("identify", "--cute", CUTE_B, "--shape", "8x16", "--transposed", "--json").json["layouts"]
    assert [(one["slots"], one["extents"]) for one in turned] == [(2, [16, 8])]


def test_triton_comes_from_a_file_or_stdin(run, tmp_path):
    path = tmp_path / "layout.txt"
    path.write_text(wf.get(MMA).a.layout.to("triton"), encoding="utf-8")
    expected = {"instruction": FULL, "operand": "a"}
    for answer in (
        run("identify", "--triton", path, "--json"),
        run("identify", "--triton", "-", "--json", stdin=path.read_text(encoding="utf-8")),
    ):
        (layout,) = answer.json["layouts"]
        assert expected in layout["operands"]
        assert layout["bases"]["slot"] == ["c1"]


def test_a_fragment_is_found_by_its_tiles(run):
    answer = run("identify", f"{MMA}:d:col=3")
    assert answer.code == 0
    assert answer.lines == [
        "lane: c2 c4 r1 r2 r4 | reg: c1 r8 c8 c16 | slot: -",
        "No operand has this layout.",
        "",
        "Operands whose tiles form this layout:",
        "  col=3: c of mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 and 515 more",
        "  row=2,col=3: c of mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 and 99 more",
    ]


def test_tiles_of_several_warps_are_said_to_be(run):
    warps = wf.Layout.parse({"row": 64, "col": 16}, warp="r16 r32", lane="c2 c4 r1 r2 r4", reg="c1 r8 c8")
    lines = run("identify", "--triton", warps.to("triton"), "--slots", 1).lines
    assert "  row=4,col=2 in 4 warps: c of mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 and 515 more" in lines
    same = wf.Layout.parse({"row": 16, "col": 8}, warp="0 0", lane="c2 c4 r1 r2 r4", reg="c1 r8")
    assert "  the same in every warp: c of mma" in run("identify", "--triton", same.to("triton"), "--slots", 1).out


def test_what_is_near_is_said_and_the_status_is_no(run):
    text = "#ttg.linear<{lane = [[1, 0], [2, 0], [4, 0], [0, 2], [0, 4]], register = [[0, 1], [8, 0]]}>"
    answer = run("identify", "--triton", text)
    assert answer.code == 1
    assert answer.lines[3:5] == [
        "Similar operands:",
        "  lanes in a different order: c of mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 and 515 more",
    ]


def test_three_coordinates_need_names(run):
    load = wf.get("ldmatrix.m8n8.x4.shared.b16")
    words = ["identify", "--cute", load.d.layout.to("cute"), "--shape", "4x8x8", "--slots", 2, "--json"]
    (layout,) = run(*words, "--dims", "matrix,row,col").json["layouts"]
    assert {"instruction": load.name, "operand": "d"} in layout["operands"]
    assert run(*words).code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cute", "((_4,_8),(_2 _2)):((_16,_1),(_8,_64))", "--shape", "8x16"], "expected ',' or ')' at character 14"),
        (["--cute", CUTE_A], "has no matrix shape; pass it, as in --shape 16x8"),
        (
            ["--cute", CUTE_A, "--shape", "16*16"],
            "--shape: expected the extents of the matrix, such as 16x8; got '16*16'",
        ),
        (["--cute", CUTE_A, "--shape", "16x16", "--slots", "3"], "cannot divide the values into registers of 3"),
        (["--triton", "nowhere.txt"], "nowhere.txt"),
        ([], "expected one layout: INSTRUCTION:OPERAND, --cute or --triton; got none"),
        ([f"{MMA}:a", "--cute", CUTE_A], "--cute or --triton; got 2"),
        (["--triton", "#ttg.dot_op<{}>"], "#ttg.dot_op names a family of layouts and has no bases"),
    ],
)
def test_what_cannot_be_read_is_refused(refused, words, message):
    assert message in refused("identify", *words)


def test_all_operands_in_another_notation(run):
    assert run("get", MMA, "--to", "cute").lines == [
        FULL,
        f"a     {CUTE_A}",
        f"b     {CUTE_B}",
        "c, d  ((_4,_8),(_2,_2)):((_32,_1),(_16,_8))",
        "",
        "note: elements of a, c, d are numbered row + 16 * col",
        "note: elements of b are numbered col + 8 * row, because B is N x K in CuTe",
    ]
    assert run("get", MMA, "--to", "c").lines[1:4] == [
        "a     // i = 2 * reg + slot",
        "      int row = (i >> 1 & 1) * 8 + (lane >> 2);",
        "      int col = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);",
    ]
    assert run("get", MMA, "--to", "mlir", "--json").json["texts"]["d"] == wf.get(MMA).d.layout.to("mlir")


def test_tensor_memory_is_identified(run):
    text = "tmem_[32b](0x0000.0000) o ((_16,_4),_64):((_65536,_2097152),_1)"
    answer = run("identify", "--cute", text, "--json").json
    assert len(answer["layouts"]) == 1
    name = "tcgen05.mma.cta_group::1.kind::f16.m64n64k16.f32.f16.f16"
    assert {"instruction": name, "operand": "d"} in answer["layouts"][0]["operands"]
    load = "tcgen05.ld.sync.aligned.16x256b.x8.b32"
    loaded = run("identify", "--triton", wf.get(name).d.through(load).to("triton"), "--json")
    packed = "tcgen05.ld.sync.aligned.16x128b.x8.pack::16b.b32"  # if two values share a register
    assert {row["load"] for row in loaded.json["loads"]} == {load, packed}
    answer = run("identify", "--triton", wf.get(name).d.through(load).to("triton"), "--slots", 1)
    assert answer.code == 0
    assert answer.lines[-1].startswith(f"  {load}: d of tcgen05.mma.")
