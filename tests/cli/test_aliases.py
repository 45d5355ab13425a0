"""`warpfrag aliases`: names from other tools, in text and JSON."""

import subprocess
import sys

import pytest

import warpfrag as wf

NAME = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ATOM = "SM80_16x8x16_F32F16F16F32_TN"
INTRINSIC = "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"


@pytest.mark.parametrize(
    "text", [NAME, ATOM, "HMMA.16816.F32", INTRINSIC, f'asm("{NAME} {{%0}}"', f"%0 = call @{INTRINSIC}("]
)
def test_every_name_shows_all_others(run, text):
    answer = run("aliases", text)
    lines = answer.out.splitlines()

    assert (answer.code, answer.err) == (0, "")
    assert lines[0] == NAME
    assert lines[1] == f"  CuTe  {ATOM}"
    assert lines[2] == "  SASS  HMMA.16816.F32  (sm_80 sm_89 sm_90 sm_100a sm_120a)"
    assert lines[3] == f"  NVVM  {INTRINSIC}"
    assert " ".join(line.strip() for line in lines[4:7]) == f"MLIR  {wf.aliases(NAME)['mlir']}"


@pytest.mark.parametrize(
    "text",
    [
        "SM100_MMA_S8_SS<int8_t>",
        "tcgen05.mma.cta_group::1.kind::i8.m128n128k32.s32.s8.s8",
        "tcgen05.shift.cta_group::1.down",
    ],
)
def test_names_of_tcgen05_are_shown_in_both_directions(run, text):
    (row,) = run("aliases", text, "--json").json["instructions"]
    known = wf.aliases(row["instruction"])
    assert {key: row[key] for key in ("cute", "sass", "nvvm", "mlir")}.items() <= known.items()
    assert row["nvvm"].startswith("llvm.nvvm.tcgen05.")
    assert row["mlir"].startswith("nvvm.tcgen05.")


def test_json_has_what_aliases_have(run):
    answer = run("aliases", "HMMA.SP.16816.F32", "--json").json

    assert answer["notation"] == "sass"
    assert [row["instruction"] for row in answer["instructions"]] == [
        f"{op}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" for op in ("mma.sp", "mma.sp::ordered_metadata")
    ]
    for row in answer["instructions"]:
        known = wf.aliases(row.pop("instruction"))
        assert row.pop("synonyms") == list(known["also"])
        assert row == {name: value for name, value in known.items() if name != "also"}


def test_what_is_made_of_an_instruction_is_told_from_its_names(run):
    text = run("aliases", "SM80_8x8x4_GC64C64C64GC64_TN").out
    assert text.startswith("SM80_8x8x4_GC64C64C64GC64_TN is a complex product, made of three real ones (Gauss):\n")
    among = run("aliases", "HMMA.16816.F32")
    assert "HMMA.16816.F32 is also emitted for:\n" in among.out
    assert "--json lists all" in among.out
    listed = run("aliases", "HMMA.16816.F32", "--json").json["expands_to"]
    assert "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32" in listed
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" in listed
    assert len(listed) > 12


def test_a_long_list_is_cut(run):
    lines = run("aliases", "SM120_16x8x32_TN").out.splitlines()

    assert lines[-1] == "... and 38 more; --json lists all"
    assert len(run("aliases", "SM120_16x8x32_TN", "--json").json["instructions"]) == 50


def test_source_with_several_instructions_shows_each(run):
    answer = run("aliases", f'asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0}}, [%1];" "{NAME} {{%2}};"')

    assert answer.code == 0
    assert [line for line in answer.out.splitlines() if line[:1].isalpha()] == [
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        NAME,
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SM90_TMA_LOAD", "out of scope: sm90_tma_load is"),
        ("nvgpu.warpgroup.mma %a, %b", "an MLIR operation that is lowered to several wgmma"),
        ("llvm.nvvm.wgmma.fence.sync.aligned", "an LLVM intrinsic for a wgmma fence"),
        ("v_mfma_f32_32x32x8_f16", "an AMD instruction"),
        ("HMMA.16818.F32", "unknown machine code (SASS)"),
        ("SM80_16x8x16_F32F16F16F16_TN", "unknown CuTe atom"),
        ("llvm.nvvm.mma.m16n8k16.row.col.f32", "unknown NVVM intrinsic"),
        ("nonsense", "unknown operation 'nonsense'"),
    ],
)
def test_what_means_nothing_is_a_no_with_what_is_near(run, text, said):
    answer = run("aliases", text)

    assert (answer.code, answer.err) == (1, "")
    assert answer.out.startswith("no\n")
    assert said in " ".join(answer.out.split())
    refused = run("aliases", text, "--json").json
    assert (refused["notation"], refused["instructions"]) == (None, [])
    near = [line.removeprefix("  near: ") for line in answer.out.splitlines() if line.startswith("  near: ")]
    assert near == refused["nearest"]
    assert bool(near) == (said.startswith("unknown ") and "operation" not in said)


def test_missing_types_are_counted(run):
    assert run("aliases", "ldmatrix").lines[1] == "expected an element type of ldmatrix, got none"
    assert run("aliases", "mma.m16n8k16").lines[1] == "expected 4 element types of mma (D, A, B, C), got none"


def test_gpus_and_types_have_names_too(run):
    assert run("aliases", "NVIDIA GeForce RTX 4090").out == "RTX 4090 is sm_89\n"
    for gpu, arch in {
        "H20": "sm_90a",
        "H800": "sm_90a",
        "A800": "sm_80",
        "A10G": "sm_86",
        "RTX PRO 6000": "sm_120a",
    }.items():
        assert run("aliases", gpu).out == f"{gpu} is {arch}\n"
    assert run("aliases", "RTX PRO 6000 Blackwell").out == "RTX PRO 6000 Blackwell is sm_120a\n"
    assert run("aliases", "H200", "--json").json["arch"] == "sm_90a"
    assert run("aliases", "fp8").out == "fp8 is e4m3 or e5m2\n"
    assert run("aliases", "nvfp4", "--json").json["requires"] == {"kind": ["mxf4nvf4"], "scale_type": ["ue4m3"]}


def test_every_verb_takes_names_from_elsewhere(run):
    assert run("where", ATOM, "a", "9", "3").out == run("where", NAME, "a", "9", "3").out
    assert run("get", "HMMA.16816.F32").out == run("get", NAME).out
    assert run("find", "-a", "fp8", "--arch", "RTX 4090").out == "".join(
        f"{one.name}\n" for one in wf.find(arch="sm_89") if one.form.a in {"e4m3", "e5m2"}
    )
    legal = run("legal", f'asm volatile("{NAME} {{%0}}"', "--arch", "A100")
    assert legal.out.startswith("yes\n")
    assert "abbreviation" not in legal.out
    assert "on sm_80" in legal.out


def test_a_look_up_by_another_name_imports_no_numpy():
    code = (
        "import sys; from warpfrag.cli import main\n"
        f"assert main(['aliases', {ATOM!r}]) == main(['aliases', 'HMMA.16816.F32', '--json']) == 0\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'ml_dtypes', 'numba')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)

    assert (done.returncode, done.stderr) == (0, "")
