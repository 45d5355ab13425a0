"""Test vectors of tcgen05: mistakes are caught, files keep every call, and the program's kernel gives the results."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

import warpfrag as wf
from oracle.toolkit import compile_cuda, find_nvcc
from warpfrag.cli import main
from warpfrag.codegen.emit_tcgen05 import identifier
from warpfrag.codegen.vectors import vectors
from warpfrag.codegen.vectors.tensor_vectors import image_mistakes, tensor_call_mistakes
from warpfrag.codegen.vectors.vector_files import as_json
from warpfrag.codegen.vectors.vector_sets import VectorSet
from warpfrag.errors import UnusableFile
from warpfrag.smem.instruction_descriptor import InstructionDescriptor

MMA = "tcgen05.mma.cta_group::1.kind::"
F16 = f"{MMA}f16.m128n16k16.f32.bf16.bf16"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::i8.m128n32k64.s32.s8.u8"
SCALED = f"{MMA}mxf4.block_scale.m128n8k64.f32.e2m1.e2m1.ue8m0"
# One of each kind, and of each way in which elements lie.
KINDS = [
    F16,
    PAIR,
    SCALED,
    f"{MMA}f16.m64n8k16.f16.f16.f16",
    f"{MMA}tf32.m128n8k8.f32.tf32.tf32",
    f"{MMA}f8f6f4.m64n24k32.f16.e2m1.e4m3",
    f"{MMA}i8.m64n8k32.s32.u8.s8",
    f"{MMA}mxf8f6f4.block_scale.m128n8k32.f32.e3m2.e5m2.ue8m0",
]


@pytest.mark.parametrize("name", KINDS)
def test_every_mistake_is_caught(name):
    found = vectors(name, arch="sm_100")
    check = found.self_check()
    assert [mistake for mistake, group in check.items() if group is None] == []
    assert len(check) >= 30
    rows, columns, outputs = found.instruction.d.unpack(found["positions"].d, raw=True)
    assert (rows == rows[:, :1]).all()
    assert (columns == columns[:1]).all()
    assert (len(np.unique(rows[:, 0])), len(np.unique(columns[0]))) == rows.shape
    assert len(np.unique(outputs)) == outputs.size


def test_the_mistakes_of_people_are_among_them():
    check = vectors(F16, arch="sm_100").self_check()
    assert {
        "a: leading and stride byte offset swapped",
        "b: K-major, swizzle 128: read with swizzle 64",
        "b: MN-major, no swizzle: read with swizzle 32",
        "instruction descriptor: transpose_b missing",
        "instruction descriptor: negate_a set",
        "d: lanes moved by a warp",
        "d: columns 8 apart swapped",
    } <= set(check)
    scaled = vectors(SCALED, arch="sm_100").self_check()
    assert "instruction descriptor: scale_a_id 2 instead of 0" in scaled
    assert scaled["scale_b: lanes moved by one"] is not None


def test_a_set_that_catches_nothing_says_so():
    found = vectors(F16, arch="sm_100")
    group = found["random"]
    words = {role: np.zeros_like(array) for role, array in group.words.items()}
    blind = VectorSet(found.instruction, "sm_100", (type(group)("blind", "", words, 0 * group.d, call=group.call),))
    caught = blind.self_check()
    assert caught["d: lanes moved by one"] is None
    assert caught["instruction descriptor: negate_b set"] is None


def test_mistakes_differ_from_what_is_right_and_from_each_other():
    found = vectors(SCALED, arch="sm_100")
    for group in found.groups:
        calls = [call for _, call in tensor_call_mistakes(found.instruction, group.call)]
        assert len({group.call, *calls}) == len(calls) + 1
    group = found["random scale ids 0 2"]
    for name, role, change in image_mistakes(found.instruction):
        given = group.registers[role]
        assert change(given).shape == given.shape
        assert not np.array_equal(change(given), given), name


@pytest.mark.parametrize("name", [F16, SCALED])
def test_every_expectation_is_what_execute_gives(name):
    found = vectors(name, arch="sm_100")
    t = found.instruction
    at = {"scale_a": t.d.columns, "scale_b": t.d.columns + 4} if name == SCALED else {}
    for group in found.groups:
        words = {role: np.ascontiguousarray(group.words[role]).view(np.uint8) for role in "ab"}
        idesc = InstructionDescriptor.decode(group.call.idesc, kind=t.form.kind)
        for case in range(group.cases):
            tiles = [
                wf.Shared(words[role][case], wf.Descriptor.decode(word, kind="tcgen05"), is_turned)
                for role, word, is_turned in zip(
                    "ab", group.call.descriptors, (idesc.transpose_a, idesc.transpose_b), strict=True
                )
            ]
            after = t.execute(group.words["c"][case], *tiles, at=at, idesc=idesc, arch="sm_100")
            assert np.array_equal(after[:, : t.d.columns], group.d[case]), group.name


@pytest.mark.parametrize("ending", [".npz", ".json"])
@pytest.mark.parametrize("name", [SCALED, PAIR])
def test_files_keep_every_call(tmp_path, name, ending):
    found = vectors(name, arch="sm_100")
    found.save(tmp_path / f"v{ending}")
    again = VectorSet.load(tmp_path / f"v{ending}")
    assert again.instruction is found.instruction
    for ours, theirs in zip(found.groups, again.groups, strict=True):
        facts = [(group.name, group.catches, group.choice, group.call) for group in (ours, theirs)]
        assert facts[0] == facts[1]
        assert ours.registers.keys() == theirs.registers.keys()
        for role, words in ours.registers.items():
            assert np.array_equal(words, theirs.registers[role]), role


DAMAGE = {
    "no call": (lambda row: row.pop("call"), "expected a call as `save` writes it, got None"),
    "descriptors": (lambda row: row["call"].update(descriptors=["0x1"]), "expected a call as `save` writes it"),
    "idesc": (lambda row: row["call"].update(idesc="0x0"), "the instruction descriptor is not that of"),
    "no tile": (lambda row: row.pop("b"), "as b, got nothing"),
    "lanes": (lambda row: row.update(c=["0,0", "0,0"]), r"expected uint32\[2, 128, 16\] as c, got uint32\[2, 2, 1\]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_group_is_refused(tmp_path, damage):
    found = vectors(F16, arch="sm_100")
    about = json.loads(as_json(found.instruction, found.arch, (found["random"],)))
    change, message = DAMAGE[damage]
    change(about["groups"][0])
    (tmp_path / "v.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(UnusableFile, match=f"^'v.json': .*{message}"):
        VectorSet.load(tmp_path / "v.json")


@pytest.mark.parametrize("name", [F16, SCALED, PAIR])
def test_the_programs_kernel_gives_what_is_expected(tmp_path, name):
    """nvcc compiles the program for sm_100a without a warning, and the PTX machine runs its kernel."""
    nvcc = find_nvcc()
    found = vectors(name, arch="sm_100")
    kept = [group for group in found.groups if group.cases < 4]
    program = tmp_path / "FILE.cu"
    VectorSet(found.instruction, "sm_100", tuple(kept)).save(program)
    assert compile_cuda(nvcc, "sm_100a", program) == ""
    blocks = found.instruction.blocks
    kernel = wf.ptx.compile(program, arch="sm_100a")[f"{identifier(found.instruction)}_raw"]
    for group in kept[:: max(1, len(kept) // 4)]:
        a, b = group.words["a"], group.words["b"]
        d = np.full_like(group.d, 0xDEADBEEF)
        numbers = [np.uint64(word) for word in group.call.descriptors]
        sizes = [np.int32(a.shape[-1]), np.int32(b.shape[-1])]
        arguments = [a, b, group.words["c"], d, *numbers, np.uint32(group.call.idesc), *sizes]
        run = kernel.launch(blocks * group.cases, 128, arguments, shared=4 * int(sum(sizes)) + 2048)
        assert np.array_equal(d, group.d), group.name
        assert run.exact


def test_the_program_takes_a_function_of_ones_own(tmp_path):
    found = vectors(F16, arch="sm_100")
    few = VectorSet(found.instruction, "sm_100", (found["random"],))
    few.save(tmp_path / "FILE.cu")
    few.save(tmp_path / "v.h")
    said = [line[2:].split() for line in (tmp_path / "FILE.cu").read_text("utf-8").splitlines() if "nvcc -std" in line]
    parameters = "uint32_t, uint64_t, uint64_t, bool, uint32_t"
    mine = f'#include <cstdint>\n#include "v.h"\n__device__ inline void my_mma({parameters}) {{}}\n'
    (tmp_path / "my_mma.cuh").write_text(mine, encoding="utf-8")
    assert len(said) == 2
    options = said[1][1 : said[1].index("&&")]
    command = [str(find_nvcc()), *options[: options.index("-o")], "-c", "-o", "test.o", "FILE.cu"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_what_has_no_vectors_is_refused_with_the_reason(capsys):
    with pytest.raises(wf.InvalidOperand, match="has no shape: vectors are made for"):
        vectors("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100")
    with pytest.raises(wf.InvalidOperand, match="computes nothing: vectors are made for"):
        vectors("tcgen05.ld.sync.aligned.32x32b.x1.b32", arch="sm_100")
    with pytest.raises(wf.NotModelled, match="nobody has published"):
        vectors("tcgen05.mma.sp.cta_group::1.kind::f16.m64n16k32.f32.f16.f16", arch="sm_100")
    assert main(["vectors", f"{MMA}tf32.m64n8k8.f32.tf32.tf32", "--arch", "sm_100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [group["name"] for group in answer["groups"]][:2] == ["positions", "random"]


def test_the_error_of_a_product_is_that_of_its_architecture():
    """Sums are cut off, so that of positive products the mean error is below zero."""
    random = np.random.default_rng(5)
    A, B = (random.uniform(1, 2, shape).astype(np.float16) for shape in ((128, 256), (256, 16)))
    name = f"{MMA}f16.m128n16k16.f32.f16.f16"
    (row,) = wf.error_report(A, B, instruction=name, arch="sm_100").to_dict()["errors"]
    exact = A.astype(np.float64) @ B.astype(np.float64)
    D = wf.gemm(A, B, instruction=name, arch="sm_100").astype(np.float64)
    assert row["arch"] == "sm_100"
    assert row["mean_ulps"] < 0
    assert row["largest_relative"] == pytest.approx((np.abs(D - exact) / exact).max(), rel=1e-12)
