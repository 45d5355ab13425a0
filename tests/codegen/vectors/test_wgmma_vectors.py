"""Test vectors of wgmma: wrong descriptors, orders and registers are caught; files keep every call."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from oracle.toolkit import find_nvcc
from warpfrag import Descriptor, Shared, get
from warpfrag.codegen.emit import emit
from warpfrag.codegen.statement import identifier
from warpfrag.codegen.vectors import vectors
from warpfrag.codegen.vectors.vector_files import as_json
from warpfrag.codegen.vectors.vector_group import VectorGroup
from warpfrag.codegen.vectors.vector_sets import VectorSet
from warpfrag.codegen.vectors.wgmma_vectors import call_mistakes, word_mistakes
from warpfrag.errors import UnusableFile
from warpfrag.tensorcore.execute import execute
from warpfrag.tensorcore.wgmma_call import WgmmaCall

F16 = "wgmma.mma_async.m64n64k16.f32.f16.f16"
SPARSE = "wgmma.mma_async.sp.m64n8k32.f32.bf16.bf16"
# One of each family, at widths that differ.
FAMILIES = [
    F16,
    SPARSE,
    "wgmma.mma_async.m64n24k16.f16.f16.f16",
    "wgmma.mma_async.m64n8k8.f32.tf32.tf32",
    "wgmma.mma_async.m64n16k32.f16.e4m3.e5m2",
    "wgmma.mma_async.m64n8k32.f32.e5m2.e4m3",
    "wgmma.mma_async.m64n24k32.s32.s8.u8.satfinite",
    "wgmma.mma_async.m64n16k256.s32.b1.b1.and.popc",
    "wgmma.mma_async.sp.m64n8k16.f32.tf32.tf32",
    "wgmma.mma_async.sp.m64n16k64.f32.e4m3.e4m3",
    "wgmma.mma_async.sp.m64n8k64.s32.u8.u8",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_mistake_is_caught(name, record_property):
    found = vectors(name)
    check = found.self_check()
    positions = found.instruction.d.unpack(found["positions"].d, raw=True)

    assert [mistake for mistake, group in check.items() if group is None] == []
    assert len(np.unique(positions[2])) == positions[2].size  # by C alone
    rows, columns = positions[0], positions[1]
    assert (rows == rows[:, :1]).all()
    assert (columns == columns[:1]).all()
    assert (len(np.unique(rows[:, 0])), len(np.unique(columns[0]))) == rows.shape
    if found.instruction.d.format.is_float:
        assert len(found["rounding"].catches.split("; ")) >= 3, found["rounding"].catches
    record_property("vectors: mistakes caught", len(check))


def test_the_mistakes_of_people_are_among_them():
    check = vectors(F16).self_check()
    assert {
        "a: leading and stride byte offset swapped",
        "b: leading and stride byte offset swapped",
        "b: K-major, swizzle 128: read with swizzle 64",
        "b: K-major, no swizzle: read with swizzle 32",
        "a: K-major, swizzle 64: base offset 1 instead of 0",
        "b: MN-major: transposition missing",
        "a: K-major: transposition set",
        "b: start off by 16 bytes",
        "a: halves of a register swapped",
        "d: warps moved by one",
    } <= set(check)
    assert check["b: MN-major, swizzle 128: read with no swizzle"] == "MN-major, swizzle 128"
    assert "metadata: selector 1 instead of 0" in vectors(SPARSE).self_check()


def test_mistakes_differ_from_what_is_right_and_from_each_other():
    found = vectors(F16)
    for group in found.groups:
        calls = [call for _, call in call_mistakes(found.instruction, group.call)]
        assert len({group.call, *calls}) == len(calls) + 1
    words = found["registers"].words
    for name, role, change in word_mistakes(found.instruction):
        given = found["registers"].d if role == "d" else words[role]
        assert change(given).shape == given.shape
        assert not np.array_equal(change(given), given), name


def test_a_set_that_catches_nothing_says_so():
    found = vectors(F16)
    group = found["K-major, swizzle 128"]
    words = {role: np.zeros_like(array) for role, array in group.words.items()}
    d = np.zeros_like(group.d)
    blind = VectorSet(
        found.instruction, "sm_90", (VectorGroup("blind", "nothing", words, d, group.choice, group.call),)
    )
    caught = blind.self_check()
    # noise behind the memory shows descriptors that reach there; all others go unnoticed
    assert {name for name, group in caught.items() if group} <= {
        "a: leading and stride byte offset swapped",
        "b: leading and stride byte offset swapped",
        "b: start off by 16 bytes",
    } | {name for name in caught if "transposition" in name}
    assert caught["c: lanes moved by one"] is None


def test_every_expectation_is_what_execute_gives():
    found = vectors(SPARSE)
    w = found.instruction
    assert {group.call.variant.selector for group in found.groups} == {0, 1}
    for group in found.groups:
        shared, (word_a, word_b) = group.words["shared"].view(np.uint8), group.call.descriptors
        trans = group.call.variant.trans
        a = Shared(shared, Descriptor.decode(word_a), trans[0]) if group.call.variant.staged else group.words["a"]
        b = Shared(shared, Descriptor.decode(word_b), trans[1])
        metadata, selector = group.words["metadata"], group.choice.selector
        assert np.array_equal(execute(w, a, b, group.words["c"], metadata=metadata, selector=selector), group.d)


@pytest.mark.parametrize("ending", [".npz", ".json"])
def test_files_keep_every_call(tmp_path, ending):
    found = vectors(SPARSE)
    found.save(tmp_path / f"v{ending}")
    again = VectorSet.load(tmp_path / f"v{ending}")
    for ours, theirs in zip(found.groups, again.groups, strict=True):
        assert (ours.name, ours.catches, ours.choice, ours.call) == (
            theirs.name,
            theirs.catches,
            theirs.choice,
            theirs.call,
        )
        assert ours.registers.keys() == theirs.registers.keys()
        for role, words in ours.registers.items():
            assert np.array_equal(words, theirs.registers[role]), role


DAMAGE = {
    "no call": (lambda row: row.pop("call"), "expected a call as `save` writes it, got None"),
    "descriptors": (lambda row: row["call"].update(descriptors=["0x1"]), "expected a call as `save` writes it"),
    "wide": (lambda row: row["call"].update(descriptors=["0x0", "0x1" + "0" * 16]), "expected a call"),
    "trans": (lambda row: row["call"].update(trans=[0, 1]), "a call has true and false"),
    "variant": (lambda row: row["call"].update(staged=False, trans=[True, True]), "A in registers cannot be MN-major"),
    "no shared": (lambda row: row.pop("shared"), "as shared, got nothing"),
    "no a": (lambda row: row["call"].update(staged=False), "as a, got nothing"),
    "threads": (
        lambda row: row.update(c=["0,0", "0,0"]),
        r"expected uint32\[2, 4, 32, 4\] as c, got uint32\[2, 2, 1\]",
    ),
    "cases": (lambda row: row.update(cases=3), "as c, got"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_group_is_refused(tmp_path, damage):
    found = vectors("wgmma.mma_async.m64n8k16.f32.f16.f16")
    about = json.loads(as_json(found.instruction, found.arch, (found["K-major, no swizzle"],)))
    change, message = DAMAGE[damage]
    change(about["groups"][0])
    (tmp_path / "v.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(UnusableFile, match=f"^'v.json': .*{message}"):
        VectorSet.load(tmp_path / "v.json")


def test_the_program_compiles_with_a_function_of_ones_own(tmp_path):
    nvcc = find_nvcc()
    found = vectors(SPARSE)
    found.save(tmp_path / "FILE.cu")
    found.save(tmp_path / "v.h")
    said = [line[2:].split() for line in (tmp_path / "FILE.cu").read_text("utf-8").splitlines() if "nvcc -std" in line]
    mine = f'#include "v.h"\n#define my_mma warpfrag::{identifier(found.instruction)}::mma\n'
    (tmp_path / "my_mma.cuh").write_text(emit(SPARSE) + mine, encoding="utf-8")
    assert len(said) == 2
    for words in said:
        options = words[1 : words.index("&&")]
        command = [str(nvcc), "-Werror", "all-warnings", "-Xptxas", "-O0", *options]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
        assert [line for line in run.stderr.splitlines() if not line.startswith("ptxas info")] == []
        assert run.returncode == 0


def test_a_call_is_read_as_it_was_written():
    for group in vectors(F16).groups:
        assert WgmmaCall.read(group.call.row, group.choice.selector) == group.call
    other = replace(group.call, scale_d=False)
    assert WgmmaCall.read(other.row, 0) == other != group.call


def test_the_seed_and_the_architecture_are_as_for_every_product():
    first, second, other = (vectors(SPARSE, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a.d, b.d) for a, b in zip(first.groups, second.groups, strict=True))
    assert not all(np.array_equal(a.d, b.d) for a, b in zip(first.groups, other.groups, strict=True))
    assert get(SPARSE) is first.instruction
