"""The portable backend against the reference: fused steps in floats and in integers, and integer sums by BLAS."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.formats.random_codes import random_codes
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import float_steps, portable
from warpfrag.tensorcore.backends.portable import PortableKernel, _fused_by_integers

FUSED = {
    "mma.m16n8k16.f32.f16.f16.f32": "sm_90",
    "mma.m16n8k16.f16.f16.f16.f16": "sm_90",
    "mma.m16n8k8.f32.tf32.tf32.f32": "sm_80",
    "mma.m16n8k16.f32.bf16.bf16.f32": "sm_80",
    "mma.m16n8k32.f32.e4m3.e5m2.f32": "sm_89",
    "mma.m16n8k16.f32.e4m3.e4m3.f32": "sm_90",
    "mma.sp.m16n8k32.f32.f16.f16.f32": "sm_90",
    "wgmma.mma_async.m64n8k32.f16.e4m3.e4m3": "sm_90",
    "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.f32.ue8m0": "sm_120",
}
TILES, ROWS, COLUMNS = 2, 3, 5


def operands_of(rule, kind, instructions, random):
    """Return random operands of a class, with the K of several instructions."""

    def draw(name, shape):
        fmt = FORMATS[name]
        return random_codes(fmt, kind if fmt.fraction else "plain", shape, random).astype(code_dtype(fmt))

    chained = instructions if rule.c == rule.d else 1
    a = draw(rule.a, (TILES, ROWS, rule.stored * chained))
    columns = None
    if rule.is_sparse:
        places = np.arange(a.shape[2], dtype=np.int32)
        columns = np.broadcast_to(4 * (places // 2) + 3 * (places % 2), a.shape)
    scales = (
        (draw(rule.scale_format, (TILES, ROWS, rule.scales * chained)) % 20 + 118,
         draw(rule.scale_format, (TILES, rule.scales * chained, COLUMNS)) % 20 + 118)
        if rule.scales
        else (None, None)
    )  # fmt: skip
    b, c = draw(rule.b, (TILES, rule.k * chained, COLUMNS)), draw(rule.c, (TILES, ROWS, COLUMNS))
    return ProductOperands(a, b, c, columns, *scales)


@pytest.mark.parametrize("kind", ["narrow", "wide", "tiny", "finite", "special"])
@pytest.mark.parametrize("name", FUSED)
def test_steps_in_floats_are_those_of_the_reference(name, kind):
    rule = plan(wf.get(name).form, FUSED[name]).rule
    operands = operands_of(rule, kind, 2, np.random.default_rng(3))
    expected = reference.matmul(rule, operands)
    assert np.array_equal(PortableKernel(rule).run_whole(operands), expected)


def test_which_products_are_computed_in_floats():
    """Those without infinities and NaNs; a sum that overflows sends its block to the integers, too."""
    rule = plan(wf.get("mma.m16n8k16.f16.f16.f16.f16").form, "sm_90").rule
    same = float_steps.Conversions(lambda codes: codes, lambda _c, made: made)
    a, b, c = (np.full((1, *shape), 0x3C00, np.uint16) for shape in ((4, 32), (32, 6), (4, 6)))
    assert float_steps.run(rule, ProductOperands(a, b, c), a, b, same) is not None
    for array, code in ((a, 0x7C00), (b, 0x7E00), (c, 0xFC00), (c, 0x7BFF)):
        array[0, 0, 0] = code
        operands = ProductOperands(a, b, c)
        with np.errstate(over="ignore"):  # as `run_tiles` does
            finite = float_steps.run(rule, operands, a, b, same)
        assert finite is None
        assert np.array_equal(_fused_by_integers(rule, operands, a, b), reference.matmul(rule, operands))
        array[0, 0, 0] = 0x3C00


@pytest.mark.parametrize("floats", [np.float32, np.float64])
@pytest.mark.parametrize("satfinite", ["", ".satfinite"])
@pytest.mark.parametrize("kinds", ["s8.s8", "u8.u8", "u8.s8", "s4.u4"])
def test_integer_sums_by_blas_are_exact(kinds, satfinite, floats, monkeypatch):
    monkeypatch.setattr(portable, "exact_floats_of_blas", lambda: np.dtype(floats))
    shape = "m16n8k64" if "4" in kinds else "m16n8k32"
    rule = plan(wf.get(f"mma.{shape}.s32.{kinds}.s32{satfinite}").form, "sm_80").rule
    random, depth = np.random.default_rng(1), 4096
    a, b = (random_codes(FORMATS[name], "extreme", size, random).astype(np.uint8)
            for name, size in ((rule.a, (1, 2, depth)), (rule.b, (1, depth, 3))))  # fmt: skip
    a[0, 0], b[0, :, 0] = (FORMATS[name].codes // 2 if FORMATS[name].signed else FORMATS[name].codes - 1
                           for name in (rule.a, rule.b))  # fmt: skip
    for start in (5, (1 << 31) - 7, 1 << 31):  # small; about to leave the range at either end
        operands = ProductOperands(a, b, np.full((1, 2, 3), start, np.uint32))
        assert np.array_equal(PortableKernel(rule).run_whole(operands), reference.matmul(rule, operands))


def test_floats_of_blas_that_lose_bits_are_not_used(monkeypatch):
    assert portable.exact_floats_of_blas() == np.float32
    monkeypatch.setattr(np, "array_equal", lambda *_arrays: False)
    assert portable.exact_floats_of_blas.__wrapped__() == np.float64
