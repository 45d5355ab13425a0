"""`warpfrag relayout`, `loads` and `stores`."""

import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"
HALF = "mma.m16n8k16.f16.f16.f16.f16"
FP8 = "mma.m16n8k32.f32.e4m3.e4m3.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def test_what_is_free_is_said_to_be(run):
    lines = run("relayout", f"{NAME}:d:col=2", f"{NAME}:a").lines

    assert lines[2:] == [
        "Free: no element changes its lane; 4 cvt convert.",
        "",
        " 1. 4 cvt  convert f32 to f16, 2 per word",
    ]
    assert run("relayout", f"{NAME}:a", f"{NAME}:A").lines[2:] == ["Nothing moves: the registers are the same."]


def test_a_plan_is_said_step_by_step(run):
    answer = run("relayout", f"{FP8}:d:col=4", f"{FP8}:a")

    assert " ".join(answer.lines[2:4]) == (
        "Elements change lanes: 4 shfl, 4 select, 4 prmt, 8 cvt. Cost 24 (instructions + shared-memory passes)."
    )
    assert answer.lines[7:9] == [
        " 3. 4 shfl    read words 0, 2 of lane f, words 1, 3 of lane f ^ 1; f = (lane & 28) + (lane & 1) * 2",
        "              + (lane >> 1 & 1)",
    ]
    counts = run("relayout", f"{FP8}:d:col=4", f"{FP8}:a", "--json").json["counts"]
    assert counts == {"shfl": 4, "movmatrix": 0, "select": 4, "prmt": 4, "cvt": 8}


def test_a_permutation_is_a_list_and_a_sentence(run):
    words = ["relayout", f"{FP8}:d:col=4", f"{FP8}:a", "--permute", "col"]
    mma = wf.get(FP8)
    order = wf.relayout(mma.d.tiled(col=4), mma.a, permute="col").permutation

    assert run(*words, "--json").json["permutation"] == list(order)
    sentence = "Target column j holds source column p[j]. Permute the rows of the other factor by p too: "
    assert sentence + " ".join(map(str, order)) in " ".join(run(*words).out.split())


@pytest.mark.parametrize("lang", ["cuda", "ptx"])
def test_code_is_printed_or_written(run, tmp_path, lang):
    mma = wf.get(NAME)
    plan, way = wf.relayout(mma.d, mma.b), wf.loads(mma.b, wf.Memory("row", 128, 128))[1]
    load = ["loads", NAME, "b", "--pitch", 128, "--swizzle", 128, "--plan", 2]

    assert run("relayout", f"{NAME}:d", f"{NAME}:b", "--emit", lang).out == plan.emit(lang)
    assert run(*load, "--emit", lang).out == way.emit(lang)
    path = tmp_path / "code"
    assert run(*load, "--emit", lang, "-o", path).out == f"{path}: {way.emit(lang).count(chr(10))} lines\n"
    assert path.read_text(encoding="utf-8") == way.emit(lang)


@pytest.mark.parametrize(
    "words", [["relayout", f"{NAME}:d", f"{NAME}:b"], ["loads", NAME, "a"], ["stores", NAME, "d", "--plan", 2]]
)
def test_figures_are_written(run, tmp_path, words):
    assert run(*words, "-o", tmp_path / "figure.svg") == run(*words)
    assert "lanes of the warp" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_plans_have_addresses_as_numbers_and_as_c(run):
    answer = run("loads", NAME, "b:col=2", "--order", "col", "--pitch", 128, "--swizzle", 128, "--lanes", "--plan", 1)

    assert answer.lines[1:] == [
        "from shared memory: col order, pitch 128, swizzle 128",
        "plan  instructions  passes  conflicts  cost  name",
        "   1             1       4          0     5  ldmatrix.m8n8.x4.shared.b16",
        "",
        "plan 1",
        "  ldmatrix.m8n8.x4.shared.b16, registers 0, 1, 2, 3",
        "    swizzle(base + (lane & 7) * 128 + (lane >> 3 & 1) * 16 + (lane >> 4) * 1024)",
        "    lane  0:      0    144    288    432    576    720    864   1008",
        "    lane  8:     16    128    304    416    592    704    880    992",
        "    lane 16:   1024   1168   1312   1456   1600   1744   1888   2032",
        "    lane 24:   1040   1152   1328   1440   1616   1728   1904   2016",
        "",
        "note: base is the start of the matrix in shared memory, as a 32-bit address, in bytes",
        "note: swizzle(a) = a ^ (a / 128 & 7) * 16 for 128 bytes; align the memory to 1024 bytes",
    ]


def test_plans_come_cheapest_first_and_fit_the_target(run):
    every = run("stores", HALF, "d", "--pitch", 48, "--json").json["plans"]
    older = run("stores", HALF, "d", "--pitch", 48, "--arch", "sm_80", "--json").json["plans"]

    assert [way["cost"] for way in every] == sorted(way["cost"] for way in every)
    assert every[0]["name"] == "stmatrix.sync.aligned.m8n8.x2.shared.b16"
    assert older == every[1:]
    assert [way["memory"]["swizzle"] for way in run("loads", NAME, "a", "--search", "--json").json["plans"]] == [
        0, 32, 64, 128
    ]  # fmt: skip
    assert "elements overlap" in run("stores", NAME, "d", "--pitch", 16).out


def test_packed_elements_are_unpacked(run):
    name = "mma.m16n8k32.kind::f8f6f4.f32.e3m2.e2m1.f32"
    answer = run("loads", name, "b", "--order", "col", "--pitch", 48, "--packed")

    assert answer.lines[3] == "   1             3       2          0     5  ldmatrix.m8n16.x2.shared.b8x16.b4x16_p64"
    assert "  then shift each word left by 2 bits" in answer.lines
    assert run("loads", name, "b", "--order", "col", "--packed", "--json").json["plans"][0]["shift"] == 2


def test_no_way_is_answered_with_no(run):
    # four-bit elements that do not lie side by side cannot be moved without taking bytes apart
    answer = run("loads", "mma.m16n8k64.s32.s4.s4.s32", "b", "--order", "row")

    assert (answer.code, answer.lines[-1]) == (1, "no plan")
    odd = run("loads", NAME, "a", "--pitch", 33, "--start", 2)
    assert (odd.code, odd.lines[-1]) == (1, "no plan: 2-byte elements are not aligned with pitch 33")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["relayout", NAME, f"{NAME}:a"], "expected INSTRUCTION:OPERAND, such as mma.m16n8k16"),
        (["relayout", f"{NAME}:d", f"{NAME}:a"], "source and target must have the same extents and threads"),
        (["relayout", f"{NAME}:d:x=2", f"{NAME}:a"], "tiles: expected row=N,col=N with N at least 1, such as col=2;"),
        (["relayout", f"{NAME}:d:col=0", f"{NAME}:a"], "tiles: expected row=N,col=N"),
        (["relayout", f"{NAME}:d:col=2,col=2", f"{NAME}:a"], "tiles: expected row=N,col=N"),
        (["relayout", f"{NAME}:d:col=99", f"{NAME}:a"], "d:col=99 takes 396 registers; a lane has at most 256"),
        (["relayout", f"{NAME}:q", f"{NAME}:a"], "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has no matrix 'q'"),
        (["relayout", f"{SCALED}:scale_a", f"{NAME}:a"], "mma.sync.aligned.m16n8k64.row.col.kind::mxf4"),
        (["relayout", f"{NAME}:a", f"{NAME}:b:col=2", "--permute", "col"], "no order of the cols keeps"),
        (["loads", NAME, "a", "--plan", 9], "--plan: expected a number from 1 to 3"),
        (["loads", NAME, "a", "--search", "--pitch", 128], "--search finds pitches and swizzles itself: leave out --p"),
        (["loads", NAME, "a", "--search", "--packed"], "--search finds pitches and swizzles itself: leave out --pac"),
        (["loads", NAME, "a", "--packed"], "packed needs 4-bit or 6-bit elements in bytes, such as A of kind::f8f6"),
        (["stores", NAME, "a", "--packed"], "No such option"),
        (["loads", NAME, "a", "--swizzle", 100], "Invalid value for '--swizzle'"),
        (["loads", NAME, "a", "--pitch", 0], "Invalid value for '--pitch': '0' is not in the range"),
        (["loads", "ldmatrix.m8n8.x4.b16", "d"], "operand d of ldmatrix"),
        (["stores", NAME, "d", "-o", "figure.doc"], "cannot save a figure as 'figure.doc'"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(refused, words, message):
    assert refused(*words).startswith(message)


@pytest.mark.parametrize(("source", "advice"), [(f"{NAME}:d", "col=2"), ("mma.m8n8k16.s32.s8.s8.s32:d", "row=2,col=2")])
def test_tiles_are_advised_as_the_command_spells_them(refused, source, advice):
    advised = f"; :row=N,col=N puts tiles side by side: {source}:{advice}"
    assert refused("relayout", source, f"{NAME}:a").endswith(advised)
    assert refused("relayout", f"{NAME}:a", source).endswith(advised)


def test_a_relayout_in_tensor_memory(run):
    name = "tcgen05.mma.cta_group::1.kind::f16.m64n64k16.f32.bf16.bf16"
    lines = run("relayout", f"{name}:d", f"{name}:a").lines
    assert lines[-3:] == [
        " 1. tcgen05.ld.sync.aligned.16x256b.x8.b32",
        " 2. free: 16 cvt",
        " 3. tcgen05.st.sync.aligned.16x128b.x8.b32",
    ]
    answer = run("relayout", f"{name}:d", f"{name}:a", "--json", "--emit", "cuda").json
    assert (answer["free"], answer["counts"]["cvt"]) == (True, 16)
    assert "tcgen05.wait::ld" in answer["code"]


def test_bank_conflicts_come_with_the_padding_and_the_swizzle_that_remove_them(run):
    name = "mma.m16n8k16.f32.f16.f16.f32"
    answer = run("loads", name, "b", "--pitch", "32")
    remedy = (
        "note: to remove the bank conflicts of the first plan: --pitch 48 (16 bytes of padding per row) or --swizzle 32"
    )

    assert " ".join(answer.out.split()).endswith(remedy)
    for words in (["--pitch", "48"], ["--pitch", "32", "--swizzle", "32"]):
        padded = run("loads", name, "b", *words, "--json").json
        assert (padded["plans"][0]["conflicts"], padded["remedies"]) == (0, [])
    stored = run("stores", name, "d", "--pitch", "128", "--json").json
    assert stored["plans"][0]["conflicts"] > 0
    assert stored["remedies"]
