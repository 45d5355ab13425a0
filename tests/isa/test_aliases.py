"""Names in other tools: every name leads to its instruction, and back.

The lists in tests/data are what CUTLASS, LLVM and public kernels have; our tables do not read them.
"""

import csv
import re
import tomllib
from pathlib import Path

import ml_dtypes
import pytest

import warpfrag as wf
from warpfrag.formats.number_formats import FORMATS, format_aliases, format_name
from warpfrag.isa.alias_names import is_plain, named, statements
from warpfrag.isa.aliases import aliases_of, forms_with_opcode, users
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import forms
from warpfrag.isa.targets import gpu_called, gpus, targets

DATA = Path(__file__).parents[1] / "data"
NAME = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def lines(name):
    return [line for line in (DATA / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


ATOMS = [(row["atom"], row["ptx"]) for row in csv.DictReader(lines("cutlass_atoms.csv"))]
WGMMA_ATOMS = [
    f"{row['before']}{n}{row['behind']}"
    for row in csv.DictReader(lines("cutlass_wgmma_atoms.csv"))
    for n in row["n"].split()
]
INTRINSICS = lines("llvm_intrinsics.txt")
PASTED = tomllib.loads((DATA / "pasted.toml").read_text(encoding="utf-8"))["line"]


def names(instruction):
    found = wf.aliases(instruction)
    return {found["cute"], found["nvvm"], found["mlir"], *found["also"]} - {None}


def refusal(text):
    with pytest.raises(wf.errors.IllegalInstruction) as error:
        wf.get(text)
    return error.value


def test_the_promised_shape_of_aliases():
    found = wf.aliases(wf.get(NAME))

    assert found["cute"] == "SM80_16x8x16_F32F16F16F32_TN"
    assert found["sass"]["sm_90"] == "HMMA.16816.F32"
    assert found["nvvm"] == "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
    assert found["mlir"].startswith("nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%c0, %c1, %c2, %c3] {layoutA")
    assert found == wf.aliases("HMMA.16816.F32")
    rounded = wf.aliases("mma.m8n8k4.f64.f64.f64.f64.rz")
    assert (rounded["cute"], rounded["nvvm"], rounded["mlir"], rounded["also"]) == (None, None, None, ())
    assert rounded["sass"]["sm_80"] == "DMMA.884.RZ"


def test_every_atom_of_cutlass_gives_its_instruction_and_comes_back():
    assert len(ATOMS) == 276
    for atom, ptx in ATOMS:
        instruction = wf.get(atom)

        assert instruction is wf.get(ptx), atom
        assert atom in names(instruction), atom
        assert wf.get(f"using Atom = cute::MMA_Atom<cute::{atom}>;") is instruction
    of_a_warp = {name for name, (entry,) in named("cute").items() if not entry.form.op.startswith("wgmma")}
    assert of_a_warp == {atom.lower() for atom, _ in ATOMS}


def test_every_atom_of_wgmma_gives_the_product_that_its_name_says_and_comes_back():
    kind = r"((?:[BT]?F|[SU])\d+|E\dM\d)"
    said = re.compile(rf"_(\d+)x(\d+)x(\d+)_([FS]\d\d){kind}{kind}_[SR]S(_TN)?(_SATURATE)?$")
    assert len(WGMMA_ATOMS) == 2112
    for atom in WGMMA_ATOMS:
        instruction, form = wf.get(atom), wf.get(atom).form
        *shape, d, a, b, _, saturate = said.search(atom).groups()

        assert tuple(map(int, shape)) == tuple(form.shape), atom
        assert (d, a, b) == tuple(getattr(form, role).upper() for role in "dab"), atom
        assert (bool(saturate), "SPARSE" in atom) == (form.satfinite, form.is_sparse), atom
        assert form.op.startswith("wgmma")
        assert atom in names(instruction)
    of_wgmma = {one.name for one in wf.find() if one.op.startswith("wgmma")}
    assert {wf.get(atom).name for atom in WGMMA_ATOMS} == {name for name in of_wgmma if ".b1." not in name}


def test_an_atom_that_leaves_its_types_open_lists_what_fits():
    error = refusal("SM120_16x8x32_TN")
    assert "CuTe atom matches 50 instructions" in error.reason
    assert all(wf.get(name).kind == "f8f6f4" for name in error.nearest)
    scaled = "SM120::BLOCKSCALED::SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, VS>"
    assert {wf.get(name).form.scale_vec for name in refusal(scaled).nearest} == {"2X", "4X"}
    assert wf.get(scaled.replace("VS>", "16>")).form.scale_vec == "4X"


def test_intrinsics_are_those_of_llvm():
    """All LLVM intrinsics are known, except those that no assembler accepts any more; all known names are LLVM's."""
    ours = {entry.name: entry.form for entries in named("nvvm").values() for entry in entries}
    gone = [name for name in INTRINSICS if name not in ours]

    assert len(INTRINSICS) == 831
    assert set(ours) == set(INTRINSICS) - set(gone)
    assert len(gone) == 48
    for name in gone:
        assert re.fullmatch(r"llvm\.nvvm\.wmma\.m\d+n\d+k16\.mma\.\w+\.\w+\.f(16|32)\.f(16|32)\.satfinite", name)
        assert "before version 6.5" in refusal(name).reason
    for name, form in ours.items():
        instruction = wf.get(f"call @{name}.p3(" if "matrix" in name else name)
        assert instruction.form == form
        assert name in names(instruction)


def test_an_intrinsic_says_what_its_instruction_says():
    """Independent of the rows: the words of an intrinsic are words of its instruction, and the shapes are equal."""
    spelled = {"kind": "kind::f8f6f4", "stride": "", "mma": "", "block": "block_scale", "scale": "", "metadata": ""}
    for name in set(INTRINSICS) & {entry.name for entries in named("nvvm").values() for entry in entries}:
        said = wf.get(name).name.lower().replace("::", ".").replace("_", ".").split(".")
        words = [word for word in name.removeprefix("llvm.nvvm.").replace("_", ".").split(".") if word not in spelled]
        missing = [word for word in words if word not in said and not re.fullmatch(r"\dx|rn|x\d", word)]
        assert not missing, (name, missing)


@pytest.mark.parametrize("notation", ["cute", "nvvm", "mlir"])
def test_a_name_is_one_instruction(notation):
    for name, entries in named(notation).items():
        assert len(entries) == 1, name


def test_every_text_of_mlir_is_read_back():
    count = 0
    for form in forms():
        text = aliases_of(form)["mlir"]
        if text:
            count += 1
            assert wf.get(f"%0 = {text}").form == form, text
            shuffled = re.sub(r"\{(.*)\}(?= :)", lambda found: "{" + ", ".join(_attributes(found[1])[::-1]) + "}", text)
            assert wf.get(shuffled).form == form, shuffled
    assert count > 400


def _attributes(text):
    return re.findall(r"\w+ = #[\w.]+<[^>]*>|\w+ = \d+ : i32|orderedMetadata", text)


def test_both_spellings_of_attributes_in_mlir_are_read():
    new = (
        "%0 = nvvm.mma.sp.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1, %b2, %b3] C[%c0, %c1] sparseMetadata[%e] selector[%s]"
        " shape = <m = 16, n = 8, k = 64>, multiplicand_a_ptx_type = e3m2, multiplicand_b_ptx_type = e2m1,"
        " ordered_metadata, kind = f8f6f4 : (i32, i32, vector<2xf16>) -> !llvm.struct<(vector<2xf16>, vector<2xf16>)>"
    )
    assert wf.get(new) is wf.get("mma.sp::ordered_metadata.m16n8k64.kind::f8f6f4.f16.e3m2.e2m1.f16")
    open_types = "nvvm.mma.sync A[%0] B[%1] C[%2] {shape = #nvvm.shape<m = 16, n = 8, k = 16>}"
    assert "matches 11 instructions" in refusal(open_types).reason


@pytest.mark.parametrize(
    ("shape", "operands", "name"),
    [
        (
            "<m = 64, n = 32, k = 16>",
            "D[<f32>, <zero>], A[<f16>, <neg>, <col>], B[<f16>, <neg>, <col>]",
            "wgmma.mma_async.m64n32k16.f32.f16.f16",
        ),
        (
            "#nvvm.shape<m = 64, n = 8, k = 32>",
            (
                "\n D [<s32>, #nvvm.wgmma_scale_out<one>, <satfinite>],\n A [<s8>, #nvvm.wgmma_scale_in<one>, <row>],\n"
                " B [<u8>, #nvvm.wgmma_scale_in<one>, <col>]"
            ),
            "wgmma.mma_async.m64n8k32.s32.s8.u8.satfinite",
        ),
        (
            "<m = 64, n = 128, k = 16>",
            "D[<f32>, <one>], A[<bf16>, <one>, <row>], B[<bf16>, <one>, <row>]",
            "wgmma.mma_async.m64n128k16.f32.bf16.bf16",
        ),
    ],
)
def test_wgmma_is_read_as_mlir_prints_it(shape, operands, name):
    types = "!llvm.struct<(f32, f32, f32, f32)>"
    text = f"%5 = nvvm.wgmma.mma_async %0, %1, %4, {shape}, {operands} : {types} -> {types}"

    assert wf.get(text) is wf.get(name)
    assert wf.get(aliases_of(wf.get(name).form)["mlir"]) is wf.get(name)
    assert "several wgmma" in refusal("nvgpu.warpgroup.mma %a, %b, %c").reason
    assert "a wgmma fence or wait" in refusal("nvvm.wgmma.wait.group.sync.aligned 1").reason


@pytest.mark.parametrize(
    ("types", "attributes", "name"),
    [
        ("vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>", "mmaShape = [16, 8, 16]", NAME),
        ("vector<2x2xf16>, vector<1x2xf16>, vector<2x2xf16>", "mmaShape = [16, 8, 8]", "mma.m16n8k8.f16.f16.f16.f16"),
        (
            "vector<4x4xi8>, vector<2x4xi8>, vector<2x2xi32>",
            "mmaShape = [16, 8, 32]",
            "mma.m16n8k32.satfinite.s32.s8.s8.s32",
        ),
        (
            "vector<2x8xi4>, vector<1x8xi4>, vector<2x2xi32>",
            "mmaShape = [16, 8, 32]",
            "mma.m16n8k32.satfinite.s32.s4.s4.s32",
        ),
        ("vector<1x1xf64>, vector<1x1xf64>, vector<1x2xf64>", "mmaShape = [8, 8, 4]", "mma.m8n8k4.f64.f64.f64.f64"),
        (
            "vector<2x1xf32>, vector<1x1xf32>, vector<2x2xf32>",
            "mmaShape = [16, 8, 4], tf32Enabled",
            "mma.m16n8k4.f32.tf32.tf32.f32",
        ),
    ],
)
def test_nvgpu_has_the_products_of_its_vectors(types, attributes, name):
    text = f"nvgpu.mma.sync (%a, %b, %c) {{{attributes}}} : ({types}) -> {types.rpartition(', ')[2]}"

    assert wf.get(f"%d = {text}") is wf.get(name)
    assert text in wf.aliases(name)["also"]


def test_every_opcode_leads_to_what_becomes_it():
    count = 0
    for form in forms():
        for code in aliases_of(form)["sass"].values():
            for opcode in re.findall(r"[A-Z]+(?:\.\w+)+", code):
                found = _instructions_of(opcode)
                plain = [name for name in found if not name.startswith("wmma")]
                is_alone = code == opcode and not (form.is_wmma and plain)
                assert not is_alone or spell(form) in found, (opcode, found)
                count += 1
    assert count > 1900
    for opcode in list(users())[::40]:  # one is found by patterns, all by writing every name
        assert forms_with_opcode(opcode) == users()[opcode], opcode


def _instructions_of(opcode):
    alone, among = users()[opcode.lower()]
    return [spell(form) for form in alone or among]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/*0240*/ @P0 HMMA.16816.F32.BF16 R4, R8.reuse, R12, R4 ;", "mma.m16n8k16.f32.bf16.bf16.f32"),
        ("hmma.16816.f32", NAME),
        ("QMMA.16832.F32.E4M3.E5M2", "mma.m16n8k32.f32.e4m3.e5m2.f32"),
        ("IMMA.16832.S8.U8.SAT", "mma.m16n8k32.satfinite.s32.s8.u8.s32"),
        ("LDSM.16.MT88.4 R4, [R2+0x100]", "ldmatrix.m8n8.x4.trans.shared.b16"),
        ("IGMMA.SP.64x64x64.S8.U8.SAT", "wgmma.mma_async.sp.m64n64k64.s32.s8.u8.satfinite"),
        ("STSM.16.M88.2", "stmatrix.m8n8.x2.shared.b16"),
        ("MOVM.16.MT88", "movmatrix.m8n8.trans.b16"),
        ("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8]", "wgmma.mma_async.m64n128k16.f32.bf16.bf16"),
    ],
)
def test_machine_code_is_taken_as_a_disassembler_prints_it(text, name):
    if text.startswith("QMMA"):  # with and without its kind, the machine does the same
        assert wf.get(name).name in refusal(text).nearest
    else:
        assert wf.get(text) is wf.get(name)


def test_machine_code_of_several_and_of_none():
    both = refusal("HMMA.SP.16816.F32")
    assert both.nearest == tuple(
        wf.get(f"{op}.m16n8k16.f32.f16.f16.f32").name for op in ("mma.sp", "mma.sp::ordered_metadata")
    )
    assert "matches 24 instructions" in refusal("HMMA").reason
    nothing = refusal("HMMA.16818.F32")
    assert nothing.reason == "unknown machine code (SASS)"
    assert wf.get(NAME).name in nothing.nearest


@pytest.mark.parametrize("line", PASTED, ids=lambda line: f"{line['of'].partition(':')[0]}-{line['ptx']}")
def test_pasted_lines_of_public_kernels_are_understood(line):
    assert wf.get(line["text"]) is wf.get(line["ptx"])


def test_the_pasted_lines_are_of_many_projects_and_instructions():
    assert len(PASTED) == 113
    assert {line["of"].partition(":")[0] for line in PASTED} == {
        "FlashAttention",
        "llama.cpp",
        "vLLM",
        "CUTLASS",
        "ThunderKittens",
        "FlashInfer",
    }
    assert len({line["ptx"] for line in PASTED}) > 60


@pytest.mark.parametrize(
    "text",
    [
        f"@%p1 {NAME} {{%f1, %f2}}, ...;",
        f"@!p {NAME} {{%0}};",
        'asm volatile("mma.sync.aligned.m16n8k16"\n    ".row.col.f32.f16.f16.f32 "\n    "{%0,%1,%2,%3}, " : "+f"(d[0])',
        f'R"({{ .reg .pred p; setp.ne.b32 p, %1, 0; @p {NAME} {{%0}}; }})"',
        f'asm("{{\\n\\t// the product\\n\\t{NAME}\\n\\t{{%0}}, {{%1}};}}"',
        f'/* one {NAME.replace("f32", "f16")} a step */ asm("{NAME} {{%0}}" : )',
        f'  "{NAME.upper()} {{%0}}"  \\',
        f"\t{NAME}\t{{%r1,%r2,%r3,%r4}}, {{%r5}}; // Begin inline asm",
    ],
)
def test_source_around_an_instruction_does_not_matter(text):
    assert wf.get(text) is wf.get(NAME)


def test_words_in_a_later_piece_of_a_string_count():
    text = 'asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"\n    ".satfinite {%0}, ..."'
    assert wf.get(text).form.satfinite


def test_the_nearest_of_many_shapes_are_named():
    wrong = refusal("wgmma.m64n100k16.f32.f16.f16")
    assert wrong.reason.endswith(" such as m64n96k16, m64n104k16, m64n88k16")
    assert wrong.nearest[:2] == tuple(wf.get(f"wgmma.m64n{n}k16.f32.f16.f16").name for n in (96, 104))


def test_an_alias_of_a_type_is_not_a_qualifier_but_is_known():
    assert refusal("mma.m16n8k16.fp16.fp16.fp16.fp16").reason == "unknown qualifier 'fp16': PTX spells it f16"
    assert refusal("mma.m16n8k32.f32.fp8.fp8.f32").reason == "unknown qualifier 'fp8': PTX spells it e4m3 or e5m2"


def test_source_with_a_macro_in_a_name_or_with_several_instructions_is_refused():
    macro = refusal('asm("mma.sync.aligned.m16n8k16.row.col." TYPE ".f16.f16.f32 {%0}" : )')
    assert macro.reason == "unknown qualifier '?'"
    assert wf.get(NAME).name in macro.nearest
    several = refusal(f'asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0}}, [%1];\\n" "{NAME} {{%2}};\\n"')
    assert several.reason == "the text contains 2 instructions; choose one"
    assert several.nearest == ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", NAME)
    assert statements("nothing here") == ()
    assert not is_plain("x" * 10_000)


@pytest.mark.parametrize("name", ["SM80_16x8x16_F32F16F16F32_TN", "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"])
def test_names_from_elsewhere_are_taken_wherever_an_instruction_is(name):
    ones = [[1.0] * 16] * 16
    narrow = [row[:8] for row in ones]

    assert wf.gemm(ones, narrow, instruction=name, arch="H100").tolist() == [[16.0] * 8] * 16
    assert wf.get(name, arch="RTX 4090") is wf.get(NAME)
    with pytest.raises(wf.errors.IllegalInstruction, match="not available on sm_75"):
        wf.get(name, arch="T4")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("H100", "sm_90a"),
        ("NVIDIA H100 80GB HBM3", "sm_90a"),
        ("h200", "sm_90a"),
        ("A100-SXM4-80GB", "sm_80"),
        ("Tesla V100-SXM2-16GB", "sm_70"),
        ("Tesla T4", "sm_75"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "sm_89"),
        ("4090", "sm_89"),
        ("A6000", "sm_86"),
        ("5090", "sm_120a"),
        ("Orin", "sm_87"),
        ("AGX-Thor", "sm_110a"),
        ("thor", "sm_110a"),
        ("rtx4090", "sm_89"),
        ("RTX 3090 Ti", "sm_86"),
        ("rtx-5090", "sm_120a"),
        ("L40S", "sm_89"),
        ("B200", "sm_100a"),
        ("GB300", "sm_103a"),
        ("Jetson Orin", "sm_87"),
        ("Jetson Thor", "sm_110a"),
        ("DGX Spark", "sm_121a"),
        ("RTX 6000 Ada Generation", "sm_89"),
        ("Quadro RTX 6000", "sm_75"),
    ],
)
def test_gpus_are_targets(text, target):
    assert gpus()[gpu_called(text)] == target
    assert wf.find(arch=text) == wf.find(arch=target)


def test_unknown_gpus_are_refused_with_what_is_near():
    assert set(gpus().values()) <= set(targets())
    with pytest.raises(wf.errors.IllegalInstruction, match=r"a GPU such as H100 \(docs/reference/tables.md\)") as error:
        wf.find(arch="H10O")
    assert error.value.nearest[0] == "H100"
    assert [gpu_called(text) for text in ("RTX 6000", "6000", "Quadro 6000", "Titan")] == [
        None
    ] * 4  # of two generations, or none


@pytest.mark.parametrize(
    ("alias", "types"),
    [("fp8", {"e4m3", "e5m2"}), ("half", {"f16"}), ("BFloat16", {"bf16"}), ("torch.int8", {"s8"}), ("binary", {"b1"})],
)
def test_aliases_of_types_find_instructions(alias, types):
    found = [one for one in wf.find(a=alias) if not one.op.startswith("tcgen05")]

    assert {instruction.form.a for instruction in found} == types
    assert found == [instruction for instruction in wf.find() if instruction.form.a in types]


def test_aliases_with_scales_say_which():
    scaled = {
        (one.form.kind, one.form.scale_type, one.form.scale_vec)
        for one in wf.find(a="nvfp4", b="nvfp4")
        if one.op[0] == "m"
    }
    assert scaled == {("mxf4nvf4", "ue4m3", "4X")}
    assert {one.form.kind for one in wf.find(a="mxfp8")} == {"mxf8f6f4"}
    assert {one.form.scale_type for one in wf.find(a="mxfp4")} == {"ue8m0"}
    for name, row in format_aliases().items():
        role = "d" if row.types == ("s32",) else "a"
        assert wf.find(**{role: name}) or row.types == ("f32",), name


def test_every_alias_of_one_format_is_a_dtype_too():
    """An alias with several formats, or with requirements such as scales, is not one dtype."""
    formats = {name: row.types[0] for name, row in format_aliases().items() if len(row.types) == 1 and not row.lists}
    assert {row.dtype for row in FORMATS.values() if row.dtype in format_aliases()} <= formats.keys()
    for name, meant in formats.items():
        assert format_name(name, sorted(FORMATS)) == meant, name
        assert format_name(f"cutlass::{name.upper()}", sorted(FORMATS)) == meant, name
        if meant in ("f16", "bf16", "tf32", "e4m3", "s8"):
            assert wf.predict_order(64, 64, 64, dtype=name) == wf.predict_order(64, 64, 64, dtype=meant), name
    assert len(formats) > 40
    for name in format_aliases().keys() - formats:
        with pytest.raises(wf.errors.InvalidOperand, match="expected one of"):
            format_name(name, sorted(FORMATS))


@pytest.mark.parametrize("spelling", ["BF16", "Bfloat16", "torch.bfloat16", ml_dtypes.bfloat16, "__nv_bfloat16"])
def test_a_dtype_has_many_spellings(spelling):
    assert wf.Epilogue(result=spelling) == wf.Epilogue(result="bf16")
    assert wf.predict_order(64, 64, 64, dtype=spelling).kind.type == "bf16"
    assert format_name("F32", ["bf16", "tf32"]) == "tf32"  # its numbers are float32
    for name, known in (("tf32", ["f32"]), ("ue4m3", ["e4m3"]), ("s4", ["s8"])):
        with pytest.raises(wf.errors.InvalidOperand, match="expected one of"):
            format_name(name, known)
