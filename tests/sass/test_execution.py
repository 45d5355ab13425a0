"""Machine code in both engines: kernels from PTX through ptxas, compared with NumPy and an H200's memory."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from oracle import toolkit
from seeded import seeded
from tools.fuzz.emulation import data_of
from tools.fuzz.generate import generate
from tools.fuzz.record import arch_of
from warpfrag.errors import CompilationFailed, InvalidOperand, PtxError
from warpfrag.machine.ir.actions import Refused
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.emitter import Emitter
from warpfrag.sass.instruction_parser import parse_instruction
from warpfrag.sass.lowering import lower
from warpfrag.sass.opcodes import opcode_table
from warpfrag.sass.sass_module import SassModule

pytestmark = pytest.mark.one_engine  # each launch names its own
DATA = Path(__file__).parents[1] / "data" / "ptx"
CASES = json.loads((DATA / "kernels.json").read_text(encoding="utf-8"))
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
ENGINES = ("reference", "compiled")
INDEX = """
    .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<4>; .reg .f32 %f<12>; .reg .b64 %at;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
"""


def assemble(text, folder, arch="sm_90a"):
    source, target = folder / "module.ptx", folder / "module.cubin"
    source.write_text(text)
    ptxas, _ = toolkit.find_ptxas(arch)
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    subprocess.run([ptxas, f"-arch={arch}", source, "-o", target], check=True)
    return SassModule(Cubin(target.read_bytes()))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_vector_addition(tmp_path, engine):
    text = f"""{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {{{INDEX}
    ld.param.u32 %r4, [n]; setp.ge.u32 %p0, %r3, %r4; @%p0 exit;
    ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; mul.wide.u32 %at, %r3, 4;
    add.u64 %d0, %d0, %at; add.u64 %d1, %d1, %at; add.u64 %d2, %d2, %at;
    ld.global.f32 %f0, [%d0]; ld.global.f32 %f1, [%d1]; add.f32 %f2, %f0, %f1; st.global.f32 [%d2], %f2; ret; }}"""
    a, b = np.random.default_rng(1).random((2, 1000), np.float32)
    c = np.zeros_like(a)
    assemble(text, tmp_path)["k"].launch(4, 256, [a, b, c, np.uint32(1000)], engine=engine)
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_of_a_loop_meet_again(tmp_path, engine):
    """Each lane runs its own number of rounds; the vote after the loop sees all lanes."""
    text = f"""{HEAD}.visible .entry k(.param .u64 out) {{{INDEX}
    ld.param.u64 %d0, [out]; mul.wide.u32 %at, %r3, 8; add.u64 %d0, %d0, %at; mov.u32 %r4, 0; mov.u32 %r5, %r0;
    LOOP: setp.eq.u32 %p0, %r5, 0; @%p0 bra DONE; mad.lo.u32 %r4, %r4, 3, %r5; sub.u32 %r5, %r5, 1; bra LOOP;
    DONE: setp.gt.u32 %p1, %r4, 100; vote.sync.ballot.b32 %r6, %p1, 0xffffffff;
    st.global.v2.b32 [%d0], {{%r4, %r6}}; ret; }}"""
    out = np.zeros((64, 2), np.uint32)
    assemble(text, tmp_path)["k"].launch(1, 64, [out], engine=engine)
    totals = []
    for lane in range(64):
        total = 0
        for left in range(lane, 0, -1):
            total = (total * 3 + left) & 0xFFFFFFFF
        totals.append(total)
    ballots = [sum((totals[32 * warp + lane] > 100) << lane for lane in range(32)) for warp in range(2)]
    assert out[:, 0].tolist() == totals
    assert out[:, 1].tolist() == [ballots[lane // 32] for lane in range(64)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_matrix_product(tmp_path, engine):
    text = f"""{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{{INDEX}
    ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; mul.wide.u32 %at, %r0, 16;
    add.u64 %d3, %d0, %at; add.u64 %d5, %d2, %at; mul.wide.u32 %at, %r0, 8; add.u64 %d4, %d1, %at;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d3]; ld.global.v2.b32 {{%r8, %r9}}, [%d4]; mov.f32 %f0, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f4, %f5, %f6, %f7}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}},
    {{%f0, %f0, %f0, %f0}}; st.global.v4.f32 [%d5], {{%f4, %f5, %f6, %f7}}; ret; }}"""
    rng = np.random.default_rng(2)
    a, b = rng.integers(-4, 5, (16, 16)).astype(np.float16), rng.integers(-4, 5, (16, 8)).astype(np.float16)
    row, pair = np.arange(32) // 4, 2 * (np.arange(32) % 4)
    words_a = np.stack([a[row + 8 * (i // 2 % 2), pair + i % 2 + 8 * (i // 4)] for i in range(8)], axis=1)
    words_b = np.stack([b[pair + i % 2 + 8 * (i // 2), row] for i in range(4)], axis=1)
    c = np.zeros((32, 4), np.float32)
    assemble(text, tmp_path)["k"].launch(1, 32, [words_a, words_b, c], engine=engine)
    product = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(c, np.stack([product[row + 8 * (i // 2), pair + i % 2] for i in range(4)], axis=1))


LIST = f"""{HEAD}.visible .entry k(.param .u64 head, .param .u32 value) {{{INDEX}
    ld.param.u64 %d0, [head]; ld.param.u32 %r4, [value]; ld.global.u64 %d1, [%d0]; mul.wide.u32 %at, %r0, 4;
    add.u64 %d1, %d1, %at; add.u32 %r4, %r4, %r0; st.global.b32 [%d1], %r4; ret; }}"""
AT = 0x7F76_ABE0_0000
RAW = AT.to_bytes(8, "little") + (7).to_bytes(4, "little")


def test_a_pointer_in_memory_leads_to_another_array(tmp_path):
    """The parameter points to a pointer, which points to an array at its own address."""
    kernel = assemble(LIST, tmp_path)["k"]
    head, out = np.array([AT + 0x1000], np.uint64), np.zeros(32, np.uint32)
    memory = wf.GlobalMemory({AT: head, AT + 0x1000: out})
    for engine in ENGINES:
        out[:] = 0
        kernel.launch(1, 32, params=RAW, memory=memory, engine=engine)
        assert out.tolist() == list(range(7, 39))
    wf.ptx.load(LIST)["k"].launch(1, 16, params=RAW[:8] + b"\1\0\0\0", memory=memory)
    assert out.tolist() == [*range(1, 17), *range(23, 39)]


def test_an_access_outside_the_given_arrays_names_the_nearest(tmp_path):
    kernel = assemble(LIST, tmp_path)["k"]
    memory = wf.GlobalMemory({AT: np.array([AT + 0x1000], np.uint64), AT + 0x1000: np.zeros(16, np.uint32)})
    nearest = "the array at 0x7f76abe01000 of 64 bytes at 0x7f76abe01000: the access ends 4 bytes after its end"
    with pytest.raises(PtxError, match=nearest):
        kernel.launch(1, 32, params=RAW, memory=memory, engine="reference")
    run = kernel.launch(1, 32, params=RAW, memory=memory, checks="memory")
    assert nearest in str(run.findings[0])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"params": RAW[:8]}, r"takes 12 parameter bytes \(.*8 bytes at 0, .*4 bytes at 8\), got 8 bytes"),
        ({"params": [AT, 7]}, r"expected params to be bytes, got \[1401"),
        ({"params": RAW, "args": [np.zeros(1)]}, "expected either args or params, got 1 arguments and 12 bytes"),
        ({"params": RAW, "memory": {AT: np.zeros(4)}}, r"expected memory=wf.GlobalMemory\({address: array}\)"),
    ],
)
def test_wrong_raw_arguments_are_rejected(tmp_path, keywords, message):
    kernel = assemble(LIST, tmp_path)["k"]
    with pytest.raises(InvalidOperand, match=message):
        kernel.launch(1, 32, **keywords)
    with pytest.raises(TypeError, match="unexpected keyword argument 'parameters'"):
        kernel.launch(1, 32, parameters=RAW)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({AT: np.zeros(4), AT + 8: np.zeros(4)}, "the array at 0x7f76abe00008 overlaps the array at 0x7f76abe00000"),
        ({AT: np.zeros((4, 4))[:, :2]}, "expected a contiguous array"),
        ({-8: np.zeros(4)}, "expected an address between 1 and 0x1000000000000"),
        ({AT: 5}, "the array at 0x7f76abe00000: expected an array, got 5"),
        ([np.zeros(4)], "expected a mapping from addresses to arrays"),
    ],
)
def test_wrong_global_memory_is_rejected(arrays, message):
    with pytest.raises(InvalidOperand, match=message):
        wf.GlobalMemory(arrays)


def test_an_unknown_instruction_is_an_error_only_if_it_runs(tmp_path):
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 value) {{{INDEX} .reg .b32 %t<5>;
    ld.param.u64 %d0, [out]; ld.param.u32 %r4, [value]; setp.eq.u32 %p0, %r4, 0; @%p0 bra DONE;
    ld.param.u64 %d1, [out]; tex.1d.v4.s32.s32 {{%t0, %t1, %t2, %t3}}, [%d1, {{%r4}}]; st.global.b32 [%d0+4], %t0;
    DONE: st.global.b32 [%d0], 5; ret; }}"""
    kernel = assemble(text, tmp_path)["k"]
    out = np.zeros(2, np.uint32)
    kernel.launch(1, 1, [out, np.uint32(0)], engine="reference")
    assert out[0] == 5
    with pytest.raises(PtxError, match="is not modelled: TLD is not a known opcode"):
        kernel.launch(1, 1, [out, np.uint32(1)], engine="reference")


def argument(given):
    if given is None:
        return None
    if "kind" in given:
        return seeded(given["kind"], given["shape"], given.get("seed"))
    return np.dtype(given["dtype"]).type(given["scalar"])


STORED = ("divergence", "histogram", "named_barriers", "votes", "groups", "fp8", "mma_sparse", "t_softmax_90")


@pytest.mark.parametrize("name", STORED)
def test_stored_kernels_leave_what_the_gpu_left(tmp_path, name):
    case = CASES[name]
    with zipfile.ZipFile(DATA / "kernels.zip") as kernels:
        text = kernels.read(f"{case['file']}.ptx").decode()
    args = [argument(given) for given in case["args"]]
    arch = "sm_90a" if ".target sm_90a" in text else "sm_90"
    kernel = assemble(text, tmp_path, arch)[case["entry"]]
    kernel.launch(case["grid"], case["block"], args, shared=case["shared"], engine="reference")
    changed = [number for number, given in enumerate(case["args"]) if given and "after" in given]
    assert changed
    for number in changed:
        assert hashlib.sha256(args[number].tobytes()).hexdigest() == case["args"][number]["after"]


TWICE = f"""{HEAD.replace("sm_90a", "sm_80")}
.visible .entry twice(.param .u64 out) {{ {INDEX}
    ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r3, 4; add.s64 %d3, %d1, %d2;
    ld.global.u32 %r4, [%d3]; shl.b32 %r4, %r4, 1; st.global.u32 [%d3], %r4; ret;
}}"""


def tools():
    toolkit.find_ptxas("sm_90")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_ptx_module_is_assembled_and_runs(engine, tmp_path):
    tools()
    module = wf.ptx.load(TWICE).assemble()
    (tmp_path / "twice.cubin").write_bytes(module.cubin.data)
    for each in (module, wf.sass.load(tmp_path / "twice.cubin"), wf.sass.load(module.cubin.data, arch="sm_90")):
        out = np.arange(64, dtype=np.uint32)
        run = each["twice"].launch(grid=2, block=32, args=[out], engine=engine)
        assert out.tolist() == [2 * index for index in range(64)]
        assert run.basis.startswith("sass sm_90, ptxas ")
        assert all("was not compared with a GPU" in reason for reason in run.inexact)  # another ptxas may spell it so
    assert [inst.address for inst in module["twice"].instructions[:3]] == [0, 16, 32]


def test_a_file_of_several_cubins_needs_a_choice():
    data = Path(__file__).parents[1] / "data" / "sass" / "globals.fatbin"
    with pytest.raises(
        InvalidOperand, match=r"expected one cubin that fits arch='sm_61'.*got 0; the file has \d+: sm_"
    ):
        wf.sass.load(data, arch="sm_61")
    assert wf.sass.load(data, arch="sm_90", kernel="globals").cubin.arch == "sm_90"


def test_what_cannot_be_assembled_is_said(monkeypatch):
    tools()
    with pytest.raises(CompilationFailed, match=r"^ptxas 1\d\.\d+\.\d+ cannot compile the module for sm_90: .*error"):
        wf.ptx.load(TWICE.replace("shl.b32 %r4, %r4, 1", "shl.b32 %r4, %d3, 1")).assemble()
    linked = wf.ptx.link([TWICE, TWICE.replace("twice", "thrice")])
    with pytest.raises(InvalidOperand, match="cannot assemble 2 linked modules"):
        linked.assemble()
    monkeypatch.setenv("WARPFRAG_LEVEL", "ptx")
    with pytest.raises(InvalidOperand, match="WARPFRAG_LEVEL=ptx"):
        wf.ptx.load(TWICE).assemble()


class TextModule(SassModule):
    """The module of a kernel whose instructions are replaced by text, one for every 16 bytes."""

    def __init__(self, cubin, text):
        """Keep the text."""
        super().__init__(cubin)
        self.code = [parse_instruction(line.strip(), 16 * at, 0) for at, line in enumerate(text.strip().split("\n"))]

    def program(self, entry):
        """Lower the text."""
        return lower(self.cubin[entry], self.code, self.address_of, self.variables(), {})


def run_text(text, folder, engine):
    """Run machine instructions in a warp, and return R4 of each lane."""
    stub = (
        f"{HEAD}.visible .entry k(.param .u64 out) {{ .reg .b64 %d; ld.param.u64 %d, [out]; st.global.u32 [%d], 1; }}"
    )
    store = """
        S2R R0, SR_LANEID
        ULDC.64 UR4, c[0x0][0x208]
        IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x210]
        IMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x214]
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        STG.E desc[UR4][R2.64], R4
        EXIT"""
    out = np.zeros(32, np.uint32)
    TextModule(assemble(stub, folder).cubin, text.strip() + store)["k"].launch(1, 32, [out], engine=engine)
    return out


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


CLUSTER_WORDS = [
    f"{name}.{axis}" for name in ("%cluster_nctaid", "%nclusterid", "%clusterid", "%cluster_ctaid") for axis in "xyz"
] + ["%cluster_ctarank", "%cluster_nctarank"]
CLUSTERS = (
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n"
    ".reg .b32 %r<5>; .reg .b64 %rd<5>;\nld.param.u64 %rd1, [out];\n"
    "mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r1, %r2, %r3;\n"
    "mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;\n"
    f"mul.wide.u32 %rd2, %r1, {4 * len(CLUSTER_WORDS)}; add.u64 %rd3, %rd1, %rd2;\n"
    + "".join(f"mov.u32 %r4, {name}; st.global.u32 [%rd3+{4 * at}], %r4;\n" for at, name in enumerate(CLUSTER_WORDS))
    + "ret;\n}\n"
)


@pytest.mark.parametrize("cluster", [None, (1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (1, 2, 4), (1, 5, 1), (1, 1, 7)])
def test_cluster_registers_in_machine_code_are_those_of_ptx(cluster, tmp_path):
    grid = tuple(2 * size for size in cluster or (3, 2, 1))
    shape = (int(np.prod(grid)), len(CLUSTER_WORDS))
    options = wf.ptx.LaunchOptions(cluster=cluster)
    found, expected = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)
    assemble(CLUSTERS, tmp_path, "sm_90")["k"].launch(grid, 1, [found], options=options)
    wf.ptx.load(CLUSTERS)["k"].launch(grid, 1, [expected], options=options, level="ptx")

    assert (found == expected).all(), found[:4]
    extents = np.array(cluster or (1, 1, 1))
    assert (found[:, :3] == extents).all()
    assert (found[:, 13] == extents.prod()).all()


def both_engines(seed, folder):
    """Return the memory that a random kernel leaves in each engine."""
    kernel = generate(seed)
    module = assemble(kernel.text(), folder, arch_of(kernel.text()))
    left = []
    for engine in ENGINES:
        data = data_of(kernel)
        arrays = [data.given.copy(), data.before.copy()]
        module["k"].launch(kernel.grid, kernel.block, [*arrays, data.blob], engine=engine)
        left.append(b"".join(array.tobytes() for array in arrays))
    return left


@pytest.mark.parametrize("seed", [13000322, 13000369])
def test_compiled_code_equals_the_interpreter(tmp_path, seed):
    """A byte of every lane before a uniform register is set, and f64 matrices in pairs of registers."""
    interpreted, compiled = both_engines(seed, tmp_path)
    assert interpreted == compiled


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(13100000, 13100003))
def test_random_kernels_in_both_engines(tmp_path, seed):
    interpreted, compiled = both_engines(seed, tmp_path)
    assert interpreted == compiled


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
