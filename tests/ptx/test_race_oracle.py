"""Random kernels compared with an independent happens-before oracle (`tools.race_oracle`): all races, and nothing else.

`python -m tools.race_oracle 0 20000` runs many more.
"""

import pytest

from tools.race_oracle.__main__ import compare
from tools.race_oracle.oracle import Shape, Step, judge
from tools.race_oracle.random_steps import Generator

pytestmark = pytest.mark.one_engine


def check_kernels(seeds, engine):
    """Compare the verdicts of random kernels with the oracle; few may be incomplete, and both verdicts occur."""
    verdicts = {seed: compare(seed, engine) for seed in seeds}
    assert {seed: verdict.wrong for seed, verdict in verdicts.items() if verdict.wrong} == {}
    names = [verdict.verdict for verdict in verdicts.values()]
    assert names.count("incomplete") <= len(names) // 10
    assert names.count("clean") > len(names) // 4 < 2 * names.count("findings")


def test_random_kernels_have_the_races_of_the_oracle():
    check_kernels(range(30), "reference")


@pytest.mark.parametrize(("seed", "verdict"), [(301_128, "clean"), (100_001, "findings"), (100_308, "findings")])
def test_a_relaxed_wait_acquires_with_the_next_fence_only(seed, verdict):
    assert compare(seed) == (verdict, verdict == "findings", "")


def test_a_copy_needs_a_proxy_fence_after_every_unordered_atomic():
    assert compare(311_749) == ("findings", True, "")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_five_hundred_kernels_have_the_races_of_the_oracle(first):
    check_kernels(range(100_000 + first, 100_100 + first), "reference")


@pytest.mark.slow
def test_compiled_kernels_have_the_races_of_the_oracle():
    check_kernels(range(200_000, 200_030), "compiled")


def test_random_kernels_use_everything_that_the_oracle_knows():
    generators = [Generator(seed) for seed in range(300)]
    steps = [step for generator in generators for step in generator.steps()]
    assert {step.name for step in steps} == {name.removeprefix("do_") for name in vars_of_oracle()}
    assert {step.way for step in steps if step.name == "copy"} == {"cp.async", "bulk", "tensor", "neighbour"}
    assert max(generator.shape.blocks * generator.shape.warps for generator in generators) == 64


def vars_of_oracle():
    """Return the names of the oracle's steps."""
    return [name for name in dir(judge(Shape(1, 1), [])) if name.startswith("do_")]


@pytest.mark.parametrize(
    ("between", "pairs"),
    [
        ([], {(0, 1)}),
        ([Step("block", more={"block": 0})], set()),
        ([Step("warp", 0)], {(0, 2)}),
        ([Step("named", more={"barrier": 1, "waiters": [1], "arrivers": [0]})], set()),
        ([Step("named", more={"barrier": 1, "waiters": [0], "arrivers": [1]})], {(0, 2)}),
        ([Step("fence", 0, 1, {"scope": "gpu"})], {(0, 2)}),
    ],
)
def test_the_oracle_orders_a_store_and_a_load(between, pairs):
    word = {"word": ("shared", 0, 0)}
    oracle = judge(Shape(1, 2), [Step("st", 0, 1, word), *between, Step("ld", 1, 1, word)])
    assert oracle.pairs == pairs
