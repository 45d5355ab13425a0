"""NVIDIA's assembler as the judge: it takes every emitted kernel where the instruction is legal, and nothing else."""

from __future__ import annotations

import os

import pytest

from oracle.toolkit import absent, assemble, compile_cuda, find_nvcc, find_ptxas
from warpfrag.emit import cuda, emit, ptx
from warpfrag.emit.ptx.module import header, needed_version
from warpfrag.isa.targets import targets
from warpfrag.registry import find, get

# Targets that take the same instructions; the first of each stands for its class where time is short.
CLASSES = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120f", "sm_120a")
# No nvcc that knows all other targets knows the retired ones; their PTX is assembled all the same.
KNOWN_TO_NVCC = [name for name, target in targets().items() if not target.ptxas]
# CUDA C++ for every instruction and target takes half an hour; by default all instructions for one target, and a
# part of them for each class.
EVERYTHING = os.environ.get("WARPFRAG_ASSEMBLE_EVERYTHING") == "1"
CHUNK = 60


def numbered(kernels):
    """The lines of some texts, and for each line number whose it is."""
    lines, owners = [], {}
    for owner, text in kernels:
        own = "\n".join(text).split("\n")
        owners.update(dict.fromkeys(range(len(lines) + 1, len(lines) + len(own) + 1), owner))
        lines += own
    return lines, owners


def smallest(instruction):
    """One kernel that holds the instruction."""
    return ptx.raw_kernel(instruction) if instruction.form.is_product else ptx.body(instruction, ())


@pytest.mark.parametrize("target", targets())
def test_every_emitted_ptx_kernel_assembles_for_every_target(target, tmp_path, record_property):
    ptxas, newest = find_ptxas(target)
    by_version = {}
    for instruction in find(target=target):
        by_version.setdefault(needed_version(instruction, target), []).append(instruction)
    kernels = 0
    for version, instructions in by_version.items():
        if version > newest:
            continue
        text = ptx.unit(instructions, target)
        module = tmp_path / f"version{version[0]}{version[1]}.ptx"
        module.write_text(text, encoding="utf-8")

        assert assemble(ptxas, target, module) == []
        kernels += text.count(".visible .entry")
    assert kernels > 100
    record_property("assembler: PTX kernels assembled", kernels)


@pytest.mark.parametrize("target", targets())
def test_what_is_not_legal_is_refused(target, tmp_path, record_property):
    ptxas, newest = find_ptxas(target)
    # a refusal must not be for the version's sake
    left = [one for one in find() if target not in one.targets and needed_version(one, target) <= newest]
    count = len(left)
    module = tmp_path / "refused.ptx"
    head = [f".version {newest[0]}.{newest[1]}", *header((), target)[1:]]
    while left:
        lines, owners = numbered([(None, head), *((instruction, smallest(instruction)) for instruction in left)])
        module.write_text("\n".join(lines) + "\n", encoding="utf-8")
        refused = {owners.get(complaint.line) for complaint in assemble(ptxas, target, module)}

        assert refused & set(left), f"{target} takes {left[0].name} and {len(left) - 1} more"
        left = [instruction for instruction in left if instruction not in refused]
    record_property("assembler: illegal instructions refused", count)


@pytest.mark.parametrize("target", KNOWN_TO_NVCC if EVERYTHING else CLASSES)
def test_every_emitted_cuda_kernel_compiles(target, tmp_path, record_property):
    nvcc = find_nvcc()
    _, newest = find_ptxas(target)
    instructions = [one for one in find(target=target) if needed_version(one, target) <= newest]
    if not EVERYTHING and target != CLASSES[-1]:
        instructions = instructions[:: len(instructions) // 24]
    kernels = 0
    for start in range(0, len(instructions), CHUNK):
        text = cuda.unit(instructions[start : start + CHUNK], target)
        source = tmp_path / f"unit{start}.cu"
        source.write_text(text, encoding="utf-8")

        assert compile_cuda(nvcc, target, source) == ""
        kernels += text.count("__global__")
    assert kernels > 40
    record_property("assembler: CUDA kernels compiled", kernels)


def test_without_a_target_a_unit_compiles_for_the_oldest(tmp_path):
    nvcc = find_nvcc()
    source = tmp_path / "unit.cu"
    names = ["mma.m8n8k16.s32.s8.s8.s32", "wmma.mma.row.col.m16n16k16.f32.f16", "ldmatrix.m8n8.x4.b16"]
    source.write_text(emit(names), encoding="utf-8")

    assert compile_cuda(nvcc, "sm_75", source) == ""


def test_a_unit_may_be_included_twice(tmp_path):
    nvcc = find_nvcc()
    text = emit("mma.m16n8k16.f32.f16.f16.f32")
    (tmp_path / "once.cuh").write_text(text, encoding="utf-8")
    source = tmp_path / "twice.cu"
    source.write_text('#include "once.cuh"\n#include "once.cuh"\n', encoding="utf-8")

    assert compile_cuda(nvcc, "sm_80", source) == ""


def test_a_wrong_module_is_noticed(tmp_path):
    ptxas, _ = find_ptxas("sm_80")
    module = tmp_path / "wrong.ptx"
    text = emit("mma.m16n8k16.f32.f16.f16.f32", lang="ptx", target="sm_80")
    module.write_text(text.replace("m16n8k16.row.col", "m16n8k16.col.row"), encoding="utf-8")

    assert assemble(ptxas, "sm_80", module)


def test_absence_is_a_skip_or_a_failure(monkeypatch):
    monkeypatch.setattr("oracle.toolkit.REQUIRED", False)
    with pytest.raises(pytest.skip.Exception, match="no ptxas here"):
        absent("no ptxas here")
    monkeypatch.setattr("oracle.toolkit.REQUIRED", True)
    with pytest.raises(pytest.fail.Exception, match="no ptxas here"):
        absent("no ptxas here")


SPACES = ["wmma.load.a.row.m16n16k16{}.f16", "wmma.store.d.col.m16n16k16{}.f32"]
SPACES += ["ldmatrix.x4.m8n8{}.b16", "stmatrix.x2.m8n8.trans{}.b16"]


@pytest.mark.parametrize("pattern", SPACES)
def test_an_emitted_unit_keeps_the_state_space(pattern, tmp_path):
    ptxas, _ = find_ptxas("sm_90")
    spaces = ["", ".shared", ".shared::cta", *([".global"] if pattern.startswith("wmma") else [])]
    instructions = [get(pattern.format(space)) for space in spaces]
    for lang, check in (("ptx", lambda path: assemble(ptxas, "sm_90", path)), ("cuda", compile_unit)):
        for instruction in instructions:
            text = emit(instruction, lang=lang, target="sm_90")
            path = tmp_path / f"unit.{'cu' if lang == 'cuda' else 'ptx'}"
            path.write_text(text, encoding="utf-8")

            assert f"{instruction.name} " in text
            assert not check(path)


def compile_unit(path):
    return compile_cuda(find_nvcc(), "sm_90", path)
