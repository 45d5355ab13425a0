"""Steps of few products run in loops of their own: which do, and that what sends a block or a row elsewhere works."""

from __future__ import annotations

import numpy as np
import pytest
from arithmetic_cases import TWINS, code_type, instruction, operand_shapes, rule_of

from warpfrag.arithmetic.backends.compiled import Compiled, fused_constants
from warpfrag.arithmetic.protocol import Operands
from warpfrag.arithmetic.schedule import run_split
from warpfrag.formats import FORMATS

SHORT = [
    (instruction("mma", "m16n8k8", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("mma", "m16n8k4", "f32.tf32.tf32.f32"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_89"),
    (instruction("mma", "m16n8k8", "f32.f16.f16.f32"), "sm_75"),
    (instruction("mma", "m8n8k4", "f32.f16.f16.f32"), "sm_70"),
    (instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f16"), "sm_80"),
]
LONG = [
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_90"),  # 16 products
    (instruction("mma", "m16n8k16", "f16.f16.f16.f16"), "sm_80"),  # rounded to the nearest f16
    (instruction("mma", "m8n8k4", "f32.f16.f16.f16"), "sm_70"),  # C's exponent has a floor
    (instruction("mma.sp", "m16n8k16", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("mma", "m16n8k16", "f32.e4m3.e4m3.f32"), "sm_90"),  # C is added last
]


@pytest.mark.parametrize(("asked", "arch"), SHORT)
def test_these_rules_have_short_steps(asked, arch):
    assert fused_constants(rule_of(asked, arch)).is_short


@pytest.mark.parametrize(("asked", "arch"), LONG)
def test_these_have_not(asked, arch):
    assert not fused_constants(rule_of(asked, arch)).is_short


def drawn_near_one(random, name, shape):
    """Every sign and fraction, exponents within three of 1's."""
    row = FORMATS[name]
    exponent = row.bias + random.integers(-3, 4, shape)
    codes = ((exponent << row.fraction) | random.integers(0, 1 << row.fraction, shape)) << row.unused
    return (codes | (random.integers(0, 2, shape) << (row.bits - 1))).astype(code_type(name))


def nothing(_rule, _drawn):
    """All blocks and rows take the short way."""


def a_large_c(rule, drawn):
    """In the second block of columns; C is too large for the loop there."""
    row = FORMATS[rule.c]
    drawn["c"][:, 3, 70] = row.encode(row.max)


def an_infinite_c(rule, drawn):
    """In the second block of columns."""
    drawn["c"][:, 8, 127] = FORMATS[rule.c].encode(float("inf"))


def small_columns(rule, drawn):
    """In the third block of columns every product is very small, C too."""
    drawn["b"][:, :, 130:] = (np.arange(20) % 3 + 1) << FORMATS[rule.b].unused
    drawn["c"][:, ::2, 130:] = 1


def small_rows(rule, drawn):
    """Some rows of A: no block takes the short way."""
    drawn["a"][:, 6:] = 1 << FORMATS[rule.a].unused


def steps_without_products(_rule, drawn):
    """Zeros of A in a whole step of some rows, of B in a step of some columns, and of both in others."""
    drawn["a"][:, 2, 8:24] = 0
    drawn["a"][:, 4:6, 40:] = 0
    drawn["b"][:, 16:32, 5] = 0
    drawn["b"][:, 24:48, 60:140] = 0
    drawn["c"][:, :, 62] = 0


def specials(rule, drawn):
    """Infinities and NaNs, in the first and in the last step of a panel, and in the last of all."""
    for operand, row in (("a", FORMATS[rule.a]), ("b", FORMATS[rule.b])):
        infinity, nan = row.encode(float("inf")), row.nan_code
        where = drawn[operand][0] if operand == "a" else drawn[operand][0].T
        where[1, 0], where[3, 31 % rule.k], where[7, -1] = infinity, nan, infinity | row.sign_bit


def far_below(rule, drawn):
    """Products further below what their row and column allow than small exponents reach: no two large elements meet."""
    drawn["a"][:, :5, 1::2] = 1 << (FORMATS[rule.a].fraction + FORMATS[rule.a].unused)
    drawn["b"][:, ::2, :100] = 1 << (FORMATS[rule.b].fraction + FORMATS[rule.b].unused)


@pytest.mark.parametrize(
    "disturb",
    [nothing, a_large_c, an_infinite_c, small_columns, small_rows, steps_without_products, specials, far_below],
)
@pytest.mark.parametrize(("asked", "arch"), SHORT)
def test_every_way_gives_the_same_codes(asked, arch, disturb):
    """Three blocks of columns, the last not full, rows past the last strip, and more steps than one panel has."""
    rule = rule_of(asked, arch)
    random = np.random.default_rng(11)
    depth = 80 if rule.c == rule.d else rule.k
    shapes = operand_shapes(rule, 9, 150, depth // rule.k)
    drawn = {operand: drawn_near_one(random, name, shape) for operand, (name, shape) in shapes.items()}
    disturb(rule, drawn)
    expected = TWINS["portable"](rule, **drawn)
    np.testing.assert_array_equal(TWINS["compiled"](rule, **drawn), expected)
    parts = run_split(Compiled().compile(rule), Operands(drawn["a"], drawn["b"], drawn["c"]), threads=2)
    np.testing.assert_array_equal(parts, expected)
