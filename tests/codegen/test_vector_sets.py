"""Test vectors: every layout mistake is caught for every instruction, and files contain the same arrays as the set."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import warpfrag as wf
from instructions import of_a_warp
from warpfrag.cli.code_verbs import test_vectors as vectors_verb
from warpfrag.codegen.statement import choices
from warpfrag.diagnosis.descriptor_mistakes import swizzle_text
from warpfrag.diagnosis.mistakes import mistakes
from warpfrag.errors import IllegalInstruction, InvalidOperand, NotModelled, WarpfragError
from warpfrag.isa.immediates import Immediates
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.smem.shared_memory import SWIZZLES
from warpfrag.tensorcore.execute import execute, execute_registers
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.tensor_images import TensorCall, run_images

MMA = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
WGMMA = [
    "wgmma.mma_async.m64n64k16.f32.f16.f16",
    "wgmma.mma_async.sp.m64n8k32.f32.bf16.bf16",
    "wgmma.mma_async.m64n24k16.f16.f16.f16",
    "wgmma.mma_async.m64n8k8.f32.tf32.tf32",
    "wgmma.mma_async.m64n16k32.f16.e4m3.e5m2",
    "wgmma.mma_async.m64n24k32.s32.s8.u8.satfinite",
    "wgmma.mma_async.m64n16k256.s32.b1.b1.and.popc",
    "wgmma.mma_async.sp.m64n8k16.f32.tf32.tf32",
    "wgmma.mma_async.sp.m64n8k64.s32.u8.u8",
]
TCGEN05 = [
    "tcgen05.mma.cta_group::1.kind::f16.m128n16k16.f32.bf16.bf16",
    "tcgen05.mma.sp.cta_group::2.kind::i8.m128n32k64.s32.s8.u8",
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.m128n8k64.f32.e2m1.e2m1.ue8m0",
    "tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f16.f16.f16",
    "tcgen05.mma.cta_group::1.kind::tf32.m128n8k8.f32.tf32.tf32",
    "tcgen05.mma.cta_group::1.kind::f8f6f4.m64n24k32.f16.e2m1.e4m3",
    "tcgen05.mma.cta_group::1.kind::i8.m64n8k32.s32.u8.s8",
    "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.m128n8k32.f32.e3m2.e5m2.ue8m0",
]
EVERY = [(MMA, "sm_90"), (SPARSE, "sm_90"), (SCALED, "sm_120"), (WGMMA[0], "sm_90"), (TCGEN05[2], "sm_100")]


def modelled():
    """Every warp-level multiplication with an architecture to run it: sm_90 if it can, else sm_120."""
    found = {}
    for instruction in of_a_warp():
        arch = "sm_90" if "sm_90" in instruction.targets else "sm_120"
        if instruction.form.is_product and instruction.evidence(arch).level != "not modelled":
            family = f"{instruction.op} {instruction.form.a} {instruction.form.kind}".strip()
            found.setdefault(family, []).append((instruction, arch))
    return found


FAMILIES = modelled()


def check_positions(vector_set):
    """Rows differ in the first case, columns in the second, every output in the third."""
    rows, columns, outputs = vector_set.instruction.d.unpack(vector_set["positions"].d, raw=True)
    assert (rows == rows[..., :1]).all()
    assert (columns == columns[..., :1, :]).all()
    assert (len(np.unique(rows)), len(np.unique(columns))) == rows.shape[-2:]
    assert len(np.unique(outputs)) == outputs.size


def is_caught(vector_set, mistake):
    """Run every group with a mistake in one operand."""
    for group in vector_set.groups:
        if mistake.operand == "d":
            d = mistake.change(group.d)
        else:
            words = {**group.words, mistake.operand: mistake.change(group.words[mistake.operand])}
            d = execute_registers(vector_set.instruction, words, group.choice, arch=vector_set.arch)
        if not np.array_equal(d, group.d):
            return True
    return False


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mistake_is_caught(family):
    for instruction, arch in FAMILIES[family][::12]:
        vector_set = wf.test_vectors(instruction, arch=arch)
        check_positions(vector_set)
        missed = [mistake.name for mistake in mistakes(vector_set.instruction) if not is_caught(vector_set, mistake)]
        assert missed == []


@pytest.mark.parametrize(("name", "arch"), [(SPARSE, "sm_90"), (SCALED, "sm_120")])
def test_a_wrong_selector_or_id_is_caught(name, arch):
    vector_set = wf.test_vectors(name, arch=arch)
    for choice in choices(vector_set.instruction, ids=True):
        others = [group for group in vector_set.groups if group.name.startswith("random") and group.choice != choice]
        results = [execute_registers(vector_set.instruction, group.words, choice, arch=arch) for group in others]
        assert all(not np.array_equal(d, group.d) for d, group in zip(results, others, strict=True))


def run(vector_set, group, words, call):
    if isinstance(call, TensorCall):
        return run_images(vector_set.instruction.form, words, vector_set.arch, call)
    return run_wgmma_cases(vector_set.instruction, call.stage(words), vector_set.arch)


def padded(words):
    """Append random bytes to shared memory, for wrong descriptors that read beyond it."""
    shared = [role for role in ("a", "b", "shared") if role in words and words[role].ndim < 4]
    return {
        role: np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, 1 << 14)], constant_values=0xA5A5A5A5)
        if role in shared
        else array
        for role, array in words.items()
    }


def wrong_descriptors(right):
    """Yield the most common mistakes with a descriptor."""
    layout = swizzle_text(right.swizzle)
    yield "leading and stride byte offset swapped", replace(right, leading=right.stride, stride=right.leading)
    yield "start off by 16 bytes", right.moved(16)
    for swizzle in SWIZZLES:
        if swizzle != right.swizzle:
            yield f"{layout}: read with {swizzle_text(swizzle)}", replace(right, swizzle=swizzle)
    if right.swizzle:
        yield f"{layout}: base offset 1 instead of 0", replace(right, base_offset=1)


@pytest.mark.parametrize(("name", "arch"), [*((n, "sm_90") for n in WGMMA), *((n, "sm_100") for n in TCGEN05)])
def test_wrong_descriptors_and_threads_are_caught(name, arch):
    vector_set = wf.test_vectors(name, arch=arch)
    check_positions(vector_set)
    caught = {}
    for group in vector_set.groups:
        for role, words in group.registers.items():
            for axis in range(1, words.ndim) if role in {"c", "d"} else ():
                changed = words.copy()
                columns = group.d.shape[-1]  # metadata and scales are stored after D
                changed[..., :columns] = np.roll(words[..., :columns], 1, axis)
                d = changed if role == "d" else run(vector_set, group, {**group.words, role: changed}, group.call)
                key = f"{role}: axis {axis} moved by one"
                caught[key] = caught.get(key) or not np.array_equal(d, group.d)
        for side, role in enumerate("ab"):
            if not group.call.descriptors[side] or not group.name.startswith("random"):
                continue
            category = "tcgen05" if isinstance(group.call, TensorCall) else "wgmma"
            right = wf.Descriptor.decode(group.call.descriptors[side], kind=category)
            for text, wrong in wrong_descriptors(right):
                descriptors = [*group.call.descriptors]
                descriptors[side] = wrong.word
                if wrong.word == right.word:
                    continue  # both offsets of a small tile may be equal
                call = replace(group.call, descriptors=tuple(descriptors))
                d = run(vector_set, group, padded(group.words), call)
                key = f"{role}: {text}"
                caught[key] = caught.get(key) or not np.array_equal(d, group.d)
    assert [key for key, is_caught in caught.items() if not is_caught] == []
    assert len(caught) > 10


def test_every_result_is_what_execute_gives():
    vector_set = wf.test_vectors(MMA)
    for group in vector_set.groups:
        again = execute(vector_set.instruction, *(group.words[role] for role in "abc"), arch="sm_90")
        assert np.array_equal(again, group.d)
    vector_set = wf.test_vectors(WGMMA[1])
    for group in vector_set.groups:
        shared, trans = group.words["shared"].view(np.uint8), group.call.variant.trans
        a, b = (
            wf.Shared(shared, wf.Descriptor.decode(word), turned)
            for word, turned in zip(group.call.descriptors, trans, strict=True)
        )
        a = a if group.call.variant.staged else group.words["a"]
        options = {"metadata": group.words["metadata"], "immediates": Immediates(group.choice.selector)}
        assert np.array_equal(execute(vector_set.instruction, a, b, group.words["c"], **options), group.d)
    vector_set = wf.test_vectors(TCGEN05[0], arch="sm_100")
    mma = vector_set.instruction
    for group in vector_set.groups:
        idesc = InstructionDescriptor.decode(group.call.idesc, kind=mma.form.kind)
        turned = (idesc.transpose_a, idesc.transpose_b)
        memory = [np.ascontiguousarray(group.words[role][0]).view(np.uint8) for role in "ab"]
        tiles = [
            wf.Shared(memory[side], wf.Descriptor.decode(word, kind="tcgen05"), turned[side])
            for side, word in enumerate(group.call.descriptors)
        ]
        after = mma.execute(group.words["c"][0], *tiles, idesc=idesc, arch="sm_100")
        assert np.array_equal(after[:, : mma.d.columns], group.d[0]), group.name


@pytest.mark.parametrize(
    "name",
    [MMA, "mma.m16n8k8.f32.tf32.tf32.f32", "mma.m16n8k32.f32.e4m3.e5m2.f32", "mma.m16n8k16.f16.f16.f16.f16"],
)
def test_rounding_shows_simpler_arithmetic(name):
    """One exact sum and a chain of f32 additions both give different codes."""
    vector_set = wf.test_vectors(name)
    mma, group = vector_set.instruction, vector_set["rounding"]
    a, b, c = (mma.operands[role].unpack(group.words[role]).astype(np.float64) for role in "abc")
    d = mma.d.unpack(group.d)
    exact = (a @ b + c).astype(np.float32)
    chain = c.astype(np.float32)
    for k in range(a.shape[-1]):
        chain = chain + (a[..., :, k, None] * b[..., k, None, :]).astype(np.float32)
    for simpler in (exact, chain):
        with np.errstate(over="ignore"):
            assert not np.array_equal(simpler.astype(d.dtype), d)


def test_the_arithmetic_of_another_architecture_differs():
    group = wf.test_vectors(MMA, arch="sm_90")["rounding"]
    assert not np.array_equal(execute(MMA, *(group.words[role] for role in "abc"), arch="sm_80"), group.d)


def test_extremes_tell_clamping_from_wrapping():
    wraps = wf.test_vectors("mma.m16n8k32.s32.s8.s8.s32")["extremes"]
    clamped = execute("mma.m16n8k32.row.col.satfinite.s32.s8.s8.s32", *(wraps.words[role] for role in "abc"))
    assert 0.1 < np.mean(clamped != wraps.d) < 0.9


@pytest.mark.parametrize("name", [SPARSE, WGMMA[1]])
def test_the_same_seed_gives_the_same_vectors(name):
    first, second, other = (wf.test_vectors(name, seed=seed).groups for seed in (1, 1, 2))
    assert all(np.array_equal(a.d, b.d) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a.d, b.d) for a, b in zip(first, other, strict=True))


def test_refusals():
    with pytest.raises(InvalidOperand, match=r"^ldmatrix\.\S+ moves registers and computes nothing: test vectors"):
        wf.test_vectors("ldmatrix.m8n8.x4.b16")
    for seed in (-1, True, "1", 1.0, None):
        with pytest.raises(InvalidOperand, match=f"^seed: expected a non-negative integer, got {seed!r}$"):
            wf.test_vectors(MMA, seed=seed)
    for arch in (90, ["sm_90"], None):
        with pytest.raises(WarpfragError, match="arch"):
            wf.test_vectors(MMA, arch=arch)
    with pytest.raises(IllegalInstruction, match="does not have this instruction"):
        wf.test_vectors(SCALED, arch="sm_90")
    with pytest.raises(NotModelled, match="the wmma fragments of sm_80"):
        wf.test_vectors("wmma.mma.row.col.m16n16k16.f32.f16", arch="sm_80")
    with pytest.raises(InvalidOperand, match="has no shape: test vectors exist for"):
        wf.test_vectors("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100")
    with pytest.raises(InvalidOperand, match="expected a group from positions, random, .*, overflow; got 'roundin'"):
        wf.test_vectors(MMA)["roundin"]
    with pytest.raises(InvalidOperand, match="expected an .npz file for test vectors, got 'v.cu'"):
        wf.test_vectors(MMA).save("v.cu")


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_files_hold_every_array(tmp_path, name, arch):
    vector_set = wf.test_vectors(name, arch=arch)
    vector_set.save(tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    about = json.loads(str(arrays.pop("about")))
    assert about["instruction"] == vector_set.instruction.name
    assert len(arrays) == sum(len(group.registers) for group in vector_set.groups)
    assert about == json.loads(json.dumps(vector_set.to_dict()))
    for group in vector_set.groups:
        for role, words in group.registers.items():
            assert np.array_equal(arrays[f"{group.name}/{role}"], words)


def test_the_command(tmp_path):
    runner = CliRunner()
    output = tmp_path / "v.npz"
    answer = runner.invoke(vectors_verb, [SPARSE, "-o", str(output)], standalone_mode=False)
    assert answer.return_value == 0
    assert "random selector1: 8 cases" in answer.stdout
    assert output.exists()
    answer = runner.invoke(vectors_verb, [SPARSE, "--json"], standalone_mode=False)
    facts = json.loads(answer.stdout)
    assert facts["arch"] == "sm_90"
    assert [group["name"] for group in facts["groups"]][:2] == ["positions", "random selector0"]
    for refused in ("missing/v.npz", "v.txt"):
        with pytest.raises(WarpfragError, match="cannot write|expected an .npz file"):
            runner.invoke(
                vectors_verb, [SPARSE, "-o", str(tmp_path / refused)], standalone_mode=False, catch_exceptions=False
            )


def test_making_vectors_loads_no_code_generator():
    code = f"import sys; import warpfrag as wf; wf.test_vectors({MMA!r})"
    code += "; print([name for name in sys.modules if name.startswith('warpfrag.codegen.cuda')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert run.stdout.strip() == "[]"
