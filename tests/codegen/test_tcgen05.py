"""tcgen05 code: the assembler accepts it, and its constants are those of the descriptors."""

import pytest

import warpfrag as wf
from oracle.toolkit import assemble, find_newest_ptxas

PRODUCTS = [
    ("tcgen05.mma.cta_group::1.kind::f16", {"m": 128, "n": 256, "a": "bf16", "d": "f32"}),
    ("tcgen05.mma.cta_group::1.kind::f8f6f4", {"m": 64, "n": 24, "a": "e2m1", "b": "e4m3", "d": "f16"}),
    ("tcgen05.mma.cta_group::1.kind::i8", {"m": 128, "n": 64, "a": "s8"}),
    ("tcgen05.mma.cta_group::1.kind::tf32", {"m": 128, "n": 8}),
    ("tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale", {"m": 256, "n": 32, "a": "e4m3", "b": "e2m1"}),
    ("tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16", {"m": 128, "n": 32, "scale_type": "ue4m3"}),
    ("tcgen05.mma.ws.sp.cta_group::1.kind::f16", {"m": 32, "n": 64, "a": "f16", "d": "f32"}),
]


def test_kernels_in_ptx_assemble(tmp_path):
    ptxas, _ = find_newest_ptxas("sm_100a")
    for at, (name, shape) in enumerate(PRODUCTS):
        t = wf.get(name, **shape)
        text = wf.emit(t, lang="ptx")
        module = tmp_path / f"kernel{at}.ptx"
        module.write_text(text)
        assert assemble(ptxas, "sm_100a", module) == []
        assert f"0x{t.descriptor().word:08x};" in text
        assert t.blocks == 2 or f"0x{t.b.descriptors()[0].word:016x};" in text


def test_what_is_not_written_is_refused_with_the_reason():
    for name in ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05.shift.cta_group::1.down"):
        with pytest.raises(wf.errors.InvalidOperand, match="with shape and types"):
            wf.emit(wf.get(name), lang="ptx")
    with pytest.raises(
        wf.errors.InvalidOperand, match="tcgen05 can be emitted in PTX only, got 'cuda'; pass lang='ptx'"
    ):
        wf.emit(wf.get(PRODUCTS[0][0], **PRODUCTS[0][1]))
    with pytest.raises(wf.errors.InvalidOperand, match="in a separate file"):
        wf.emit([wf.get(PRODUCTS[0][0], **PRODUCTS[0][1]), "mma.m16n8k16.f32.f16.f16.f32"])
