"""Test vectors: every mistake in a layout is caught, for every instruction, and every group keeps its word."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from instructions import of_a_warp
from warpfrag import IllegalInstruction, InvalidOperand, NotModelled, WarpfragError
from warpfrag.cli.vectors import command
from warpfrag.codegen.vectors import vectors
from warpfrag.codegen.vectors.arithmetic_models import MODELS, Sums, _exact, _to_nearest
from warpfrag.codegen.vectors.vector_group import VectorGroup
from warpfrag.codegen.vectors.vector_sets import VectorSet
from warpfrag.tensorcore.execute import execute

MMA = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def modelled():
    """Every product with an architecture to run it: sm_90 where it can, else sm_120."""
    found = {}
    for instruction in of_a_warp():
        arch = "sm_90" if "sm_90" in instruction.targets else "sm_120"
        if instruction.form.is_product and instruction.evidence(arch).level != "not modelled":
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


@pytest.mark.parametrize("bits", [1, 60, 200])
def test_exact_sums_are_rounded_once(bits):
    """Also of numbers so far apart that two doubles do not hold their sum, and of an infinity."""
    random = np.random.default_rng(bits)
    terms = np.ldexp(random.uniform(-2, 2, (17, 200)), random.integers(-bits, bits, (17, 200)))
    terms[9] = -terms[3]
    terms[2, :3] = np.inf

    assert _exact([*terms]).tolist() == [math.fsum(column) for column in terms.T.tolist()]


def test_models_are_what_they_are_called():
    sums = Sums(np.array([[[2.0**24, 1, 1, -(2.0**24)]]]), np.array([[0.5]]))
    found = [float(model(sums, _to_nearest(np.float32))[0, 0]) for model in MODELS.values()]

    # by hand, in f32: at once; k ascending and descending; 2^24 + 1 + 0.5, then the rest; 2, then 0.5
    assert found == [2.5, 0, 2, 3, 2.5]


def test_every_instruction_that_is_modelled_is_checked():
    assert sum(map(len, FAMILIES.values())) >= 328 + 50


def test_wrong_selectors_and_ids_are_tried():
    names = [*vectors(SPARSE).self_check(), *vectors(SCALED, arch="sm_120").self_check()]

    assert any("run as selector1" in name for name in names)
    assert any("run as bytes" in name for name in names)


def test_a_set_that_catches_nothing_says_so():
    found = vectors(MMA)
    group = found["positions"]
    words = {role: np.zeros_like(array) for role, array in group.words.items()}
    blind = VectorSet(found.instruction, "sm_90", (VectorGroup("blind", "nothing", words, np.zeros_like(group.d)),))

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


def test_an_architecture_may_be_written_short():
    assert vectors(SPARSE, arch="90").arch == "sm_90"


def test_the_same_seed_gives_the_same_vectors():
    first, second, other = vectors(SPARSE), vectors(SPARSE), vectors(SPARSE, seed=2)

    assert all(np.array_equal(a.d, b.d) for a, b in zip(first.groups, second.groups, strict=True))
    assert not all(np.array_equal(a.d, b.d) for a, b in zip(first.groups, other.groups, strict=True))


def test_saturation_tells_clamping_from_wrapping():
    wraps = vectors("mma.m16n8k32.s32.s8.s8.s32")["saturation"]
    words = [wraps.words[role] for role in "abc"]
    clamped = execute("mma.m16n8k32.row.col.satfinite.s32.s8.s8.s32", *words)

    assert 0.1 < np.mean(clamped != wraps.d) < 0.9


def test_refusals():
    with pytest.raises(
        InvalidOperand, match=r"^ldmatrix\.\S+ moves registers and computes nothing: vectors are made for mma"
    ):
        vectors("ldmatrix.m8n8.x4.b16")
    for seed in (-1, True, "1", 1.0, None):
        with pytest.raises(InvalidOperand, match=f"^seed is an integer, at least 0, got {seed!r}$"):
            vectors(MMA, seed=seed)
    for arch in (90, ["sm_90"], None):
        with pytest.raises(WarpfragError, match="arch"):
            vectors(MMA, arch=arch)
    with pytest.raises(WarpfragError, match="expected PTX text, got a int"):
        vectors(5)
    with pytest.raises(IllegalInstruction, match="cannot run it"):
        vectors(SCALED, arch="sm_90")
    with pytest.raises(NotModelled, match="there is no measurement of the wmma fragments of sm_80"):
        vectors("wmma.mma.row.col.m16n16k16.f32.f16", arch="sm_80")


def test_an_unknown_group_is_refused_with_the_names():
    found = vectors(MMA)
    for name in ("roundin", 0, ["rounding"]):
        with pytest.raises(InvalidOperand, match="group is one of positions, random, .*, overflow; got"):
            found[name]


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

    for lang, start in (("c", "// Test vectors of"), ("cuda", "// Runs the test vectors of")):
        answer = runner.invoke(command, [SPARSE, "--lang", lang], standalone_mode=False)
        assert answer.stdout.startswith(start)
    assert runner.invoke(command, [SPARSE, "--lang", "c", "--json"]).exit_code == 2
    for refused in ("missing/v.npz", "v.txt"):
        with pytest.raises(WarpfragError, match="cannot write|ending names the format"):
            runner.invoke(
                command, [SPARSE, "-o", str(tmp_path / refused)], standalone_mode=False, catch_exceptions=False
            )


def test_making_vectors_loads_no_code_generator():
    code = f"import sys; from warpfrag.codegen.vectors import vectors; vectors({MMA!r})"
    code += "; generators = ('warpfrag.codegen.cuda_wrappers', 'warpfrag.codegen.ptx_wrappers')"
    code += "; print([name for name in sys.modules if name.startswith(generators)])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert run.stdout.strip() == "[]"
