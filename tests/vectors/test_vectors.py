"""Test vectors: every mistake in a layout is caught, for every instruction, and every group keeps its word."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

from oracle.toolkit import absent
from warpfrag import IllegalInstruction, InvalidOperand, NotModelled, WarpfragError, find, get
from warpfrag.cli.vectors import command
from warpfrag.execute import execute
from warpfrag.vectors import vectors
from warpfrag.vectors.cases import Group
from warpfrag.vectors.mutations import mutations
from warpfrag.vectors.sets import VectorSet

MMA = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def modelled():
    """Every product with an architecture to run it: sm_90 where it can, else sm_120."""
    found = {}
    for instruction in find():
        if not instruction.form.is_product:
            continue
        arch = "sm_90" if "sm_90" in instruction.targets else "sm_120"
        words = {o.role: np.zeros((32, o.words), np.uint32) for o in instruction.operands.values() if o.role in "abc"}
        if instruction.form.is_sparse:
            words["metadata"] = np.full(32, 0x44444444, np.uint32)
        for role in ("scale_a", "scale_b"):
            if role in instruction.operands:
                words[role] = np.full(
                    32, 0x7F7F7F7F if instruction.form.scale_type == "ue8m0" else 0x38383838, np.uint32
                )
        try:
            execute(instruction, **words, arch=arch)
        except NotModelled:
            continue
        family = f"{instruction.op} {instruction.form.a} {instruction.form.kind}".strip()
        found.setdefault(family, []).append((instruction, arch))
    return found


FAMILIES = modelled()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mistake_is_caught(family, record_property):
    caught = 0
    for instruction, arch in FAMILIES[family]:
        found = vectors(instruction, arch=arch)
        check = found.self_check()
        positions = found.instruction.d.unpack(found["positions"].d, raw=True)

        assert [mistake for mistake, group in check.items() if group is None] == []
        assert [len(np.unique(case)) for case in positions] == [positions[0].size] * 2
        if instruction.d.format.is_float:
            assert len(found["rounding"].catches.split("; ")) >= 3, found["rounding"].catches
        caught += len(check)
    record_property("vectors: mistakes caught", caught)


def test_every_instruction_that_is_modelled_is_checked():
    assert sum(map(len, FAMILIES.values())) >= 328 + 50


def test_every_kind_of_mistake_is_made():
    kinds = ("registers", "slots reversed", "dropped", "other order", "fields reversed", "bytes reversed", "moved")
    names = [mutation.name for name in (MMA, SPARSE, SCALED) for mutation in mutations(get(name))]
    names += [
        name for one, arch in ((SPARSE, "sm_90"), (SCALED, "sm_120")) for name in vectors(one, arch=arch).self_check()
    ]

    assert [kind for kind in kinds if not any(kind in name for name in names)] == []
    assert any("run as selector1" in name for name in names)
    assert any("run as bytes" in name for name in names)


def test_a_set_that_catches_nothing_says_so():
    found = vectors(MMA)
    group = found["positions"]
    words = {role: np.zeros_like(array) for role, array in group.words.items()}
    blind = VectorSet(found.instruction, "sm_90", (Group("blind", "nothing", words, np.zeros_like(group.d)),))

    assert set(blind.self_check().values()) == {None}


def test_every_expectation_is_what_the_executor_gives():
    found = vectors(MMA)
    for group in found.groups:
        again = execute(found.instruction, group.words["a"], group.words["b"], group.words["c"], arch="sm_90")
        assert np.array_equal(again, group.d)


def test_the_arithmetic_of_another_architecture_is_told_apart():
    group = vectors(MMA, arch="sm_90")["rounding"]
    other = execute(MMA, group.words["a"], group.words["b"], group.words["c"], arch="sm_80")

    assert not np.array_equal(other, group.d)


def test_the_same_seed_gives_the_same_vectors():
    first, second, other = vectors(SPARSE), vectors(SPARSE), vectors(SPARSE, seed=2)

    assert all(np.array_equal(a.d, b.d) for a, b in zip(first.groups, second.groups, strict=True))
    assert not all(np.array_equal(a.d, b.d) for a, b in zip(first.groups, other.groups, strict=True))


def test_saturation_tells_clamping_from_wrapping():
    wraps = vectors("mma.m16n8k32.s32.s8.s8.s32")["saturation"]
    words = [wraps.words[role] for role in "abc"]
    clamped = execute("mma.m16n8k32.row.col.satfinite.s32.s8.s8.s32", *words)

    assert 0.1 < np.mean(clamped != wraps.d) < 0.9


@pytest.mark.parametrize("ending", [".npz", ".json"])
@pytest.mark.parametrize(("name", "arch"), [(MMA, "sm_90"), (SPARSE, "sm_90"), (SCALED, "sm_120")])
def test_files_are_read_back(tmp_path, name, arch, ending):
    found = vectors(name, arch=arch)
    found.save(tmp_path / f"v{ending}")
    back = VectorSet.load(tmp_path / f"v{ending}")

    assert (back.instruction, back.arch, len(back.groups)) == (found.instruction, arch, len(found.groups))
    for mine, its in zip(found.groups, back.groups, strict=True):
        assert (mine.name, mine.catches, mine.choice) == (its.name, its.catches, its.choice)
        assert np.array_equal(mine.d, its.d)
        assert mine.words.keys() == its.words.keys()
        assert all(np.array_equal(mine.words[role], its.words[role]) for role in mine.words)


def test_a_header_compiles_and_holds_the_words(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        absent("no C++ compiler")
    found = vectors(SPARSE)
    found.save(tmp_path / "v.h")
    name = "warpfrag_vectors::mma_sp_m16n8k32_row_col_s32_s8_s8_s32"
    (tmp_path / "sum.cpp").write_text(
        '#include "v.h"\n#include <cstdio>\nint main() {\n'
        f"  for (const auto& g : {name}::groups) {{\n"
        "    unsigned long long sum = 0;\n"
        "    for (int i = 0; i < g.cases * 32; ++i) sum += g.metadata[i];\n"
        "    for (int i = 0; i < g.cases * 32 * 4; ++i) sum += g.d[i];\n"
        '    std::printf("%d %llu %d\\n", g.selector, sum, g.scale_a == nullptr);\n  }\n}\n',
        encoding="utf-8",
    )
    program = tmp_path / "sum"
    options = ["-std=c++17", "-Wall", "-Werror", "-o", str(program)]
    subprocess.run([compiler, *options, str(tmp_path / "sum.cpp")], check=True)
    lines = subprocess.run([str(program)], capture_output=True, check=True, text=True).stdout.split("\n")
    sums = [int(group.words["metadata"].sum(dtype=np.uint64) + group.d.sum(dtype=np.uint64)) for group in found.groups]

    assert lines[:-1] == [f"{g.choice.selector} {total} 1" for g, total in zip(found.groups, sums, strict=True)]


def test_refusals(tmp_path):
    with pytest.raises(
        InvalidOperand, match=r"^ldmatrix\.\S+ moves registers and computes nothing: vectors are made for mma"
    ):
        vectors("ldmatrix.m8n8.x4.b16")
    with pytest.raises(InvalidOperand, match="^seed is an integer, at least 0, got -1$"):
        vectors(MMA, seed=-1)
    with pytest.raises(IllegalInstruction, match="cannot run it"):
        vectors(SCALED, arch="sm_90")
    with pytest.raises(NotModelled, match="nobody has measured the wmma fragments of sm_80"):
        vectors("wmma.mma.row.col.m16n16k16.f32.f16", arch="sm_80")
    with pytest.raises(WarpfragError, match=r"one of \.npz, \.json"):
        vectors(SPARSE).save(tmp_path / "v.txt")
    with pytest.raises(WarpfragError, match="can be read back"):
        VectorSet.load(tmp_path / "v.h")


def test_an_unknown_group_is_refused_with_the_names():
    with pytest.raises(InvalidOperand, match="group is one of positions, random, .*, overflow; got 'roundin'"):
        vectors(MMA)["roundin"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 0, "groups": []}', "expected test vectors of schema 1, got 0"),
        ('{"name": "something else"}', "expected test vectors of schema 1, got none"),
        ("[1, 2]", "expected test vectors of schema 1, got none"),
        ("no JSON", "expected test vectors of schema 1, got none"),
        ('{"schema": 1, "query": "vectors", "groups": []}', "as `save` writes them, got another JSON object"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, message):
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    with pytest.raises(WarpfragError, match=message):
        VectorSet.load(tmp_path / "other.json")


def test_an_archive_of_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(WarpfragError, match="other.npz: expected test vectors of schema 1, got none"):
        VectorSet.load(tmp_path / "other.npz")


def test_an_archive_holds_the_registers_and_nothing_else(tmp_path):
    found = vectors(SPARSE)
    found.save(tmp_path / "v.npz")
    expected = {f"{group.name}/{role}" for group in found.groups for role in (*group.words, "d")}
    with np.load(tmp_path / "v.npz") as archive:
        assert set(archive.files) == {"about", *expected}


def test_the_command(tmp_path):
    runner = CliRunner()
    place = tmp_path / "v.npz"
    answer = runner.invoke(command, [SPARSE, "--self-check", "-o", str(place)], standalone_mode=False)

    assert answer.return_value == 0
    assert "random selector1: 8 cases" in answer.stdout
    assert "mistakes are caught" in answer.stdout
    assert VectorSet.load(place).cases == vectors(SPARSE).cases

    answer = runner.invoke(command, [SPARSE, "--json", "--self-check"], standalone_mode=False)
    facts = json.loads(answer.stdout)
    assert (facts["schema"], facts["query"], facts["arch"]) == (1, "vectors", "sm_90")
    assert None not in facts["self_check"].values()

    with pytest.raises(WarpfragError, match="cannot write"):
        runner.invoke(
            command,
            [SPARSE, "-o", str(tmp_path / "missing" / "v.npz")],
            standalone_mode=False,
            catch_exceptions=False,
        )
