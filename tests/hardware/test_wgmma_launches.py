"""wgmma on the GPU: the kernels, their operands and their launches."""

import re

import numpy as np
import pytest

import warpfrag as wf
from instructions import every
from warpfrag.codegen.emit import raw_module
from warpfrag.codegen.statement import raw_name, wgmma_variants
from warpfrag.hardware.gpu_device import POISON, Gpu
from warpfrag.hardware.launches import MAX_BYTES, verified_variants, wgmma_launches
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.wgmma_call import Variant

WGMMA = [instruction for instruction in every() if instruction.form.is_warpgroup]
F16 = wf.get("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16")
SPARSE = wf.get("wgmma.mma_async.sp.sync.aligned.m64n24k32.f32.bf16.bf16")


def test_every_value_of_every_immediate_runs_in_every_family():
    families: dict[tuple[object, ...], set[Variant]] = {}
    for instruction in (one for one in wf.find() if one.form.is_warpgroup):
        form = instruction.form
        families.setdefault((form.op, form.d, form.a, form.b, form.satfinite), set()).update(
            verified_variants(instruction)
        )
        assert {variant.staged for variant in verified_variants(instruction)} == {True, False}
    assert len(families) == 41
    for (op, _, a, *_), found in families.items():
        selectors = 2 if op.endswith("sp") and a in {"f16", "bf16", "tf32"} else 1
        signs = 4 if wf.FORMATS[a].is_float else 1
        assert len(found) == (6 if a in {"f16", "bf16"} else 2) * signs * selectors  # trans_a needs A in shared memory


@pytest.mark.parametrize("instruction", WGMMA[::5], ids=str)
def test_descriptors_of_every_kind_stay_inside_their_memory(instruction: wf.Instruction):
    swizzles, scales = set(), set()
    for variant in verified_variants(instruction)[:8]:
        for what, cases in wgmma_launches(instruction, variant, 6, seed=0):
            word_a, word_b = cases.descriptors
            swizzles.add(wf.Descriptor.decode(word_b).swizzle)
            scales.add(cases.scale_d)
            assert cases.shared.shape == (1, cases.shared.shape[1])
            assert cases.shared.shape[1] <= MAX_BYTES
            assert ("a" in cases.words) != variant.staged
            assert instruction.b.addresses(word_b, variant.trans[1]).max() < cases.shared.shape[1], what
            if variant.staged:
                assert instruction.a.addresses(word_a, variant.trans[0]).max() < cases.shared.shape[1], what
    assert swizzles == {0, 32, 64, 128}
    assert scales == {False, True}


def test_the_same_seed_gives_the_same_operands():
    first, second, other = (
        [cases.shared.tobytes() for _, cases in wgmma_launches(F16, Variant(), 6, seed)] for seed in (1, 1, 2)
    )
    assert first == second != other


@pytest.mark.parametrize("instruction", [F16, SPARSE], ids=str)
def test_a_launch_gives_each_parameter_of_the_kernel_what_it_names(instruction, monkeypatch):
    """The arguments, read by the parameters that the PTX declares, are the operands."""
    for variant in wgmma_variants(instruction):
        text = raw_module([(instruction, variant)], "sm_90a")
        entry = raw_name(instruction, variant)
        listed = re.search(rf"\.entry {entry}\(\n(.*?)\n\)", text, re.DOTALL)[1]
        declared = re.findall(r"\.param (\.u\d\d) (\w+)", listed)
        _, cases = next(wgmma_launches(instruction, variant, 12, seed=0))
        seen = {}

        def launch(_gpu, _module, name, blocks, arguments, warps, *, shared, seen=seen):
            seen.update(name=name, blocks=blocks, warps=warps, arguments=arguments, shared=shared)
            return arguments[0]

        monkeypatch.setattr(Gpu, "run_blocks", launch)
        gpu = Gpu("a pretended GPU", "sm_90a", "1", "none", None, None)
        found = gpu.run_warpgroups(None, entry, cases, instruction.d.words)
        assert (found == POISON).all()
        assert (found.shape, seen["name"], seen["blocks"], seen["warps"]) == ((2, 4, 32, 12), entry, 2, 4)
        assert seen["shared"] == cases.shared.shape[1] + 1024
        given = {name: argument for (_, name), argument in zip(declared, seen["arguments"], strict=True)}
        for kind, name in declared:
            if isinstance(given[name], np.integer):
                assert given[name].dtype == {".u64": np.uint64, ".u32": np.uint32}[kind]
        assert (int(given["descriptor_a"]), int(given["descriptor_b"])) == cases.descriptors
        assert (bool(given["scale_d"]), int(given["bytes"])) == (cases.scale_d, cases.shared.shape[1])
        assert np.array_equal(given["shared"].view(np.uint8), cases.shared)
        assert np.array_equal(given["c"], cases.words["c"])
        assert (given["a"] is None) == variant.staged
        assert (given["metadata"] is None) == (instruction.pattern is None)


def test_a_in_shared_memory_and_in_registers_are_the_same_product():
    """Kernels get the same operands as `execute`: tiles, registers, signs and scale-d."""
    variant = Variant(trans=(True, False), negate=(False, True))
    for _, cases in wgmma_launches(F16, variant, 6, seed=3):
        a, b = map(wf.Descriptor.decode, cases.descriptors)
        tile = wf.Shared(cases.shared, a, trans=True)
        words = F16.a.pack(F16.a.load(tile, raw=True), raw=True)
        signs = Immediates(negate=(False, True), scale_d=cases.scale_d)
        expected = wf.execute(F16, words, wf.Shared(cases.shared, b), cases.words["c"], immediates=signs)
        assert np.array_equal(run_wgmma_cases(F16, cases, "sm_90"), expected)
