"""Steps that truncate no product have separate loops, and BLAS: the blocks that use them, and codes near the limit."""

import numpy as np
import pytest
from arithmetic_cases import (
    TWINS,
    code_type,
    groups_of_b,
    instruction,
    operand_shapes,
    prepared_job,
    rule_of,
    stored_columns,
)

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.backend_protocol import OutputBlock, ProductOperands
from warpfrag.tensorcore.backends.compiled import Compiled
from warpfrag.tensorcore.backends.float_steps import Factors
from warpfrag.tensorcore.thread_split import run_split

HEIGHT, WIDTH = 9, 150
SPARSE = rule_of(instruction("mma.sp", "m16n8k64", "f32.e4m3.e4m3.f32"), "sm_90")
RULES = [
    rule_of(instruction("mma", "m16n8k32", f"f32.{a}.{b}.f32"), arch)
    for a, b in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2"))
    for arch in ("sm_89", "sm_90")
]


def near(random, name, shape, centre, spread=2):
    """Every sign and fraction, exponents at most that far from the centre; a tenth the least numbers, or 0."""
    row = FORMATS[name]
    exponent = np.clip(row.bias + centre + random.integers(-spread, spread + 1, shape), 0, (1 << row.exponent) - 2)
    codes = (exponent << row.fraction) | random.integers(0, 1 << row.fraction, shape)
    codes = np.where(random.random(shape) < 0.1, random.integers(0, 3, shape), codes)
    return (codes | (random.integers(0, 2, shape) << (row.bits - 1))).astype(code_type(name))


def drawn(rule, centre, random):
    """Three blocks of columns, the last not full; rows past the last strip; more instructions than one panel has."""
    shapes = operand_shapes(rule, HEIGHT, WIDTH, 3)
    centres = {"a": centre // 2, "b": centre - centre // 2, "c": centre}
    operands = {operand: near(random, name, shape, centres[operand]) for operand, (name, shape) in shapes.items()}
    if rule.is_sparse:
        operands["columns"] = stored_columns(rule, random.integers(0, 1 << 16, operands["a"].shape))
    return operands


def truncated(rule, operands):
    """Every code by steps that truncate products, in numpy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Factors, "has_exact_steps", lambda _factors, _rule: False)
        return TWINS["portable"](rule, **operands)


def is_exact(rule, operands):
    """Return True if any block omits signs: without them, the codes of all others change."""
    job = prepared_job(rule, ProductOperands(**operands))
    groups, _ = groups_of_b(job)
    groups[:, 1:] = ~groups[:, 1:]
    job.run(OutputBlock(0, 1, 0, HEIGHT, 0, WIDTH))
    return np.array_equal(job.out, truncated(rule, operands))


def check_both(rule, operands):
    """Compare the loops, and BLAS, with steps that truncate."""
    expected = truncated(rule, operands)
    found = run_split(Compiled().compile(rule), ProductOperands(**operands), threads=1)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(TWINS["portable"](rule, **operands), expected)


@pytest.mark.parametrize("centre", range(-12, 13, 2))
@pytest.mark.parametrize("rule", [*RULES, SPARSE], ids=str)
def test_every_code_around_where_steps_begin_to_truncate(rule, centre):
    random = np.random.default_rng(centre + 50)
    operands = drawn(rule, centre, random)
    check_both(rule, operands)


@pytest.mark.parametrize("rule", [RULES[1], SPARSE], ids=str)
def test_small_products_of_e4m3_are_not_truncated_and_large_ones_are(rule):
    found = [is_exact(rule, drawn(rule, centre, np.random.default_rng(3))) for centre in (-6, -2, 8)]
    assert found == [True, True, False]


@pytest.mark.parametrize(("centre", "expected"), [(-6, [True]), (-2, [True]), (8, [False])])
def test_numpy_leaves_the_same_products_to_blas(centre, expected, monkeypatch):
    answers, asked = [], Factors.has_exact_steps
    monkeypatch.setattr(
        Factors, "has_exact_steps", lambda factors, rule: answers.append(asked(factors, rule)) or answers[-1]
    )
    TWINS["portable"](RULES[1], **drawn(RULES[1], centre, np.random.default_rng(3)))
    assert answers == expected


def test_an_infinite_or_large_c_goes_the_general_way():
    rule = RULES[1]
    operands = drawn(rule, 0, np.random.default_rng(5))
    operands["c"][0, ::2, ::3] = FORMATS["f32"].encode(float("inf"))
    operands["c"][0, 1::2, 1::3] = FORMATS["f32"].encode(float("nan"))
    operands["c"][0, :, 2::3] = FORMATS["f32"].encode(FORMATS["f32"].max)
    check_both(rule, operands)
    assert not is_exact(rule, operands)


@pytest.mark.parametrize("largest", [7.5, 8.0, 9.0])
def test_the_first_step_at_the_limit_and_the_least_products_in_the_second(largest):
    """15 * 2**4 * 2**(1 + 3) = 240, then 2**-18: a step further, the second step's grid is 2**-17."""
    rule = RULES[1]
    shapes = operand_shapes(rule, HEIGHT, WIDTH, 1)
    values = {operand: np.zeros(shape) for operand, (_, shape) in shapes.items()}
    first, second = (list(step) for step in rule.steps)
    values["a"][..., first], values["b"][:, first] = 2.0, largest
    values["a"][..., second], values["b"][:, second] = 2.0**-9, 2.0**-9
    operands = {}
    for operand, (name, _) in shapes.items():
        encode = np.vectorize(FORMATS[name].encode, otypes=[code_type(name)])
        operands[operand] = encode(values[operand])
    check_both(rule, operands)
