"""Relayouts of tiled fragments: no plan is wrong for any n, and a wrong plan is never returned."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import warpfrag as wf
from tools.plans import sample_plans
from tools.tiled_relayouts import FAMILIES, check, differences, tiled_pairs
from warpfrag.plans import relayout as planner
from warpfrag.plans.relayout import Relayout
from warpfrag.plans.relayout_check import is_right
from warpfrag.plans.relayout_operations import Convert, Permute, RegisterSlot, Transpose
from warpfrag.plans.shuffle_search import Select, Shuffle

FEW = 60


def wgmma(n: int) -> Any:
    return wf.get(f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16")


@pytest.mark.parametrize(
    ("n", "tiles", "target", "target_tiles"),
    [(24, 2, 48, 1), (16, 3, 24, 2), (16, 5, 40, 2), (24, 4, 96, 1), (48, 2, 96, 1), (72, 2, 144, 1), (24, 3, 72, 1)],
)
def test_tiles_that_hold_the_same_registers_are_the_same_registers(n, tiles, target, target_tiles):
    source, end = wgmma(n).d.tiled(col=tiles), wgmma(target).d.tiled(col=target_tiles)
    matrix = np.arange(64 * n * tiles, dtype=np.float32).reshape(64, -1)
    plan = wf.relayout(source, end)
    assert plan.operations == ()
    assert np.array_equal(end.unpack(plan(source.pack(matrix))), matrix)


@pytest.mark.parametrize("n", [48, 80, 96, 112])
def test_two_accumulators_are_the_next_a(n):
    source, end = wgmma(n).d.tiled(col=2), wgmma(8).a.tiled(col=n // 8)
    matrix = np.arange(128 * n, dtype=np.float32).reshape(64, -1) % 2000
    plan = wf.relayout(source, end)
    assert plan.is_free
    assert np.array_equal(end.unpack(plan(source.pack(matrix))), matrix.astype(np.float16))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_of_tiled_pairs_is_right(family):
    """`python -m tools.tiled_relayouts` executes all of them."""
    pairs = Random(45).sample([*tiled_pairs(family)], FEW)
    verdicts = [check(pair, seed) for seed, pair in enumerate(pairs)]
    assert not [(str(pair), said) for pair, said in zip(pairs, verdicts, strict=True) if said.startswith("wrong")]
    refused = {said for said in verdicts if said != "right"}
    # tcgen05: D must have whole steps of k, in the lanes of A
    assert not refused if family != "tcgen05" else verdicts.count("right") > FEW // 5


def broken(plan: Relayout) -> list[tuple[Any, ...]]:
    """Return the operations with one of them changed, left out or doubled."""
    changed = []
    for at, op in enumerate(plan.operations):
        some: list[tuple[Any, ...]] = [(), (op, op)]
        if isinstance(op, Permute | Convert | Select | Transpose):
            some.append((replace(op, words=op.words[1:] + op.words[:1]),))
            some.append((replace(op, words=op.words[:-1]),))
        if isinstance(op, Shuffle):
            some.append((replace(op, columns=op.columns[1:] + op.columns[:1]),))
            some.append((replace(op, flips=op.flips[1:] + op.flips[:1]),))
        changed += [(*plan.operations[:at], *new, *plan.operations[at + 1 :]) for new in some]
    return changed


def executes_right(plan: Relayout) -> bool:
    try:
        return not any(differences(plan, seed) for seed in range(3))
    except (ValueError, IndexError):  # a wrong number of words
        return False


def test_a_changed_plan_passes_only_if_its_execution_is_right():
    passed = rejected = 0
    for plan in sample_plans():
        end = plan.target.layout
        if plan.permutation is not None or len(plan.operations) == 0:
            continue
        assert is_right(plan.operations, plan.source.spec, plan.target.spec, end)
        for operations in broken(plan):
            verdict = is_right(operations, plan.source.spec, plan.target.spec, end)
            assert not verdict or executes_right(replace(plan, operations=operations)), (plan, operations)
            passed += verdict
            rejected += not verdict
    assert passed < rejected > 200


def test_a_wrong_plan_is_refused(monkeypatch):
    swapped = Permute(32, tuple((RegisterSlot(word ^ 1, 0),) for word in range(24)))
    monkeypatch.setattr(planner, "_plan", lambda *_: (swapped,))
    with pytest.raises(wf.errors.InvalidOperand, match="could be proved correct: store the matrix in shared memory"):
        wf.relayout(wgmma(24).d.tiled(col=2), wgmma(48).d)
