"""Sweep plans: their cases and operands, and errors that name the wrong key."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.sweep import Case, SweepPlan
from warpfrag.sweep.sweep_plan import DISTRIBUTIONS, SweepBlock, matrices_of

F16 = "mma.m16n8k16.f32.f16.f16.f32"
FP8 = "mma.m16n8k32.f32.e4m3.e4m3.f32"
SPARSE = "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
FORMATS = [F16, FP8, SPARSE, "mma.m16n8k8.f32.tf32.tf32.f32", "mma.m8n8k4.f64.f64.f64.f64"]
FORMATS += ["mma.m16n8k32.s32.s8.u8.s32", "mma.m16n8k64.s32.s4.s4.s32", "mma.m16n8k128.s32.b1.b1.s32.and.popc"]
LEAST = {"instruction": F16, "arch": "sm_90", "shape": [4, 5, 6], "data": "normal"}


def test_every_combination_is_a_case(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(
        f'# a comment\ninstruction = ["{F16}", "{FP8}"]\narch = ["sm_80", "H100"]\nshape = [[4, 5, 6], [7, 8, 9]]\n'
        'data = "wide"\norder = [{}, { split_k = 2, unit = 16 }]\nseed = [3, 4]\nblock = [4, 5]\n',
        encoding="utf-8",
    )
    plan = SweepPlan.read(path)

    assert len(plan.cases) == 32
    assert plan.cases[0].to_dict() == {
        "instruction": wf.get(F16).name, "arch": "sm_80", "shape": [4, 5, 6], "data": "wide", "order": {}, "seed": 3,
        "backend": "cpu",
    }  # fmt: skip
    assert str(plan.cases[-1]) == ("mma.m16n8k32.row.col.f32.e4m3.e4m3.f32 sm_90a 7x8x9 wide split_k=2,unit=16 4 cpu")
    assert len([case for case in plan.cases if "sm_80 does not have this instruction" in case.refusal]) == 8
    blocks = dict(plan.cases[-1].blocks(plan.block))
    assert blocks == {
        (0, 0): (range(4), range(5)), (0, 1): (range(4), range(5, 8)),
        (1, 0): (range(4, 7), range(5)), (1, 1): (range(4, 7), range(5, 8)),
    }  # fmt: skip


def test_the_hash_is_of_what_a_file_means():
    same = SweepPlan.of_table({"order": [{}], "seed": 0, **LEAST, "instruction": [wf.get(F16).name]})
    assert SweepPlan.of_table(LEAST).digest == same.digest
    assert SweepPlan.of_table(LEAST | {"seed": 1}).digest != same.digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instructions": F16}, "unknown key 'instructions': the nearest is 'instruction'"),
        ({"zzz": 1}, "unknown key 'zzz': the keys are instruction, arch, shape, data, order, seed, backend, block"),
        ({"arch": None}, "the key 'arch' is missing: expected the name of an architecture, such as 'sm_90'"),
        ({"instruction": 3}, "instruction: expected the name of an instruction; got 3"),
        ({"instruction": [F16, "mma.m16n8k16.f32.f16.f16.f64"]}, "instruction[1]: 'mma.m16n8k16.f32.f16.f16.f64': "),
        ({"arch": ["sm_90", "sm_9"]}, "arch[1]: "),
        ({"arch": []}, "arch: expected the name of an architecture, such as 'sm_90', or a list of them; got an empty"),
        ({"arch": ["sm_90", "sm_90"]}, "arch[1] repeats arch[0]: 'sm_90'"),
        (
            {"shape": [4, 5]},
            "shape: expected three integers M, N, K from 1 to 16777216, such as [64, 64, 256]; got [4, 5]",
        ),
        ({"shape": [[4, 5, 6], [4, 5, 0]]}, "shape[1]: expected three integers M, N, K"),
        ({"shape": [[4, 5, True]]}, "shape: expected three integers M, N, K"),
        ({"data": "nrmal"}, "data: expected one of normal, uniform, positive, powers, bits, "),
        ({"data": "nrmal"}, "; got 'nrmal'"),
        ({"order": "split_k=2"}, "order: expected a table such as { split_k = 4, unit = 64 } with the keys split_k, "),
        ({"order": {"split": 2}}, "with the keys split_k, unit, promote, residue, step, segment_k, in_place; got "),
        ({"order": {"split_k": 0}}, "order: split_k: expected an integer of at least 1; got 0"),
        ({"seed": -1}, "seed: expected a non-negative integer; got -1"),
        ({"backend": "gpu"}, "backend: expected one of cpu, cuda, native, auto; got 'gpu'"),
        ({"block": [16]}, "block: expected two integers from 1 to 16777216, such as [256, 256]; got [16]"),
        ({"instruction": FP8, "arch": "sm_80"}, "no case can be computed; the first is mma.m16n8k32.row.col"),
        (
            {"data": "extreme"},
            "data 'extreme' does not fit f16; expected one of normal, uniform, positive, powers, bits, finite",
        ),
        ({"order": {"promote": 24}}, "promote: expected a multiple of the instruction's k, 16; got 24"),
        ({"seed": [*range(100_001)]}, "the plan has 100001 cases; expected at most 100000"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(change: dict, message: str):
    table = {name: value for name, value in (LEAST | change).items() if value is not None}
    with pytest.raises(wf.errors.FileError) as refused:
        SweepPlan.of_table(table)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"arch = ", "is not TOML: Invalid value (at end of document)"),
        (b"arch = 1\n\xff", "is not TOML: 'utf-8' codec"),
        (b"arch = 1", "sweep.toml': the key 'instruction' is missing"),
        (b" " * (1 << 20) + b"\n", "it has more than 1048576 bytes"),
    ],
)
def test_files_that_are_no_study(tmp_path, content: bytes, message: str):
    path = tmp_path / "sweep.toml"
    path.write_bytes(content)
    with pytest.raises(wf.errors.FileError) as refused:
        SweepPlan.read(path)
    assert message in str(refused.value)


def case(name: str, data: str, seed: int = 0) -> Case:
    return Case(wf.get(name).name, "sm_120" if name == SCALED else "sm_90", (9, 7, 150), data, wf.Order(), seed, "cpu")


@pytest.mark.parametrize("name", [*FORMATS, SCALED])
def test_operands_do_not_depend_on_how_d_is_cut(name: str):
    """And gemm takes them, so that every code is legal and a sparse A is pruned."""
    tried = 0
    for data in DISTRIBUTIONS:
        one = case(name, data)
        if one.refusal:
            continue
        tried += 1
        whole, part = one.operands(), one.operands(SweepBlock(range(2, 5), range(3, 7)))
        assert np.array_equal(part["A"], whole["A"][2:5])
        assert np.array_equal(part["B"], whole["B"][:, 3:7])
        if name == SCALED:
            assert np.array_equal(part["scale_a"], whole["scale_a"][2:5])
            assert np.array_equal(part["scale_b"], whole["scale_b"][:, 3:7])
        assert wf.gemm(*matrices_of(part), **one.options(), raw=True).shape == (3, 4)
        assert len(np.unique(whole["A"])) > 1
    assert tried == (6 if name.startswith(("mma.m16n8k32.s32", "mma.m16n8k64.s32", "mma.m16n8k128")) else 10)


def values(name: str, data: str, seed: int = 0) -> np.ndarray:
    row = wf.get(name).a.format
    return np.array([float(row.decode(int(code))) for code in case(name, data, seed).operands()["A"].ravel()])


@pytest.mark.parametrize("name", [F16, FP8, "mma.m16n8k32.s32.s8.s8.s32"])
def test_distributions_are_what_they_are_called(name: str):
    most = float(wf.get(name).a.format.max)
    is_float = wf.get(name).a.format.is_float
    normal, uniform, positive, powers = (values(name, data) for data in ("normal", "uniform", "positive", "powers"))
    spread = 1 if is_float else most / 4

    assert abs(normal.mean()) < 0.1 * spread
    assert 0.9 < normal.std() / spread < 1.1
    assert -1 <= uniform.min() / (1 if is_float else most + 1) < -0.95
    assert abs(uniform.mean()) < (0.05 if is_float else 0.05 * most)
    assert positive.min() >= 0
    assert set(np.abs(powers)) == {
        2.0**power for power in range(-6 if name == FP8 else -8 if is_float else 0, 9 if is_float else 7)
    }
    assert 0.4 < (powers < 0).mean() < 0.6
    assert not np.array_equal(normal, values(name, "normal", seed=1))


def test_formats_only_round_the_values():
    """f64 has almost the generated values; the other formats have the nearest ones."""
    drawn = values("mma.m8n8k4.f64.f64.f64.f64", "normal")
    for name in (F16, FP8):
        row = wf.get(name).a.format
        rounded = [float(row.decode(row.encode(value, rounding="rne"))) for value in drawn]
        assert np.array_equal(values(name, "normal"), rounded)
