"""Single machine instructions in both engines."""

import numpy as np
import pytest

from sass.assembled import ENGINES, HEAD, INDEX, assemble, run_text
from seeded import seeded
from warpfrag.errors import PtxError
from warpfrag.machine.ir.actions import Refused
from warpfrag.sass.emitter import Emitter
from warpfrag.sass.instruction_parser import parse_instruction
from warpfrag.sass.opcodes import opcode_table

pytestmark = pytest.mark.one_engine  # each launch names its own


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_leave_a_region_without_break(tmp_path, engine):
    """Half of the lanes wait at BSYNC for lanes that wait at WARPSYNC; an H200 completes such code."""
    text = """
        S2R R0, SR_LANEID
        ISETP.GE.U32.AND P3, PT, R0, 0x10, PT
        BSSY B0, 0x50
        @!P3 BRA 0x60
        BSYNC B0
        NOP
        WARPSYNC.ALL
        VOTE.ANY R4, PT, PT"""
    assert (run_text(text, tmp_path, engine) == 0xFFFFFFFF).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("modifier", "taken"), [("DIV", (0, 1)), ("CONV", (1, 0))])
def test_a_branch_depends_on_the_lanes_that_are_here(tmp_path, engine, modifier, taken):
    """R4 is 1 if the branch is taken: with the whole warp here, and with half of it."""
    text = f"""
        S2R R0, SR_LANEID
        MOV R4, RZ
        UMOV UR4, 0xffffffff
        BRA.{modifier} UR4, 0x50
        BRA 0x60
        MOV R4, 0x1
        ISETP.GE.U32.AND P3, PT, R0, 0x10, PT
        MOV R5, RZ
        BSSY B0, 0xd0
        @P3 BRA 0xd0
        BRA.{modifier} UR4, 0xc0
        BRA 0xd0
        MOV R5, 0x2
        BSYNC B0
        IADD3 R4, R4, R5, RZ"""
    whole, half = taken
    expected = [whole + 2 * half] * 16 + [whole] * 16
    assert run_text(text, tmp_path, engine).tolist() == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("modifier", "first", "is_taken"), [("U", 0, True), ("U", 16, False), ("U.ANY", 16, True), ("U.ANY", 32, False)]
)
def test_all_lanes_take_a_uniform_branch_or_none_does(tmp_path, engine, modifier, first, is_taken):
    text = f"""
        S2R R0, SR_LANEID
        MOV R4, RZ
        ISETP.GE.U32.AND P3, PT, R0, {first:#x}, PT
        @P3 BRA.{modifier} 0x50
        MOV R4, 0x1
        NOP"""
    assert run_text(text, tmp_path, engine).tolist() == [1 - is_taken] * 32


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_meet_at_two_instructions_of_one_convergence_barrier(tmp_path, engine):
    text = """
        S2R R0, SR_LANEID
        ISETP.GE.U32.AND P3, PT, R0, 0x10, PT
        BSSY B0, 0x60
        @!P3 BRA 0x60
        BSYNC B0
        BRA 0x70
        BSYNC B0
        WARPSYNC.ALL
        VOTE.ANY R4, PT, PT"""
    assert (run_text(text, tmp_path, engine) == 0xFFFFFFFF).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_of_a_deeper_call_have_not_arrived_at_the_barrier_of_the_caller(tmp_path, engine):
    """Half of the lanes save the barrier, as a recursive function does, and reach the same BSYNC with another mask."""
    text = """
        S2R R0, SR_LANEID
        ISETP.GE.U32.AND P3, PT, R0, 0x10, PT
        BSSY B0, 0xc0
        @!P3 BRA 0x70
        BMOV.32.CLEAR R5, B0
        BSSY B0, 0x80
        NOP
        BSYNC B0
        @!P3 BRA 0xc0
        BMOV.32 B0, R5
        ISETP.NE.U32.AND P3, PT, RZ, RZ, PT
        BRA 0x70
        VOTE.ANY R4, PT, PT"""
    assert (run_text(text, tmp_path, engine) == 0xFFFFFFFF).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_part_of_a_warp_completes_a_barrier_if_the_others_wait_elsewhere(tmp_path, engine):
    """The barrier expects one warp: the lanes that reach it count as one, and the vote is theirs."""
    text = """
        S2R R0, SR_LANEID
        ISETP.GE.U32.AND P3, PT, R0, 0x10, PT
        IMAD.MOV.U32 R4, RZ, RZ, 0x5
        @!P3 BRA 0x70
        BAR.RED.POPC.DEFER_BLOCKING 0x1, 0x20, PT
        B2R.RESULT R4, P0
        NOP
        WARPSYNC.ALL"""
    assert run_text(text, tmp_path, engine).tolist() == [5] * 16 + [16] * 16


FIRST = "S2R R0, SR_LANEID\nIMAD.MOV.U32 R1, RZ, RZ, {}\nIMAD.MOV.U32 R2, RZ, RZ, {}\nIMAD.MOV.U32 R3, RZ, RZ, {}\n"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ((300, 7, 0x12345678), "I2IP.U8.S32.SAT R4, R1, R2, R3", 0x5678FF07),
        ((300, 7, 0x12345678), "I2IP.U8.S32.SAT R4, R1, R2, R3.H1", 0x1234FF07),
        ((300, 7, 0x12345678), "I2IP.U4.S32.SAT R4, R1, R2, R3.24", 0x345678F7),
        ((0x3C003C00, 0x44004200, 0), "HFMA2 R4, R1, R2.H0_NH1, R3", 0x4200C400),  # 1 * (3, -4)
        ((0x3C003C00, 0x44004200, 0), "HFMA2 R4, R1, -R2.H0_NH1, R3", 0xC2004400),
        ((0x40400000, 0x3F800000, 0x12345678), "F2IP.U8.F32.NTZ R4, R1, R2, R3.H1", 0x12340301),
    ],
)
def test_selected_halves(tmp_path, engine, words, code, expected):
    assert (run_text(FIRST.format(*map(hex, words)) + code, tmp_path, engine) == expected).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_predicates_replace_a_whole_byte(tmp_path, engine):
    """There are seven predicates: the eighth bit of the byte is 0."""
    text = """
        IMAD.MOV.U32 R4, RZ, RZ, -0x1
        ISETP.NE.U32.AND P1, PT, R4, RZ, PT
        ISETP.EQ.U32.AND P0, PT, R4, RZ, PT
        P2R R4, PR, R4, 0xff"""
    assert (run_text(text, tmp_path, engine) & 0xFFFFFF83 == 0xFFFFFF02).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_that_differ_from_the_first_one(tmp_path, engine):
    text = """
        S2R R0, SR_LANEID
        SHF.R.U32.HI R1, RZ, 0x3, R0
        R2UR P0, URZ, R1
        SEL R4, RZ, 0x1, !P0"""
    assert run_text(text, tmp_path, engine).tolist() == [0] * 8 + [1] * 24


def test_a_selector_that_an_opcode_does_not_know_is_refused(tmp_path):
    with pytest.raises(PtxError, match="IADD3 is not modelled: the selector .H1"):
        run_text("IADD3 R4, R0.H1, R1, RZ", tmp_path, "reference")
    with pytest.raises(PtxError, match="POPC is not modelled: the selector .B1"):
        run_text("POPC R4, R0.B1", tmp_path, "reference")


NEGATED = {
    "DMMA.8x8x4 R8, -R4, R6, R8": ((0, 0, 0, 0x3FF00000, 0, 0x40000000), 0xC0200000, "R9"),
    "HMMA.1688.F32 R8, R4, -R6, R8": ((0, 0, 0x3C003C00, 0x3C003C00, 0x40004000, 0), 0xC1800000, "R8"),
}


@pytest.mark.parametrize("code", NEGATED)
def test_negated_matrices(tmp_path, code):
    """Sums of -1 * 2 over 4 and 8 elements."""
    words, expected, result = NEGATED[code]
    moves = "".join(f"IMAD.MOV.U32 R{2 + at}, RZ, RZ, {word:#x}\n" for at, word in enumerate(words))
    zeros = "".join(f"IMAD.MOV.U32 R{index}, RZ, RZ, RZ\n" for index in (8, 9, 10, 11))
    text = f"{moves}{zeros}{code}\nIMAD.MOV.U32 R4, RZ, RZ, {result}"
    assert (run_text(text, tmp_path, "reference") == expected).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_negated_operand_is_shifted(tmp_path, engine):
    text = "UMOV UR7, 0x5\nULEA UR6, -UR7, URZ, 0x2\nIMAD.U32 R4, RZ, RZ, UR6"
    assert (run_text(text, tmp_path, engine).view(np.int32) == -20).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_arrive_together_at_an_mbarrier(tmp_path, engine):
    """SYNCS.ARRIVE.TMASK returns the state before all lanes, from which each lane counts those before it."""
    text = f"""{HEAD}.visible .entry k(.param .u64 out) {{{INDEX} .shared .b64 barrier;
    ld.param.u64 %d0, [out]; mul.wide.u32 %at, %r0, 4; add.u64 %d0, %d0, %at; setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared.b64 [barrier], 64; bar.sync 0;
    mbarrier.arrive.noComplete.shared.b64 %d1, [barrier], 1; mbarrier.pending_count.b64 %r4, %d1;
    st.global.b32 [%d0], %r4; ret; }}"""
    out = np.zeros(32, np.uint32)
    assemble(text, tmp_path)["k"].launch(1, 32, [out], engine=engine)
    assert out.tolist() == list(range(64, 32, -1))


@pytest.mark.parametrize(
    ("rounding", "expected"), [("rn", 1.0), ("rm", 1 - 2.0**-51), ("rp", 1.0), ("rz", 1 - 2.0**-51)]
)
def test_f64_products_are_rounded_as_the_modifier_says(tmp_path, rounding, expected):
    """Each of the four terms is rounded for itself."""
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .f64 a) {{{INDEX} .reg .f64 %e<6>;
    ld.param.u64 %d0, [out]; ld.param.f64 %e0, [a]; mul.wide.u32 %at, %r0, 16; add.u64 %d0, %d0, %at;
    mov.f64 %e1, 0d3ff0000000000000;
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.{rounding} {{%e2, %e3}}, {{%e0}}, {{%e1}}, {{%e1, %e1}};
    st.global.v2.f64 [%d0], {{%e2, %e3}}; ret; }}"""
    out = np.zeros((32, 2))
    assemble(text, tmp_path)["k"].launch(1, 32, [out, np.float64(-(2.0**-60))], engine="reference")
    assert (out == expected).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_copy_of_no_bytes_fills_with_zeros(tmp_path, engine):
    text = f"""{HEAD}.visible .entry k(.param .u64 out) {{{INDEX} .shared .align 16 .b8 area[512]; .reg .b32 %s;
    ld.param.u64 %d0, [out]; mul.wide.u32 %at, %r0, 16; add.u64 %d0, %d0, %at; mov.u32 %s, area;
    mad.lo.u32 %s, %r0, 16, %s; st.shared.v4.b32 [%s], {{%r2, %r2, %r2, %r2}};
    cp.async.cg.shared.global [%s], [%d0], 16, 0; cp.async.wait_all; ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%s];
    st.global.v4.b32 [%d0], {{%r4, %r5, %r6, %r7}}; ret; }}"""
    out = np.ones((32, 4), np.uint32)
    assemble(text, tmp_path)["k"].launch(1, 32, [out], engine=engine)
    assert not out.any()


def test_generic_addresses_in_global_memory(tmp_path):
    text = f"""{HEAD}.visible .entry k(.param .u64 out) {{{INDEX} .shared .align 16 .b8 area[64];
    ld.param.u64 %d0, [out]; mul.wide.u32 %at, %r0, 4; add.u64 %d0, %d0, %at; mov.u64 %d2, area;
    cvta.shared.u64 %d2, %d2; setp.lt.u32 %p0, %r0, 16; selp.b64 %d3, %d0, %d2, %p0; isspacep.global %p1, %d3;
    selp.u32 %r4, 1, 0, %p1; st.global.b32 [%d0], %r4; ret; }}"""
    out = np.zeros(32, np.uint32)
    assemble(text, tmp_path)["k"].launch(1, 32, [out], engine="reference")
    assert out.tolist() == [1] * 16 + [0] * 16


def test_sparse_wgmma_reads_a_before_d_is_written():
    """D takes the place of A here, and C is moved to D first."""
    emitter = Emitter({0: 0}, "shared", 0x210, {}, has_groups=False)
    text = "IGMMA.SP.64x8x64.U8.S8.SAT R36, R36, gdesc[UR8], R40, !UP0, R24, gsb0"
    opcode_table.emit(emitter, parse_instruction(text, 0, 0))
    matrix = emitter.instructions[-2]  # then the group is committed
    assert matrix.attributes.name == "wgmma.mma_async.sp.sync.aligned.m64n8k64.satfinite.s32.u8.s8"
    assert [item.name for item in matrix.results[0].items] == ["R36", "R37", "R38", "R39"]
    assert all(item.name.startswith("%t") for item in matrix.sources[0].items)


def test_indexed_constants_may_count_from_before_the_parameters():
    """The index of an array parameter may include its offset; a word of the driver has no index."""
    for text, is_refused in (("LDC R5, c[0x0][R7+0x1ac]", False), ("LDC R5, c[0x0][0x1ac]", True)):
        emitter = Emitter({0: 0}, "shared", 0x210, {}, has_groups=False)
        opcode_table.emit(emitter, parse_instruction(text, 0, 0))
        refused = [inst.action.reason for inst in emitter.instructions if isinstance(inst.action, Refused)]
        assert bool(refused) == is_refused, text


SIGNS = """
    .version 8.0\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u64 in, .param .u64 out)
    {
        .reg .b64 %d<4>; .reg .f64 %f<8>; .reg .b32 %r1; .reg .f32 %s<3>;
        ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 32;
        add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2; ld.global.v2.f64 {%f0, %f1}, [%d0];
        ld.global.v2.f64 {%f2, %f3}, [%d0+16]; SIGN
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f4, %f5}, {%f0}, {%f1}, {%f2, %f3};
        st.global.v2.f64 [%d1], {%f4, %f5}; cvt.rn.f32.f64 %s0, %f2; ABS cvt.f64.f32 %f6, %s0;
        st.global.f64 [%d1+16], %f6; ret;
    }
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_sign_modifiers_of_matrices_and_conversions_leave_a_nan_unchanged(engine, tmp_path):
    """The H200's results of DMMA and F2F to f64 with -R and |R| show this."""

    def run(values, sign="", absolute=""):
        out = np.zeros((32, 4))
        module = assemble(SIGNS.replace("SIGN", sign).replace("ABS", absolute), tmp_path, "sm_90")
        module["k"].launch(1, 32, [values.copy(), out], engine=engine)
        return out.view(np.uint64)

    rng = np.random.default_rng(5)
    values = rng.standard_normal((32, 4))
    negated = values * [-1, 1, 1, 1]
    assert (run(values, "neg.f64 %f0, %f0;")[:, :2] == run(negated)[:, :2]).all()
    values[5, 0] = -np.nan
    same = np.isnan(run(values).view(np.float64)[:, :2])
    assert same.any()
    assert (run(values, "neg.f64 %f0, %f0;")[:, :2][same] == run(values)[:, :2][same]).all()
    values[:, 2] = np.where(np.arange(32) % 3 == 0, -np.nan, values[:, 2])
    plain, absolute = run(values)[:, 2], run(values, absolute="abs.f32 %s0, %s0;")[:, 2]
    is_nan = np.isnan(values[:, 2])
    assert (plain[is_nan] == absolute[is_nan]).all()
    assert (absolute[~is_nan] == plain[~is_nan] & np.uint64(2**63 - 1)).all()


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("scale", [4.0, 8.0, 0.5, 0.25, 0.125])
def test_a_product_times_a_power_of_two_is_executed_and_not_called_exact(scale, engine, tmp_path):
    code = int(np.float32(scale).view(np.uint32))
    text = f"""
        .version 8.0\n.target sm_90\n.address_size 64
        .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)
        {{
            .reg .f32 %f<5>; .reg .b32 %r1; .reg .b64 %rd<8>;
            ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
            mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4;
            add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
            ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
            mul.f32 %f3, %f1, %f2; mul.f32 %f4, %f3, 0f{code:08X};
            st.global.f32 [%rd7], %f4; ret;
        }}
    """
    a, b = (seeded("bits:f32", (512,), seed) for seed in (46, 47))
    near = np.array(
        [2.0**-126, 2.0**-127 * 1.5, 3.0, 2.0**-140, 2.0**127], np.float32
    )  # subnormal and infinite results
    a[:5], b[:5] = near, np.float32(1 + 2**-23)
    found = np.zeros_like(a)
    kernel = assemble(text, tmp_path, "sm_90")["k"]
    run = kernel.launch(1, 512, [a, b, found], engine=engine)
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) * b * scale).astype(np.float32)  # rounded once
    expected = np.where(np.isnan(expected), np.uint32(0x7FFFFFFF), expected.view(np.uint32))

    assert any(inst.opcode == "FMUL" and inst.modifiers for inst in kernel.instructions)
    assert (found.view(np.uint32) == expected).all()
    assert not run.exact
