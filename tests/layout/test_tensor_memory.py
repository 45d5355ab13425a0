"""Tensor-memory layouts in CuTe and Triton notation: read back, rejected if impossible, and identified."""

from pathlib import Path

import pytest

import warpfrag as wf
from warpfrag.errors import InvalidOperand

MMA = "tcgen05.mma.cta_group::1.kind::"
PRODUCTS = [
    ("tcgen05.mma.cta_group::1.kind::f16", {"m": 128, "n": 64, "a": "bf16", "d": "f32"}),
    ("tcgen05.mma.cta_group::1.kind::f16", {"m": 64, "n": 24, "a": "f16", "d": "f16"}),
    ("tcgen05.mma.cta_group::1.kind::tf32", {"m": 64, "n": 8}),
    ("tcgen05.mma.ws.cta_group::1.kind::f8f6f4", {"m": 64, "n": 64, "a": "e4m3", "b": "e5m2", "d": "f32"}),
    ("tcgen05.mma.ws.cta_group::1.kind::i8", {"m": 32, "n": 128, "a": "s8", "b": "u8"}),
    ("tcgen05.mma.sp.cta_group::1.kind::f16", {"m": 128, "n": 96, "a": "f16", "d": "f32"}),
    ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", {"m": 128, "n": 256, "scale_type": "ue4m3"}),
]


@pytest.mark.parametrize(("name", "shape"), PRODUCTS)
def test_texts_are_read_back(name, shape):
    t = wf.get(name, **shape)
    read = 0
    for role, operand in t.operands.items():
        layout = operand.layout if operand.storage != "shared" else None
        if layout is None or len(layout.dims) > 2:
            continue
        assert wf.Layout.read("json", layout.to("json")) == layout
        assert wf.Layout.read("cute", layout.to("cute"), dims=layout.dims) == layout
        read += 1
        if t.shape.n & (t.shape.n - 1) == 0 or role == "a":
            assert wf.Layout.read("triton", layout.to("triton")) == layout
    assert read >= 3


def test_every_fragment_that_cute_prints_is_read():
    lines = (Path(__file__).parent.parent / "data" / "cute_tcgen05.csv").read_text().splitlines()[1:]
    types = {"f16": "f16", "tf32": "tf32", "f8f6f4": "e4m3", "i8": "s8"}
    count = 0
    for line in lines:
        role, kind, group, m, n, text = line.split(";", 5)
        if role not in "ad" or group != "1" or kind not in types or kind == "i8":
            continue
        t = wf.get(f"{MMA}{kind}", m=int(m), n=int(n), a=types[kind], b=types[kind], d="f32")
        operand = t.operands[role]
        sizes, strides = text.split(",1,1):")
        fragment = f"{sizes[1:]}:{strides.removesuffix(',0,0)')[1:]}"
        written = f"tmem_[{32 // operand.slots}b](0x0000.0000) o {fragment}"
        assert wf.Layout.read("cute", written) == operand.layout
        assert operand.layout.to("cute").split(" o ")[1].replace("_", "") == fragment
        count += 1
    assert count > 60


def test_what_has_no_text_is_refused_with_the_reason():
    pair = wf.get("tcgen05.mma.cta_group::2.kind::f16", m=256, n=64, a="f16", d="f32").d.layout
    odd = wf.get(f"{MMA}f16", m=64, n=24, a="f16", d="f32").d.layout
    for notation in ("cute", "triton"):
        with pytest.raises(InvalidOperand, match=f"{notation} describes the tensor memory of one block, without block"):
            pair.to(notation)
    with pytest.raises(InvalidOperand, match="not a power of two"):
        odd.to("triton")
    for text, reason in {
        "tmem_[7b](0x0) o (_128,_64):(_65536,_1)": "4, 8, 16 or 32 bits",
        "tmem_[32b](0x0) o (_128,_64):(_65537,_1)": "expected a lane stride",
        "tmem_[32b](0x0) o (_128,_64):(_65536,_2)": "have no gap",
        "tmem_[32b](0x0) o _128:_65536": "two parts, (rows, columns)",
    }.items():
        with pytest.raises(InvalidOperand) as refused:
            wf.Layout.read("cute", text)
        assert reason in str(refused.value)
    rows = "rows=[[1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0], [64, 0]]"
    for text, slots in {f"{rows}, cols=[[0, 1]], shape=[128, 3]": 1, f"{rows}, cols=[], shape=[128, 1]": 2}.items():
        with pytest.raises(InvalidOperand, match="triton: expected"):
            wf.Layout.read("triton", f"_TensorMemoryLinearLayout({text})", slots=slots)


@pytest.mark.parametrize(("name", "shape"), PRODUCTS)
def test_operands_in_tensor_memory_are_identified(name, shape):
    t = wf.get(name, **shape)
    for role, operand in t.operands.items():
        if operand.storage == "shared":
            continue
        found = wf.identify(operand)
        assert (t, role) in found
        for match in found[:: max(1, len(found) // 5)]:
            assert match.instruction.operands[match.operand].layout == operand.layout


def test_pairs_loads_and_near_layouts_are_identified():
    pair = wf.get("tcgen05.mma.cta_group::2.kind::f16", m=128, n=64, a="f16", d="f32")
    assert {match.instruction.blocks for match in wf.identify(pair.d)} == {2}
    ld, st = (wf.get(f"tcgen05.{op}.sync.aligned.16x128b.x2.b32") for op in ("ld", "st"))
    assert {*wf.identify(ld.d)} == {(ld, "d"), (st, "a")}
    plain = wf.Layout.read("cute", "tmem_[32b](0x0) o (_64,_64):(_65536,_1)")
    assert wf.identify(plain) == []
    assert wf.identify(plain).near[0].differences == ("tlanes in a different order",)


def test_a_load_is_found_from_the_registers_it_leaves():
    t = wf.get(f"{MMA}f16", m=64, n=32, a="f16", d="f32")
    for shape, repeat in (("16x64b", 16), ("16x128b", 8), ("16x256b", 4)):
        ld = wf.get(f"tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32")
        pasted = wf.Layout.read("triton", t.d.through(ld).to("triton"))
        (found,) = wf.identify(pasted).loads
        assert (found.load, found.instruction.d.layout) == (ld, t.d.layout)
    assert wf.identify(wf.get("mma.m16n8k16.f32.f16.f16.f32").d).loads == []
