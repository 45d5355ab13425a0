"""Layouts of tensor memory and of its loads, against those that Triton's Gluon computes for sm_100."""

import os

import pytest

import warpfrag as wf

if os.environ.get("WARPFRAG_REQUIRE_TRITON") != "1":
    pytest.importorskip("triton", reason="needs the extra triton")
from triton._C.libtriton import gluon_ir, ir, nvidia
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, TensorMemoryScalesLayout

KINDS = {"f16": ("f16", 16), "tf32": ("tf32", 32), "f8f6f4": ("e4m3", 8), "i8": ("s8", 8)}
WIDTHS = (16, 32, 64, 128, 256)


@pytest.fixture(scope="module")
def builder():
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    made = gluon_ir.GluonOpBuilder(context)
    yield made
    del made, context  # which must live as long as its builder


def linear(builder, layout, shape):
    """Return the text that Gluon prints for a layout; shapes of unpacked types have space in their columns."""
    return builder.to_linear_layout(layout._to_ir(builder), [*shape])


def product(kind, m, n, blocks=1, d=None):
    a, _ = KINDS[kind]
    name = f"tcgen05.mma.cta_group::{blocks}.kind::{kind}"
    return wf.get(name, m=m, n=n, a=a, b=a, d=d or ("s32" if a == "s8" else "f32"))


@pytest.mark.parametrize("m", [64, 128])
def test_accumulators(builder, m):
    for n in WIDTHS:
        text = str(linear(builder, TensorMemoryLayout((m, n), 1), (m, n)))
        for kind in KINDS:
            t = product(kind, m, n)
            assert t.d.layout.to("triton") == text
            assert wf.Layout.read("triton", text) == t.d.layout
            assert (t, "d") in wf.identify(wf.Layout.read("triton", text))


def test_accumulators_of_16_bits_leave_the_upper_half(builder):
    for n in WIDTHS:
        gluon = linear(builder, TensorMemoryLayout((128, n), 2), (128, n))
        t = product("f16", 128, n, d="f16")
        assert gluon.cols[0] == [0, 0]
        assert [[*step.moves] for step in t.d.layout.steps("column")] == gluon.cols[1:]


@pytest.mark.parametrize("m", [64, 128])
def test_multiplicands(builder, m):
    for kind, (_, bits) in KINDS.items():
        t = product(kind, m, 64)
        gluon = linear(builder, TensorMemoryLayout((m, t.shape.k), 1), (m, t.shape.k))
        slots = 32 // bits
        assert wf.Layout.read("triton", str(gluon), slots=slots) == t.a.layout
        assert t.a.layout.to("triton") == str(gluon) + (f" // slots = {slots}" if slots > 1 else "")


@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_of_blocks(builder, m):
    """Gluon describes one block of the pair; the other has the same lanes and columns."""
    for n in WIDTHS[1:]:
        gluon = linear(builder, TensorMemoryLayout((m // 2, n), 1, [[1, 0]], two_ctas=True), (m, n))
        layout = product("f16", m, n, blocks=2).d.layout
        places = {name: [[*step.moves] for step in layout.steps(name)] for name in layout.ins}
        assert (places["tlane"], places["column"]) == (gluon.rows, gluon.cols)
        assert places["block"] == [[m // 2, 0]]


@pytest.mark.parametrize("n", [128, 256])
def test_scale_factors(builder, n):
    t = wf.get("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", m=128, n=n, scale_type="ue4m3")
    gluon = str(linear(builder, TensorMemoryScalesLayout(), (n, 4)))
    if n == 128:
        assert wf.Layout.read("triton", gluon, slots=4, dims=("row", "byte")) == t.scale_a.layout
    turned = wf.Layout.read("triton", gluon, slots=4, dims=("col", "byte"))
    for place in t.scale_b.layout.places():
        byte, col = t.scale_b.layout.at(**place._asdict())
        assert turned.at(**place._asdict()) == (col, byte)


@pytest.mark.parametrize("shape", ["32x32b", "16x64b", "16x128b", "16x256b"])
def test_registers_of_loads(builder, shape):
    """Of 128 rows a load of 16 lanes comes twice, for the upper lanes of each 32 too: so those are of 64 rows."""
    m = 128 if shape == "32x32b" else 64
    columns = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8}[shape]
    count = 0
    for n in (16, 32, 64, 128):
        gluon = gluon_ir.compute_tmem_reg_layout(gl.float32, [m, n], [m, n], TensorMemoryLayout((m, n), 1), 4, shape)
        if gluon is None:
            continue
        t = product("f16", m, n)
        loaded = t.d.through(f"tcgen05.ld.sync.aligned.{shape}.x{n // columns}.b32")
        ours = {name: [[*step.moves] for step in loaded.steps(name)] for name in loaded.ins}
        assert (ours["reg"], ours["lane"], ours["warp"]) == (gluon.reg_bases, gluon.lane_bases, gluon.warp_bases)
        assert wf.identify(wf.Layout.read("triton", str(gluon))).loads
        count += 1
    assert count >= 3
