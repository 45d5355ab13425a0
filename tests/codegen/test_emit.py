"""The text that `emit` writes: names, targets, versions, errors. oracle/test_assembler.py assembles it."""

import re
import subprocess
import sys

import pytest

from instructions import every
from warpfrag import find, get
from warpfrag.codegen.cuda_functions import register_array
from warpfrag.codegen.emit import emit, raw_module
from warpfrag.codegen.ptx_kernels import raw_kernel
from warpfrag.codegen.statement import choices, identifier, immediates, raw_name, registers, statement
from warpfrag.errors import IllegalInstruction, InvalidOperand, WarpfragError
from warpfrag.isa.immediates import Immediates

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def test_every_instruction_has_a_name_of_its_own_in_both_languages():
    names = [identifier(instruction) for instruction in find()]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]\w*", name) for name in names)


@pytest.mark.slow
def test_every_kernel_has_a_name_of_its_own():
    every = find(arch="sm_120a")
    cuda = re.findall(r"__global__ void (\w+)", emit(every, arch="sm_120a", kernels=True))
    text = re.findall(r"\.entry (\w+)", emit(every, lang="ptx", arch="sm_120a"))

    assert len(set(cuda)) == len(cuda) > 800
    assert len(set(text)) == len(text) > len(every)
    assert all(entry.endswith("_raw") for entry in text)


@pytest.mark.slow
def test_a_header_holds_nothing_that_one_program_may_hold_once():
    text = emit(find(arch="sm_120a"), arch="sm_120a")
    functions = re.findall(r"^__device__ (\w*)", text, re.MULTILINE)

    assert "__global__" not in text
    assert set(functions) == {"__forceinline__"}
    assert len(functions) > 2000


def test_kernels_come_behind_the_header():
    assert emit(MMA, kernels=True).startswith(emit(MMA))


def test_a_unit_holds_each_instruction_once():
    once = emit([MMA, "mma.m16n8k16.f32.f16.f16.f32", get(MMA)])

    assert once == emit(MMA)
    assert emit([MMA, SPARSE]).count("#ifndef WARPFRAG_ELEMENT") == 1


def test_headers_for_several_targets_may_be_included_together():
    plain, newer = (emit("mma.m16n8k16.f16.f16.f16.f16", arch=target) for target in (None, "sm_90"))
    guards = [re.findall(r"#ifndef (\w+)", text) for text in (plain, newer)]

    assert newer.startswith(plain)
    assert [guard.rpartition("F16_F16_F16_F16_")[2] for guard in guards[1][len(guards[0]) :]] == [
        "STMATRIX_D_ROW",
        "STMATRIX_D_COL",
    ]


@pytest.mark.parametrize("lang", ["cuda", "ptx"])
def test_the_wmma_of_two_architectures_is_one_text(lang):
    name = "wmma.mma.row.col.m16n16k16.f32.f16"
    both = [get(name, arch="sm_80"), get(name, arch="sm_90")]

    assert both[0] != both[1]
    assert emit(both, lang=lang) == emit(name, lang=lang)


@pytest.mark.parametrize(
    ("name", "role", "constraint", "c_type"),
    [
        (MMA, "a", "r", "uint32_t"),
        (MMA, "d", "f", "float"),
        ("mma.m16n8k16.f16.f16.f16.f16", "d", "r", "uint32_t"),
        ("mma.m8n8k4.f64.f64.f64.f64", "b", "d", "double"),
        ("mma.m16n8k32.s32.s8.s8.s32", "c", "r", "int32_t"),
        ("mma.m16n8k8.f32.tf32.tf32.f32", "a", "r", "uint32_t"),
    ],
)
def test_constraints_fit_the_registers(name, role, constraint, c_type):
    array = register_array(get(name).operands[role])

    assert (array.constraint, array.c_type) == (constraint, c_type)


@pytest.mark.slow
def test_the_wrapper_names_as_many_operands_as_its_statement():
    for instruction in find(arch="sm_120a"):
        for block in re.findall(r"asm volatile\((.*?)\);", emit(instruction, arch="sm_120a"), re.DOTALL):
            text = "".join(re.findall(r'^ *"(.*)"$', block, re.MULTILINE))
            numbers = {int(number) for number in re.findall(r"%(\d+)", text)}
            operands = re.findall(r'"=?[rfdln]"\(', block)

            assert numbers == set(range(len(operands)))


def test_a_statement_has_metadata_selector_scales_and_ids_in_order():
    instruction = get("mma.sp::ordered_metadata.m16n8k128.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
    names = {role: [f"{role}{reg}" for reg in range(o.regs)] for role, o in registers(instruction).items()}
    text = statement(instruction, names, immediates(instruction, Immediates(0, (0, 2), (1, 3))))

    assert text.endswith("c3}, metadata0, 0, scale_a0, {0, 1}, scale_b0, {2, 3};")


def test_a_target_may_be_written_short():
    assert emit(MMA, arch="90a") == emit(MMA, arch="sm_90a")
    assert ".target sm_90a\n" in emit(MMA, lang="ptx", arch="SM90A")


def test_without_a_target_only_what_all_targets_have_is_used():
    assert "stmatrix" not in emit("mma.m16n8k16.f16.f16.f16.f16")
    assert "stmatrix" in emit("mma.m16n8k16.f16.f16.f16.f16", arch="sm_90")
    assert "ldmatrix" in emit(MMA)


def test_index_expressions_are_as_a_person_writes_them():
    text = emit(MMA)

    assert "const int row = (i >> 1 & 1) * 8 + (lane >> 2);" in text
    assert "const int col = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);" in text
    assert "__constant__" not in text  # no tables


def test_wmma_needs_no_layout():
    text = emit("wmma.mma.row.col.m16n16k16.f32.f16", arch="sm_70")

    assert "wmma.load.a.sync.aligned.row.m16n16k16.f16" in text  # of any memory
    assert "wmma.store.d.sync.aligned.col.m16n16k16.f32" in text
    assert "lane" not in text.split("namespace warpfrag::wmma")[1]


@pytest.mark.parametrize(
    ("space", "constraint", "address"),
    [
        ("", "l", "memory"),
        (".global", "l", "__cvta_generic_to_global(memory)"),
        (".shared", "r", "static_cast<uint32_t>(__cvta_generic_to_shared(memory))"),
        (".shared::cta", "r", "static_cast<uint32_t>(__cvta_generic_to_shared(memory))"),
    ],
)
def test_the_state_space_is_kept(space, constraint, address):
    name = f"wmma.load.a.sync.aligned.row.m16n16k16{space}.f16"
    cuda, text = emit(name, kernels=True), emit(name, lang="ptx")

    assert f'"{name} "' in cuda
    assert f'"{constraint}"({address}), "r"(stride)' in cuda
    assert f"    {name} {{" in text
    assert ("dynamic_shared" in text) == space.startswith(".shared")


@pytest.mark.parametrize(("space", "kind"), [("", '"l"(address)'), (".shared", '"r"(address)')])
def test_movers_take_the_address_of_their_space(space, kind):
    name = f"ldmatrix.sync.aligned.m8n8.x4{space}.b16"

    assert kind in emit(name)
    assert ("cvta.shared.u64" in emit(name, lang="ptx")) == (space == "")


def test_raw_kernels_share_one_list_of_parameters():
    kernels = [(get(SPARSE), Immediates(selector)) for selector in (0, 3)] + [(get(MMA), Immediates())]
    text = raw_module(kernels, "sm_80")
    heads = re.findall(r"\.entry (\w+)\((.*?)\)", text, re.DOTALL)

    assert [name for name, _ in heads] == [raw_name(instruction, choice) for instruction, choice in kernels]
    assert len({parameters for _, parameters in heads}) == 1
    assert "metadata_0, 3;" in text


def test_every_choice_of_ids_has_a_kernel():
    instruction = get(SCALED)
    names = {raw_name(instruction, choice) for choice in choices(instruction, ids=True)}

    assert len(names) == 2 * 2 * 2 * 4
    assert len(list(choices(get(SPARSE)))) == 4


@pytest.mark.parametrize(
    ("name", "choice", "message"),
    [
        (MMA, Immediates(1), "is dense: it takes no selector, got 1"),
        (MMA, Immediates(0, (1, 0)), "has no scale factors: it takes no byte_id"),
        (SCALED, Immediates(0, (1, 0)), "byte_id of scale_a must be one of 0, 2, got 1"),
        (SCALED, Immediates(0, (0, 0), (2, 0)), "thread_id of scale_a must be in 0..1, got 2"),
    ],
)
def test_immediates_that_do_not_exist_are_refused(name, choice, message):
    with pytest.raises(InvalidOperand, match=message):
        raw_kernel(get(name), choice)


def test_a_selector_that_traps_is_refused():
    with pytest.raises(IllegalInstruction, match="traps"):
        raw_kernel(get("mma.sp.m16n8k32.f32.f16.f16.f32"), Immediates(2))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([MMA], {"lang": "rust"}, "lang: expected one of cuda, ptx, got 'rust'"),
        ([MMA], {"lang": 3}, "lang: expected one of cuda, ptx, got 3"),
        ([MMA], {"lang": ["cuda"]}, r"lang: expected one of cuda, ptx, got \['cuda'\]"),
        ([MMA], {"lang": "\x1b[31m"}, r"got '\\x1b\[31m'"),
        ([[]], {}, "at least one instruction"),
        ([5], {}, "expected one or more instructions or names, got 5"),
        ([None], {}, "expected one or more instructions or names, got None"),
        ([[5]], {}, "expected PTX text, got a int"),
        ([MMA], {"arch": "sm_75"}, "not available on sm_75"),
        ([MMA], {"arch": 80}, "unknown arch 80"),
    ],
)
def test_refusals_say_what_was_expected(arguments, options, message):
    with pytest.raises(WarpfragError, match=message):
        emit(*arguments, **options)


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["cuda", "ptx"])
def test_what_the_assembler_advises_is_said(lang):
    sparse = [one for one in every() if one.form.is_sparse]
    texts = {one: emit(one, lang=lang) for one in sparse}
    advised = [one for one in sparse if "// ptxas advises" in texts[one]]

    assert advised == [one for one in sparse if one.op == "mma.sp"]
    for instruction in advised:
        ordered = get(instruction.name.replace("mma.sp", "mma.sp::ordered_metadata", 1))
        assert ordered.name in texts[instruction]
        assert [o.layout for o in ordered.operands.values()] == [o.layout for o in instruction.operands.values()]


def test_a_module_is_for_the_oldest_target_that_takes_all():
    assert ".target sm_80\n" in emit([MMA, "mma.m8n8k16.s32.s8.s8.s32"], lang="ptx")
    assert ".target sm_120a\n" in emit([MMA, SCALED], lang="ptx")


@pytest.mark.parametrize(
    ("name", "target", "version"),
    [
        (MMA, "sm_80", (7, 0)),
        (MMA, "sm_90", (7, 8)),
        (SPARSE, "sm_80", (7, 1)),
        (SPARSE.replace("mma.sp", "mma.sp::ordered_metadata"), "sm_80", (8, 5)),
        ("mma.m16n8k32.f32.e4m3.e4m3.f32", "sm_89", (8, 4)),
        ("mma.m16n8k32.f16.e4m3.e4m3.f16", "sm_89", (8, 7)),
        ("ldmatrix.m8n16.x1.s8.s4", "sm_90a", (9, 4)),
    ],
)
def test_versions(name, target, version):
    assert emit(name, lang="ptx", arch=target).startswith(".version {}.{}\n".format(*version))


def test_emitting_imports_no_compiler():
    code = f"import sys; from warpfrag.codegen.emit import emit; emit({MMA!r}, lang='ptx'); emit({SPARSE!r})"
    code += "; print(sorted({'ml_dtypes', 'numba', 'llvmlite'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert run.stdout.strip() == "[]"


def test_a_unit_says_how_nvcc_must_be_called_where_only_targets_with_a_suffix_will_do():
    scaled = emit("mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0")
    assert "// Compile with -gencode arch=compute_120a,code=sm_120a;" in scaled
    assert "// Compile with" not in emit("mma.m16n8k16.f32.f16.f16.f32")
