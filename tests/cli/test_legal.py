"""`warpfrag legal` and `warpfrag find`."""

import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"
TRAPS = "mma.sp.m16n8k32.f32.f16.f16.f32"


def test_yes_is_exit_code_0(run):
    answer = run("legal", NAME, "--arch", "sm_80")

    assert answer.code == 0
    assert answer.lines[:2] == ["yes", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    assert answer.lines[2] == "short form; the full name adds .sync.aligned.row.col"
    assert answer.lines[3].startswith("legal on sm_80 sm_86 ")
    assert answer.lines[-1] == "needs PTX 7.0 or later on sm_80"


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        (NAME, ["sync", "aligned", "row", "col"]),
        ("mma.sync.m16n8k16.row.col.f32.f16.f16.f32", ["aligned"]),
        ("mma.col.f32.sync.m8n8k4.row.f16.aligned.f16.f32", []),
        ("MMA.SYNC.ALIGNED.M16N8K16.F32.F16.F16.F32", ["row", "col"]),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn", []),
        ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0", []),
        ("ldmatrix.sync.aligned.x4.m8n8.b16", []),
        ("ldmatrix.x4.m8n8.shared.b16", ["sync", "aligned"]),
    ],
)
def test_what_an_assembler_would_not_take_is_called_a_short_form(run, name, left_out):
    assert run("legal", name, "--json").json["left_out"] == left_out
    assert ("short form" in run("legal", name).out) == bool(left_out)


@pytest.mark.parametrize(
    ("name", "target", "version"),
    [
        ("wmma.mma.row.col.m16n16k16.f32.f32", "70", "6.3"),
        ("wmma.mma.row.col.m16n16k16.s32.s8.s8.s32", "sm_72", "6.3"),
        ("mma.m8n8k4.row.col.f32.f16.f16.f32", "sm_70", "6.4"),
        ("mma.m16n8k8.f32.f16.f16.f32", "sm_75", "6.5"),
        ("mma.m8n8k128.s32.b1.b1.s32.xor.popc", "sm_75", "7.0"),
        ("ldmatrix.m8n8.x4.shared.b16", "sm_75", "6.5"),
        ("ldmatrix.m8n8.x4.shared::cta.b16", "sm_75", "7.8"),
        (NAME, "SM107A", "9.4"),
        (NAME, "sm_101f", "8.8"),
    ],
)
def test_the_lowest_ptx_version_is_said(run, name, target, version):
    read = "sm_" + target.lower().removeprefix("sm").removeprefix("_")
    answer = run("legal", name, "--arch", target)

    assert f"needs PTX {version} or later on {read}" in answer.out
    assert ("ptxas from CUDA 12.9 or earlier" in answer.out) == (read in {"sm_70", "sm_72", "sm_101f"})
    for verb in ("legal", "get"):
        versions = run(verb, name, "--arch", target, "--json").json["ptx_versions"]
        assert versions[read] == version
        assert list(versions) == list(wf.get(name).targets)
    assert f"{version} on sm_" in run("get", name).out


def test_what_ptxas_advises_is_passed_on(run):
    plain, ordered = (f"{op}.m16n8k16.f32.f16.f16.f32" for op in ("mma.sp", "mma.sp::ordered_metadata"))
    for verb in ("legal", "get"):
        assert "ptxas advises mma.sp::ordered_metadata" in run(verb, plain).out
        assert "PTX 8.5" in run(verb, plain, "--json").json["advice"]
        assert "advise" not in run(verb, ordered).out
        assert run(verb, ordered, "--json").json["advice"] is None


def test_no_is_exit_code_1_with_a_reason_and_what_is_near(run):
    answer = run("legal", NAME, "--arch", "sm_75")

    assert answer.code == 1
    assert answer.lines[0] == "no"
    assert answer.lines[1].startswith("not available on sm_75; it is legal on sm_80,")
    assert "  near: mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" in answer.lines
    assert not answer.err


@pytest.mark.parametrize(("selector", "legal"), [(0, True), (1, True), (2, False), (4, False)])
def test_selectors_are_checked(run, selector, legal):
    answer = run("legal", TRAPS, "--arch", "sm_90", "--selector", selector, "--json")

    assert answer.code == (0 if legal else 1)
    assert answer.json["legal"] == legal
    assert legal or f"selector {selector}" in answer.json["reason"]
    assert legal or answer.json["nearest"] == []  # the instruction itself is none that is near


@pytest.mark.parametrize("name", ["SM90_TMA_LOAD", "wgmma.fence.sync.aligned"])
def test_what_is_out_of_scope_is_a_no_without_wrong_hints(run, name):
    answer = run("legal", name)

    assert answer.code == 1
    assert answer.lines[1].startswith("out of scope: ")
    assert "near:" not in answer.out
    assert run("legal", name, "--json").json["nearest"] == []


@pytest.mark.parametrize("words", [("x\x1b[31m" * 9,), (NAME, "--arch", "\x1b[31m"), ("mma.\x1b[31m",), ("\r\n\a",)])
def test_no_control_character_of_the_user_reaches_the_terminal(run, words):
    answer = run("legal", *words)

    assert answer.code in {1, 2}
    assert not {character for character in answer.out + answer.err if character != "\n" and ord(character) < 32}


def test_a_megabyte_is_not_repeated(run):
    for words in (["x" * 10**6], ["mma." + "x" * 10**6], [NAME, "--arch", "x" * 10**6]):
        answer = run("legal", *words)
        assert len(answer.out + answer.err) < 2000


def test_nonsense_is_a_no_and_not_an_error(run):
    answer = run("legal", "nonsense")

    assert answer.code == 1
    assert "unknown operation 'nonsense'" in answer.out


def test_a_target_that_does_not_exist_is_bad_input(refused):
    assert "unknown arch 'sm_1'" in refused("legal", NAME, "--arch", "sm_1")


def test_legal_in_json(run):
    found = {key: value for key, value in run("legal", NAME, "--arch", "sm_75", "--json").json.items() if value}

    assert found == {
        "schema": 2,
        "verb": "legal",
        "query": NAME,
        "arch": "sm_75",
        "reason": f"not available on sm_75; it is legal on {', '.join(wf.get(NAME).targets)}",
        "nearest": list(_nearest(NAME, "sm_75")),
    }


def _nearest(name, target):
    with pytest.raises(wf.errors.IllegalInstruction) as caught:
        wf.get(name, arch=target)
    return caught.value.nearest


def test_list_names_every_instruction_once(run):
    lines = run("find").lines

    assert lines == [instruction.name for instruction in wf.find()]
    assert len(set(lines)) == len(lines) > 600


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (["--arch", "sm_90a", "-a", "e4m3"], {"arch": "sm_90a", "a": "e4m3"}),
        (["--shape", "m16n8k64", "--sparse"], {"shape": "m16n8k64", "sparse": True}),
        (["--dense", "--kind", "mxf4"], {"kind": "mxf4", "sparse": False}),
        (["--op", "mma.sp"], {"op": "mma.sp"}),
        (["-b", "s8", "-c", "s32", "-d", "s32", "-a", "U8"], {"a": "u8", "b": "s8", "c": "s32", "d": "s32"}),
    ],
)
def test_list_answers_like_find(run, words, question):
    expected = [instruction.name for instruction in wf.find(**question)]

    assert expected
    assert run("find", *words).lines == expected
    found = run("find", *words, "--json").json
    assert [entry["name"] for entry in found["instructions"]] == expected
    assert found["count"] == len(expected)


def test_type_asks_for_any_operand(run):
    lines = run("find", "--type", "s32", "--op", "mma").lines

    assert lines
    assert lines == [name for name in run("find", "--op", "mma").lines if ".s32" in name]


@pytest.mark.parametrize(
    ("family", "operations"),
    [("wmma", {"wmma.mma", "wmma.load", "wmma.store"}), ("wgmma", {"wgmma.mma_async"})],
)
def test_a_family_stands_for_all_its_operations(run, family, operations):
    lines = run("find", "--op", family).lines

    assert lines == [name for name in run("find").lines if name.startswith(f"{family}.")]
    assert lines == [one.name for one in wf.find(op=family)]
    assert {".".join(name.split(".")[:2]) for name in lines} == operations
    assert set(run("find", "--op", family, "-a", "s8").lines) < set(lines)


def test_the_long_list_has_the_targets(run):
    lines = run("find", "--long", "-a", "e2m1", "--dense", "--kind", "mxf4").lines

    assert lines[0].split() == ["instruction", "architectures"]
    assert lines[1].split()[1:] == list(wf.find(a="e2m1", kind="mxf4", sparse=False)[0].targets)


def test_a_list_without_answers_is_empty_and_exit_code_1(run):
    answer = run("find", "--sparse", "-a", "b1")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "warpfrag: no instruction matches all of these filters\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-a", "e4m4"], "--a 'e4m4': no instruction has this value; a must be one of f16, f64, u8,"),
        (["--type", "f8"], "no instruction has the type 'f8'; expected one of b1, "),
        (["--shape", "16x8x16"], "--shape '16x8x16': no instruction has this value; shape must be one of "),
        (["--op", "wgmm"], "--op 'wgmm': no instruction has this value; op must be one of mma, mma.sp,"),
        (["--kind", "mxfp4"], "--kind 'mxfp4': no instruction has this value; kind must be one of f8f6f4,"),
    ],
)
def test_a_word_that_no_instruction_has_is_refused(refused, words, message):
    assert refused("find", *words).startswith(message)


def test_what_is_near_a_dense_instruction_is_dense(run):
    dense = run("legal", "mma.m16n8k32.f32.e4m3.e4m3.f32", "--arch", "sm_86", "--json").json["nearest"]
    sparse = run("legal", "mma.sp.m16n8k64.f32.e4m3.e4m3.f32", "--arch", "sm_86", "--json").json["nearest"]

    assert dense
    assert not [name for name in dense if name.startswith("mma.sp")]
    assert sparse
    assert all(name.startswith("mma.sp") for name in sparse)


def test_the_architecture_may_come_after_the_instruction(run):
    name = "mma.m16n8k16.f32.f16.f16.f32"
    assert run("legal", name, "sm_75", "--json").json == run("legal", name, "--arch", "sm_75", "--json").json
    assert (run("legal", name, "A100").code, run("legal", name, "sm_75").code) == (0, 1)


def test_wgmma_stands_for_wgmma_mma_async(run):
    answer = run("legal", "wgmma.m64n8k16.f32.f16.f16")
    assert answer.lines[:2] == ["yes", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"]


def test_one_architecture_is_asked_for(refused):
    words = "legal", "mma.m16n8k32.f32.e4m3.e4m3.f32"

    said = refused(*words, "--arch", "A100", "--arch", "RTX 4090")
    assert said == "--arch is given 2 times; expected one value (see warpfrag legal --help)"
    assert refused(*words, "A100", "--arch", "RTX 4090").startswith("the architecture is given twice: ")
