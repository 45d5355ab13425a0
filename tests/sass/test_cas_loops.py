"""Compare-and-swap loops are proven if the load and the swap have equal addresses, however the code copied them."""

import numpy as np
import pytest

import warpfrag as wf
from sass.assembled import HEAD, TextModule, assemble

pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("every_spelling_compared")]
STUB = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 factor) {{ .shared .align 16 .b8 sm[1024];
    .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [out]; ld.volatile.shared.u32 %r, [sm]; st.global.u32 [%d], %r; }}"""
START = """
    S2R R0, SR_TID.X
    IMAD R10, R0, c[0x0][0x218], RZ
    MOV R11, RZ
    UMOV UR8, 0x400
    MOV R8, UR8
    LOP3.LUT R13, R0, 0x1, RZ, 0xc0, !PT
    ISETP.NE.U32.AND P0, PT, R0, RZ, PT
    CS2R R4, SRZ
    @!P0 STS.64 [UR8], R4
    @!P0 STS.64 [UR8+0x8], R4
    BAR.SYNC.DEFER_BLOCKING 0x0"""
ADD = """
    IADD3 R6, P0, R4, R10, RZ
    IADD3.X R7, R5, R11, RZ, P0, !PT"""
END = """
    ISETP.EQ.U32.AND P0, PT, R6, 0x1, PT
    ISETP.EQ.U32.AND.EX P0, PT, R7, RZ, PT, P0
    @!P0 BRA {again:#x}
    BAR.SYNC.DEFER_BLOCKING 0x0
    LDS.64 R4, [UR8]
    MOV R2, c[0x0][0x210]
    MOV R3, c[0x0][0x214]
    IMAD.WIDE.U32 R2, R0, 0x8, R2
    ULDC.64 UR4, c[0x0][0x208]
    STG.E.64 desc[UR4][R2.64], R4
    EXIT"""


def lines(text):
    return [line.strip() for line in text.strip().split("\n") if line.strip()]


def run(folder, before, loop, factor):
    """Run a loop in 64 threads; return the run and the sum that every thread stores."""
    start, body = lines(START + "\n" + before), lines(loop)
    text = "\n".join([*start, *body, *lines(END.format(again=16 * len(start)))])
    out = np.zeros(64, np.uint64)
    found = TextModule(assemble(STUB, folder).cubin, text)["k"].launch(1, 64, [out, np.uint32(factor)])
    return found, out


EQUAL = {
    "one register": ("", "[R8]", "[R8]", ""),
    "a uniform load": ("MOV R9, UR8", "[UR8]", "[R9]", ""),
    "a uniform swap": ("R2UR UR9, R8", "[R8]", "[UR9]", ""),
    "a sum with zero": ("IADD3 R9, RZ, UR8, RZ", "[UR8]", "[R9]", ""),
    "a product with one": ("IMAD.U32 R9, RZ, RZ, UR8", "[R8]", "[R9]", ""),
    "another base and offset": ("VIADD R9, R8, 0xfffffff0", "[UR8]", "[R9+0x10]", ""),
    "a copy in the loop": ("", "[UR8]", "[R9]", "IMAD.IADD R9, R8, 0x1, RZ"),
    "a copy of another copy": ("MOV R14, UR8\nLOP3.LUT R9, R14, R14, RZ, 0xfc, !PT", "[R8]", "[R9]", ""),
}
DIFFERENT = {
    "another offset": ("MOV R9, UR8", "[UR8]", "[R9+0x8]", ""),
    "a copy that is overwritten": ("MOV R9, UR8\nVIADD R9, R9, 0x8", "[UR8]", "[R9]", ""),
    "a source that is overwritten": ("MOV R9, R8\nVIADD R8, R8, 0x8", "[R8]", "[R9]", ""),
    "a copy in some lanes": ("IMAD R9, R13, 0x8, R8", "[UR8]", "[R9]", ""),
    "the value of the first lane": ("IMAD R9, R13, 0x8, R8\nR2UR UR9, R9", "[R9]", "[UR9]", ""),
    "a copy that the loop overwrites": ("MOV R9, UR8", "[UR8]", "[R9]", "LOP3.LUT R9, R9, 0x8, RZ, 0x3c, !PT"),
    "an address from the loaded value": ("", "[UR8]", "[R9]", "IMAD.IADD R9, R8, 0x1, R4"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_a_loop_with_equal_addresses_is_exact(tmp_path, name):
    before, load, swap, inside = EQUAL[name]
    loop = f"LDS.64 R4, {load}\n{inside}\n{ADD}\nATOMS.CAST.SPIN.64 R6, {swap}, R4, R6"
    found, out = run(tmp_path, before, loop, 1)
    assert found.inexact == ()
    assert out.tolist() == [sum(range(64))] * 64


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_loop_with_different_addresses_is_not_exact(tmp_path, name):
    """The threads add 0, so that every loop ends."""
    before, load, swap, inside = DIFFERENT[name]
    loop = f"LDS.64 R4, {load}\n{inside}\n{ADD}\nATOMS.CAST.SPIN.64 R6, {swap}, R4, R6"
    assert not run(tmp_path, before, loop, 0)[0].exact


LEAVE = """
    LDS.64 R4, [UR8]
    ISETP.LE.U32.AND P0, PT, R10, R4, PT
    ISETP.LE.U32.AND.EX P0, PT, R11, R5, PT, P0
    @P0 BRA {end:#x}
    {inside}
    ATOMS.CAST.SPIN.64 R6, [R8], R4, R14"""
STORED = {
    "the compared words": ("MOV R14, R10\nMOV R15, R11", "NOP", True),
    "copies in the loop": ("", "IMAD.IADD R14, R10, 0x1, RZ\nMOV R15, RZ", True),
    "another word in odd lanes": ("IMAD.IADD R14, R10, 0x1, R13\nMOV R15, R11", "NOP", False),
    "a copy that is overwritten": ("MOV R14, R10\nVIADD R14, R14, 0x1\nMOV R15, R11", "NOP", False),
}


@pytest.mark.parametrize("name", STORED)
def test_a_maximum_stores_the_words_that_it_compares(tmp_path, name):
    before, inside, is_exact = STORED[name]
    start = len(lines(START + "\n" + before))
    end = start + len(lines(LEAVE.format(end=0, inside=inside))) + 3
    found, out = run(tmp_path, before, LEAVE.format(end=16 * end, inside=inside), 3)
    assert found.exact == is_exact
    assert not is_exact or out.tolist() == [3 * 63] * 64


def test_a_loop_that_stores_only_ones_is_an_or(tmp_path):
    """Every thread stores its register, which is known when the loop runs."""
    loop = "LDS.64 R4, [UR8]\nATOMS.CAST.SPIN.64 R6, [R8], R4, R14"
    for word, is_exact in (("0xffffffff", True), ("0xfffffffe", False)):
        found, out = run(tmp_path, f"MOV R14, {word}\nMOV R15, 0xffffffff", loop, 1)
        assert found.exact == is_exact
        assert out[0] == 0xFFFFFFFF00000000 + int(word, 16)


CONSTANTS = f"""{HEAD}.visible .entry k(.param .u64 out)
{{
    .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p; .shared .align 16 .b64 common;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 96, %r0;
    mul.wide.u32 %d1, %r1, 8; add.u64 %d0, %d0, %d1; setp.eq.u32 %p, %r0, 0; @%p st.shared.b64 [common], 77; bar.sync 0;
    UPDATE
    bar.sync 0; ld.shared.b64 %d2, [common]; st.global.b64 [%d0], %d2; ret;
}}"""
UPDATES = {
    "red.shared.min.u64 [common], 0;": 0,
    "red.shared.max.s64 [common], 0;": 77,
    "red.shared.and.b64 [common], 0;": 0,
    "red.shared.or.b64 [common], -1;": 2**64 - 1,
    "red.shared.and.b64 [common], 0xffffffff00000000;": 0,
    # the loop changes a word that an atomic changed before: it is no lock
    "red.shared.max.u64 [common], 100; bar.sync 0; red.shared.add.u32 [common], 1; bar.sync 0;"
    " red.shared.max.u64 [common], 300;": 300,
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("update", UPDATES)
def test_loops_of_ptxas_with_constants_are_exact(update):
    out = np.zeros(192, np.uint64)
    module = wf.ptx.load(CONSTANTS.replace("UPDATE", update)).assemble(arch="sm_90")
    found = module["k"].launch(2, 96, [out])
    assert found.inexact == ()
    assert out.tolist() == [UPDATES[update]] * 192
