"""Results do not depend on threads, blocks, tiles, neighbours, or how K is split; wrong operands are rejected."""

import threading
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from arithmetic_cases import code_type, compiled_by, instruction, operand_shapes, rule_of, stored_columns

from warpfrag.errors import NotModelled
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_table import able_architectures, forms
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import Grain, ProductOperands
from warpfrag.tensorcore.backends import compiled
from warpfrag.tensorcore.backends.compiled import Compiled
from warpfrag.tensorcore.backends.portable import Portable
from warpfrag.tensorcore.matmul import matmul
from warpfrag.tensorcore.rules import IntegerSum
from warpfrag.tensorcore.thread_split import blocks_of_tile, blocks_of_tiles, run, run_all, run_split

FORMS = [
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_90"),
    (instruction("mma", "m16n8k16", "f16.f16.f16.f16"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_90"),
    (instruction("mma", "m16n8k32", "f32.e5m2.e4m3.f32"), "sm_90"),
    (instruction("mma", "m16n8k32", "f32.e5m2.e4m3.f32"), "sm_120"),
    (instruction("mma.sp", "m16n8k32", "f32.f16.f16.f32"), "sm_90"),
    (instruction("mma", "m8n8k4", "f32.f16.f16.f32"), "sm_90"),
    (instruction("mma", "m8n8k4", "f64.f64.f64.f64"), "sm_90"),
    (instruction("mma", "m16n8k32", "s32.s8.u8.s32", satfinite=True), "sm_90"),
    (instruction("mma.sp", "m16n8k64", "s32.s8.s8.s32"), "sm_90"),
    (instruction("mma", "m16n8k128", "s32.b1.b1.s32", bitop="xor"), "sm_90"),
    (
        instruction("mma", "m16n8k64", "f32.e2m1.e2m1.f32", kind="mxf4", scale_vec="2X", scale_type="ue8m0"),
        "sm_120",
    ),
    (
        instruction("mma", "m16n8k32", "f32.e4m3.e2m1.f32", kind="mxf8f6f4", scale_vec="1X", scale_type="ue8m0"),
        "sm_120",
    ),
]
ROWS = ("a", "c", "columns", "scale_a")
BY_COLUMN = ("b", "c", "scale_b")


def draw(rule, rows, columns, instructions):
    """Any codes, few of them special."""
    random = np.random.default_rng(11)
    drawn = {}
    for operand, (name, shape) in operand_shapes(rule, rows, columns, instructions).items():
        row = FORMATS[name]
        codes = random.integers(0, row.codes, shape, dtype=np.uint64)
        if row.is_float and row.fraction:  # clear one exponent bit of most: those are finite
            keep = random.random(shape) < 0.002
            cleared = codes & ~np.uint64(1 << (row.unused + row.fraction + row.exponent - 2))
            codes = np.where(keep, codes, cleared)
        elif row.is_float:
            codes = random.integers(120, 135, shape, dtype=np.uint64)
        drawn[operand] = codes.astype(code_type(name))
    if rule.is_sparse:
        drawn["columns"] = stored_columns(rule, random.integers(0, 12, drawn["a"].shape))
    return drawn


def part(drawn, *, rows=slice(None), columns=slice(None)):
    """Some rows of A and columns of B."""
    taken = {}
    for operand, codes in drawn.items():
        if codes is None:
            continue
        chosen = codes[:, rows] if operand in ROWS else codes
        taken[operand] = chosen[:, :, columns] if operand in BY_COLUMN else chosen
    return taken


@pytest.mark.parametrize("backend", [Portable(), Compiled()], ids=["portable", "compiled"])
@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_threads_and_blocks_do_not_matter(asked, arch, backend):
    """Whole, or split: taller than it is wide in blocks, and wider than one block of columns."""
    rule = rule_of(asked, arch)
    kernel = compiled_by(backend, rule)
    slow = backend.name == "portable" and rule.a == "f64"
    rows, columns, instructions = (9, 30, 2) if slow else (70, 530, -(-32 // rule.k))
    operands = ProductOperands(**draw(rule, rows, columns, instructions))
    whole = kernel.run_whole(operands)
    for threads in (1, 2, 7):
        np.testing.assert_array_equal(run_split(kernel, operands, threads), whole)
    wide = part(operands._asdict(), rows=slice(0, 3))
    np.testing.assert_array_equal(run_split(kernel, ProductOperands(**wide), 2), whole[:, :3])
    np.testing.assert_array_equal(run(kernel, operands, None, rule.k), whole)


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_an_output_depends_on_its_row_and_column_only(asked, arch):
    rule = rule_of(asked, arch)
    drawn = draw(rule, 19, 261, 2)
    whole = matmul(rule, **drawn)
    for rows, columns in (
        (slice(3, 4), slice(258, 261)),
        (slice(0, 19), slice(7, 8)),
        (slice(5, 9), slice(250, 260)),
    ):
        found = matmul(rule, **part(drawn, rows=rows, columns=columns))
        np.testing.assert_array_equal(found, whole[:, rows, columns])


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_a_batch_is_its_tiles(asked, arch):
    rule = rule_of(asked, arch)
    drawn = draw(rule, 16, 8 * 200, 1)
    tiles = [part(drawn, columns=slice(8 * tile, 8 * tile + 8)) for tile in range(200)]
    batch = {operand: np.concatenate([tile[operand] for tile in tiles]) for operand in drawn}
    kernel = compiled_by(Compiled(), rule)
    whole = kernel.run_whole(ProductOperands(**drawn))
    for threads in (1, 2, 5):
        found = run(kernel, ProductOperands(**batch), threads, rule.k)
        np.testing.assert_array_equal(np.concatenate(list(found), axis=1), whole[0])


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_a_long_k_is_a_chain_of_instructions(asked, arch):
    rule = rule_of(asked, arch)
    drawn = draw(rule, 5, 9, 3)
    c = drawn["c"]
    for index in range(3):
        stored = slice(index * rule.stored, (index + 1) * rule.stored)
        depth = slice(index * rule.k, (index + 1) * rule.k)
        scales = slice(index * rule.scales, (index + 1) * rule.scales)
        part_of = {"a": drawn["a"][:, :, stored], "b": drawn["b"][:, depth], "c": c}
        if rule.is_sparse:
            part_of["columns"] = drawn["columns"][:, :, stored] - index * rule.k
        if rule.scales:
            part_of["scale_a"], part_of["scale_b"] = drawn["scale_a"][:, :, scales], drawn["scale_b"][:, scales]
        c = matmul(rule, **part_of)
    np.testing.assert_array_equal(matmul(rule, **drawn), c)


def test_inputs_are_left_as_they_were():
    for asked, arch in FORMS:
        rule = rule_of(asked, arch)
        drawn = draw(rule, 4, 8, 1)
        kept = {operand: codes.copy() for operand, codes in drawn.items()}
        for codes in drawn.values():
            codes.flags.writeable = False
        matmul(rule, **drawn)
        for operand, codes in drawn.items():
            np.testing.assert_array_equal(codes, kept[operand])


@pytest.mark.parametrize(("asked", "arch"), FORMS)
@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0)])
def test_nothing_gives_nothing(asked, arch, rows, columns):
    rule = rule_of(asked, arch)
    found = matmul(rule, **draw(rule, rows, columns, 1))
    assert (found.shape, found.dtype) == ((1, rows, columns), code_type(rule.d))


def test_strided_and_foreign_order_operands_are_taken():
    rule = rule_of(*FORMS[0])
    drawn = draw(rule, 8, 16, 2)
    whole = matmul(rule, **drawn)
    turned = {operand: np.asfortranarray(codes) for operand, codes in drawn.items()}
    np.testing.assert_array_equal(matmul(rule, **turned), whole)


F16 = rule_of(*FORMS[0])


@pytest.mark.parametrize("extents", [(7, 3), (2000, 3), (3, 5000), (700, 1300)])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("grain", [Grain(), Grain(4, 512, 256, 4), Grain(1, 512)])
def test_blocks_cover_every_output_once(extents, threads, grain):
    covered = np.zeros((3, *extents), int)
    for block in blocks_of_tile(1, covered.shape, grain, threads):
        tiles, rows, columns = (slice(*block[axis : axis + 2]) for axis in (0, 2, 4))
        covered[tiles, rows, columns] += 1
        assert block.first_row % grain.rows == 0
        assert block.first_column % grain.columns == 0
    assert (covered[1] == 1).all()
    assert not covered[[0, 2]].any()
    for block in blocks_of_tiles(covered.shape, 4 * threads):
        covered[block.first_tile : block.last_tile] += 1
    assert (covered == np.array([1, 2, 1])[:, None, None]).all()


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_a_long_k_is_run_in_parts_of_bounded_size(asked, arch, monkeypatch):
    """Operands are widened to float64 for the fused rules: a part of K at a time, with D as the next C."""
    rule = rule_of(asked, arch)
    drawn = draw(rule, 5, 9, 6)
    kernel = compiled_by(Compiled(), rule)
    whole = run(kernel, ProductOperands(**drawn), 1, rule.k)
    monkeypatch.setattr(kernel, "max_depth", lambda _height, _width: 4 * rule.k)
    np.testing.assert_array_equal(run(kernel, ProductOperands(**drawn), 1, rule.k), whole)


@pytest.mark.parametrize("extents", [(1, 1, 400_000), (4096, 4096, 4096), (100_000, 16, 512), (16, 8, 16)])
def test_prepared_operands_take_bounded_memory(extents):
    """1 x 1 x 400,000 took 2 GB once."""
    height, width, depth = extents
    rule = rule_of(*FORMS[0])
    most = Compiled().compile(rule).max_depth(height, width)
    assert most % rule.k == 0
    padded = height + -(-width // compiled.BLOCK) * compiled.BLOCK
    each = compiled.PREPARED_BYTES * padded
    assert each * min(most, depth) <= max(compiled.MAX_PREPARED_BYTES, each * compiled.MIN_DEPTH)


def test_an_interrupt_ends_the_work_of_every_thread():
    """Ctrl-C arrives in the calling thread; what waits is dropped."""
    ran = []

    def task():
        ran.append(threading.current_thread())
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        run_all([task] * 1000, 3)
    assert len(ran) < 1000


def test_an_error_in_a_thread_is_raised():
    def fail():
        msg = "no memory"
        raise MemoryError(msg)

    with pytest.raises(MemoryError, match="no memory"):
        run_all([fail] * 8, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"sum": replace(F16.sum, fraction_bits=26)},
        {"steps": (tuple(range(33)),)},
        {"steps": ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9, 10, 11))},
    ],
)
def test_a_rule_that_the_compiled_loops_are_not_proved_for_is_left_to_the_others(change):
    changed = replace(F16, **change)
    assert Compiled.holds(F16)
    assert not Compiled.holds(changed)
    with pytest.raises(ValueError, match="the fused kernels keep at most 25 fraction bits"):
        Compiled().compile(changed)


def test_the_compiled_loops_are_proved_for_every_rule():
    """wgmma's sparse fp8, whose 32 stored products use 64 rows of B, once ran in the portable backend."""
    pairs = ((form, arch) for form in forms() if form.is_product for arch in able_architectures(form))
    rules = set()
    for form, arch in pairs:
        with suppress(NotModelled):
            rules.add(plan(form, arch).rule)
    assert len(rules) > 100
    assert [rule for rule in rules if not Compiled.holds(rule) and not isinstance(rule, IntegerSum)] == []
