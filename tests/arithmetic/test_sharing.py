"""Results do not depend on threads, blocks, tiles, neighbours, or how K is cut; wrong operands are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from arithmetic_cases import code_type, instruction, operand_shapes, stored_columns

from warpfrag.arithmetic import engines, matmul, plan
from warpfrag.arithmetic.fused import fused_numbers
from warpfrag.arithmetic.kernels import compiled, fused, scalar
from warpfrag.errors import InvalidOperand, WarpfragError
from warpfrag.formats import FORMATS

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


def draw(steps, rows, columns, instructions):
    """Any codes, few of them special."""
    random = np.random.default_rng(11)
    drawn = {}
    for operand, (name, shape) in operand_shapes(steps, rows, columns, instructions).items():
        row = FORMATS[name]
        codes = random.integers(0, row.codes, shape, dtype=np.uint64)
        if row.is_float and row.fraction:  # clear one exponent bit of most: those are finite
            keep = random.random(shape) < 0.002
            cleared = codes & ~np.uint64(1 << (row.unused + row.fraction + row.exponent - 2))
            codes = np.where(keep, codes, cleared)
        elif row.is_float:
            codes = random.integers(120, 135, shape, dtype=np.uint64)
        drawn[operand] = codes.astype(code_type(name))
    if steps.is_sparse:
        drawn["columns"] = stored_columns(steps, random.integers(0, 12, drawn["a"].shape))
    return drawn


def part(drawn, *, rows=slice(None), columns=slice(None)):
    """Some rows of A and columns of B."""
    taken = {}
    for operand, codes in drawn.items():
        chosen = codes[:, rows] if operand in ROWS else codes
        taken[operand] = chosen[:, :, columns] if operand in BY_COLUMN else chosen
    return taken


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_threads_and_blocks_do_not_matter(asked, arch):
    """Large enough that the product is dealt out by rows, and wider than one block of columns."""
    steps = plan(asked, arch)
    drawn = draw(steps, 70, 530, -(-128 // steps.k))
    whole = matmul(steps, **drawn, threads=1)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(matmul(steps, **drawn, threads=threads), whole)
    np.testing.assert_array_equal(matmul(steps, **drawn), whole)


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_an_output_depends_on_its_row_and_column_only(asked, arch):
    steps = plan(asked, arch)
    drawn = draw(steps, 19, 261, 2)
    whole = matmul(steps, **drawn)
    for rows, columns in (
        (slice(3, 4), slice(258, 261)),
        (slice(0, 19), slice(7, 8)),
        (slice(5, 9), slice(250, 260)),
    ):
        found = matmul(steps, **part(drawn, rows=rows, columns=columns))
        np.testing.assert_array_equal(found, whole[:, rows, columns])


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_a_batch_is_its_tiles(asked, arch):
    steps = plan(asked, arch)
    drawn = draw(steps, 16, 8 * 200, 1)
    tiles = [part(drawn, columns=slice(8 * tile, 8 * tile + 8)) for tile in range(200)]
    batch = {operand: np.concatenate([tile[operand] for tile in tiles]) for operand in drawn}
    whole = matmul(steps, **drawn)
    for threads in (1, 2, 5):
        found = matmul(steps, **batch, threads=threads)
        np.testing.assert_array_equal(np.concatenate(list(found), axis=1), whole[0])


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_a_long_k_is_a_chain_of_instructions(asked, arch):
    steps = plan(asked, arch)
    drawn = draw(steps, 5, 9, 3)
    c = drawn["c"]
    for index in range(3):
        stored = slice(index * steps.stored, (index + 1) * steps.stored)
        depth = slice(index * steps.k, (index + 1) * steps.k)
        scales = slice(index * steps.scales, (index + 1) * steps.scales)
        cut = {"a": drawn["a"][:, :, stored], "b": drawn["b"][:, depth], "c": c}
        if steps.is_sparse:
            cut["columns"] = drawn["columns"][:, :, stored] - index * steps.k
        if steps.scales:
            cut["scale_a"], cut["scale_b"] = drawn["scale_a"][:, :, scales], drawn["scale_b"][:, scales]
        c = matmul(steps, **cut)
    np.testing.assert_array_equal(matmul(steps, **drawn), c)


def test_inputs_are_left_as_they_were():
    for asked, arch in FORMS:
        steps = plan(asked, arch)
        drawn = draw(steps, 4, 8, 1)
        kept = {operand: codes.copy() for operand, codes in drawn.items()}
        for codes in drawn.values():
            codes.flags.writeable = False
        matmul(steps, **drawn)
        for operand, codes in drawn.items():
            np.testing.assert_array_equal(codes, kept[operand])


@pytest.mark.parametrize(("asked", "arch"), FORMS)
@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0)])
def test_nothing_gives_nothing(asked, arch, rows, columns):
    steps = plan(asked, arch)
    found = matmul(steps, **draw(steps, rows, columns, 1))
    assert (found.shape, found.dtype) == ((1, rows, columns), code_type(steps.d))


def test_strided_and_foreign_order_operands_are_taken():
    steps = plan(*FORMS[0])
    drawn = draw(steps, 8, 16, 2)
    whole = matmul(steps, **drawn)
    turned = {operand: np.asfortranarray(codes) for operand, codes in drawn.items()}
    np.testing.assert_array_equal(matmul(steps, **turned), whole)


F16, SPARSE, SCALED = plan(*FORMS[0]), plan(*FORMS[5]), plan(*FORMS[-1])
WIDENED = plan(instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f16"), "sm_90")


@pytest.mark.parametrize(
    ("steps", "change", "complaint"),
    [
        (F16, {"a": lambda a: a.astype(np.int32)}, "a must be unsigned codes"),
        (F16, {"b": lambda b: b[0]}, "b must be unsigned codes"),
        (F16, {"c": lambda c: c[:, :-1]}, "do not fit"),
        (F16, {"a": lambda a: a[:, :, :-1], "b": lambda b: b[:, :-1]}, "multiple of the instruction's 16, got 15"),
        (F16, {"columns": lambda _: np.zeros((1, 4, 16), np.int32)}, "a dense plan takes no columns"),
        (F16, {"scale_a": lambda _: np.zeros((1, 4, 1), np.uint8)}, "scale_a: expected none"),
        (SPARSE, {"columns": lambda _: None}, "a sparse plan takes columns"),
        (SPARSE, {"columns": lambda columns: columns[:, :, :-1]}, "a sparse plan takes columns"),
        (SPARSE, {"columns": lambda columns: columns + 10**6}, "is from one of the columns 0 to 7; got 1000"),
        (SPARSE, {"columns": lambda columns: columns[:, :, ::-1]}, "stored element 0 of row 0, tile 0, is from"),
        (SCALED, {"scale_b": lambda _: None}, "scale_b: expected shape"),
        (SCALED, {"scale_a": lambda scale: scale[:, :-1]}, "scale_a: expected shape"),
        (
            WIDENED,
            {"a": lambda a: np.tile(a, 2), "b": lambda b: np.tile(b, (2, 1))},
            "needs D as the next C, but C is f16 and D is f32",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(steps, change, complaint):
    drawn = draw(steps, 4, 8, 1)
    for operand, alter in change.items():
        drawn[operand] = alter(drawn.get(operand))
    with pytest.raises(InvalidOperand, match=complaint):
        matmul(steps, **drawn)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_rounding_mode_is_to_nearest_again(threads):
    """The kernels of the fused rule round towards zero; a tenth, to nearest, is rounded away from it."""
    steps = plan(*FORMS[0])
    matmul(steps, **draw(steps, 70, 530, 8), threads=threads)
    tenths = np.array([1.0, -1.0]) / np.array([10.0, 10.0])
    assert [tenth.hex() for tenth in tenths.tolist()] == ["0x1.999999999999ap-4", "-0x1.999999999999ap-4"]


def test_a_process_that_flushes_subnormals_is_refused(monkeypatch):
    assert not engines.flushes_subnormals()
    monkeypatch.setattr(engines, "flushes_subnormals", lambda: True)
    with pytest.raises(WarpfragError, match="makes zeros of subnormal numbers"):
        engines.engine_for(F16)


@pytest.mark.parametrize(
    "change", [{"fraction_bits": 26}, {"products": 6, "places": 6}, {"products": 64, "places": 64}]
)
def test_a_unit_that_the_kernels_cannot_hold_is_refused(change):
    places = tuple(range(change.pop("places", 16)))
    step = F16.fused_steps[0]
    changed = replace(step, places=places, unit=replace(step.unit, **change))
    with pytest.raises(ValueError, match="the kernels of the fused rule keep at most 25 fraction bits"):
        fused_numbers(replace(F16, steps=(changed,)))


@pytest.mark.parametrize("kernel", [fused.fused_rows, fused.redo_odd_outputs, scalar.fused_step])
def test_compiled_code_is_tied_to_the_text_of_every_kernel(kernel):
    """numba looks at one file only; a kernel calls others."""
    assert compiled.KERNELS_DIGEST in kernel._cache._cache_file._source_stamp
