"""Steps of few products run in separate loops: which blocks use them, and the fallbacks for a block or a row."""

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
from warpfrag.tensorcore.encodings import loop_variant_of
from warpfrag.tensorcore.thread_split import run_split

SHORT = [
    (instruction("mma", "m16n8k8", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("mma", "m16n8k4", "f32.tf32.tf32.f32"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_89"),
    (instruction("mma", "m16n8k8", "f32.f16.f16.f32"), "sm_75"),
    (instruction("mma", "m8n8k4", "f32.f16.f16.f32"), "sm_70"),
    (instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f16"), "sm_80"),
    (instruction("wmma.mma", "m16n16k16", "f16.f16.f16.f32"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_90"),  # 16 products: their signs are two bytes
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_90"),
    (instruction("mma.sp", "m16n8k32", "f32.f16.f16.f32"), "sm_90"),  # they meet 32 rows of B: four bytes
    (instruction("mma.sp", "m16n8k16", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("mma.sp", "m16n8k8", "f32.tf32.tf32.f32"), "sm_90"),
]
WIDE = [form for form in SHORT if FORMATS[form[0].a].exponent == 8]
"""Those whose products may have exponents near the ends of f32's range."""
LONG = [
    (instruction("mma", "m16n8k16", "f16.f16.f16.f16"), "sm_80"),  # rounded to the nearest f16
    (instruction("mma", "m8n8k4", "f32.f16.f16.f16"), "sm_70"),  # C's exponent has a floor
    (instruction("mma", "m16n8k16", "f32.e4m3.e4m3.f32"), "sm_90"),  # C is added last
]


@pytest.mark.parametrize(("asked", "arch"), SHORT)
def test_these_rules_have_short_steps(asked, arch):
    assert loop_variant_of(rule_of(asked, arch)).is_short


@pytest.mark.parametrize(("asked", "arch"), LONG)
def test_these_have_not(asked, arch):
    assert not loop_variant_of(rule_of(asked, arch)).is_short


def drawn_near(random, name, shape, centre=0, spread=3):
    """Every sign and fraction, exponents that far from the centre at most."""
    row = FORMATS[name]
    exponent = row.bias + centre + random.integers(-spread, spread + 1, shape)
    codes = ((exponent << row.fraction) | random.integers(0, 1 << row.fraction, shape)) << row.unused
    return (codes | (random.integers(0, 2, shape) << (row.bits - 1))).astype(code_type(name))


def drawn_product(rule, tiles=1):
    """Near 1: three blocks of columns, the last not full, rows past the last strip, more steps than one panel has."""
    random = np.random.default_rng(11)
    depth = 96 if rule.c == rule.d else rule.k
    shapes = operand_shapes(rule, 9, 150, depth // rule.k)
    drawn = {operand: drawn_near(random, name, (tiles, *shape[1:])) for operand, (name, shape) in shapes.items()}
    if rule.is_sparse:
        drawn["columns"] = stored_columns(rule, random.integers(0, 1 << 16, drawn["a"].shape))
    return drawn


def assert_right(rule, drawn):
    """Whole tiles, and parts of them on threads, give the codes of the portable backend."""
    expected = TWINS["portable"](rule, **drawn)
    np.testing.assert_array_equal(TWINS["compiled"](rule, **drawn), expected)
    parts = run_split(Compiled().compile(rule), ProductOperands(**drawn), threads=2)
    np.testing.assert_array_equal(parts, expected)


def nothing(_rule, _drawn):
    """All blocks and rows run as short steps."""


def a_large_c(rule, drawn):
    """In the second block of columns."""
    drawn["c"][:, 3, 70] = FORMATS[rule.c].encode(FORMATS[rule.c].max)


def an_infinite_c(rule, drawn):
    """In the second block of columns."""
    drawn["c"][:, 8, 127] = FORMATS[rule.c].encode(float("inf"))


def c_above_and_below(rule, drawn):
    """Further than the kept bits reach, on both sides; not so far that a block would not run as short steps."""
    row = FORMATS[rule.c]
    reach = 28 if row.exponent == 8 else 12
    random = np.random.default_rng(12)
    drawn["c"][:, :5] = drawn_near(random, rule.c, drawn["c"][:, :5].shape, reach, 3)
    drawn["c"][:, 5:] = drawn_near(random, rule.c, drawn["c"][:, 5:].shape, 2 - reach, 3)


def small_columns(rule, drawn):
    """In the third block of columns every product is very small, C too."""
    drawn["b"][:, :, 130:] = (np.arange(20) % 3 + 1) << FORMATS[rule.b].unused
    drawn["c"][:, ::2, 130:] = 1


def small_rows(rule, drawn):
    """The smallest elements in some rows of A."""
    drawn["a"][:, 6:] = 1 << FORMATS[rule.a].unused


def steps_without_products(_rule, drawn):
    """Zeros of A in a whole step of one row of four, of B in a step of some columns, and of both in others."""
    drawn["a"][:, 0, :8] = 0
    drawn["a"][:, 1, 48:56] = 0
    drawn["a"][:, 2, 8:24] = 0
    drawn["a"][:, 3, 64:72] = 0
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


def no_two_large_elements_meet(rule, drawn):
    """Of a wide format: products further below what their row and column allow than small exponents reach."""
    drawn["a"][:, :5, 1::2] = 1 << (FORMATS[rule.a].fraction + FORMATS[rule.a].unused)
    drawn["b"][:, ::2, :100] = 1 << (FORMATS[rule.b].fraction + FORMATS[rule.b].unused)


@pytest.mark.parametrize(
    "disturb",
    [
        nothing,
        a_large_c,
        an_infinite_c,
        c_above_and_below,
        small_columns,
        small_rows,
        steps_without_products,
        specials,
        no_two_large_elements_meet,
    ],
)
@pytest.mark.parametrize(("asked", "arch"), SHORT)
def test_every_way_gives_the_same_codes(asked, arch, disturb):
    rule = rule_of(asked, arch)
    drawn = drawn_product(rule)
    disturb(rule, drawn)
    assert_right(rule, drawn)


@pytest.mark.parametrize("pair", [-40, -39, -38, -37, 78, 79, 80, 81, 82])
@pytest.mark.parametrize(("asked", "arch"), WIDE)
def test_exponents_at_the_ends_of_what_is_short(asked, arch, pair):
    """The largest of a row and a column come to `pair`; products are as far below as can be told, or at the top."""
    rule = rule_of(asked, arch)
    drawn = drawn_product(rule)
    random = np.random.default_rng(13)
    for operand, centre in (("a", pair // 2), ("b", pair - pair // 2)):
        drawn[operand] = drawn_near(random, getattr(rule, operand), drawn[operand].shape, centre, 0)
    below = 62 if pair < 0 else 0
    for operand, first in (("a", 0), ("b", 1)):
        row = FORMATS[getattr(rule, operand)]
        lowered = below << (row.fraction + row.unused)
        codes = drawn[operand] if operand == "b" else drawn[operand].swapaxes(1, 2)
        codes[:, first::2] -= codes.dtype.type(lowered)
    drawn["c"] = drawn_near(random, rule.c, drawn["c"].shape, pair - below, 2)
    drawn["c"][:, :, ::3] = 0
    assert_right(rule, drawn)


def test_tiles_share_one_scratch():
    """What one tile leaves in the scratch changes nothing in the next."""
    rule = rule_of(*SHORT[0])
    drawn = drawn_product(rule, tiles=3)
    specials(rule, drawn)
    drawn["c"][1, 2, 3] = FORMATS[rule.c].encode(float("inf"))
    assert_right(rule, drawn)


def large_significands(_rule, drawn):
    """Nearly 2, all of them: sixteen products may come to more than 32 bits hold."""
    drawn["a"][:], drawn["b"][:] = 0x3FFF, 0x3FFF


def a_large_c_everywhere(rule, drawn):
    """In every block of columns."""
    drawn["c"][:, 0, ::64] = FORMATS[rule.c].encode(FORMATS[rule.c].max)


@pytest.mark.parametrize(
    ("form", "disturb", "is_short"),
    [
        (SHORT[0], nothing, True),
        (SHORT[0], a_large_c_everywhere, False),
        (SHORT[8], nothing, True),
        (SHORT[8], large_significands, False),
        (SHORT[2], large_significands, True),  # eight products fit
    ],
)
def test_blocks_take_the_short_way_where_numbers_allow(form, disturb, is_short):
    """Only that path reads the bytes that are prepared for it: without them, its codes change."""
    rule = rule_of(*form)
    drawn = drawn_product(rule)
    disturb(rule, drawn)
    job = prepared_job(rule, ProductOperands(**drawn))
    _, of_bytes = groups_of_b(job)
    of_bytes ^= 0x55
    job.run(OutputBlock(0, 1, 0, 9, 0, 150))
    assert (job.out != TWINS["portable"](rule, **drawn)).any() == is_short


@pytest.mark.parametrize("fraction", [0x3FF, 0x3EF, 0x3DF, 0x3C0])
@pytest.mark.parametrize("exponent", [0, 15, 20])
def test_sixteen_products_near_the_limit_of_32_bits(fraction, exponent):
    """Significands around those that add up to 31, with C as large as the products."""
    rule, random = rule_of(*SHORT[8]), np.random.default_rng(fraction)
    drawn = drawn_product(rule)
    drawn["a"][:] = 15 << 10 | fraction
    drawn["b"][:] = (15 + random.integers(0, 2, drawn["b"].shape)) << 10 | 0x3FF
    drawn["a"][:, ::2] |= 0x8000
    drawn["c"][:] = drawn_near(random, "f32", drawn["c"].shape, exponent // 10, 1)
    drawn["a"][:, 3, ::5] -= exponent
    assert_right(rule, drawn)
