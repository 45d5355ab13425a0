"""The evidence for machine code: when a spelling counts as compared, and kernels that probe one instruction."""

import numpy as np
import pytest

from oracle import toolkit
from tools.fuzz.driver import DriverError
from tools.sass import probe_kernels, probe_runs, probes
from tools.sass.__main__ import observed_outcome
from tools.sass.captures import LIMIT, Case, Launch, assemble
from tools.sass.evidence import SpellingCount, SpellingTable, is_compared, observe
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.compared_spellings import compared_rows, equivalents
from warpfrag.sass.compared_spellings import is_compared as is_named
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.sass_module import SassModule

ADD = "FADD R,R,R"
MOVE = "LOP3.LUT R,R,R,R,imm,~P"
KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<6>; .reg .pred %p<2>;
    ld.param.u64 %d0, [data]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 8; add.u64 %d2, %d0, %d1;
    ld.global.f32 %f0, [%d2]; ld.global.f32 %f1, [%d2+4]; @UNUSED@
    add.f32 %f2, %f0, %f1; st.global.f32 [%d2], %f2;
    ret;
}
"""


def evidence(sets=1024, specials=1, different=1024, *, differs=False):
    return SpellingCount(1, sets, specials, set(range(different)), differs)


def test_a_spelling_needs_1024_operand_sets():
    for name in (ADD, MOVE):
        assert is_compared(name, evidence())
        assert not is_compared(name, evidence(sets=1023))


def test_arithmetic_needs_1024_different_operand_sets():
    assert not is_compared(ADD, evidence(sets=5000, different=1023))
    assert is_compared(MOVE, evidence(sets=5000, different=1023))


def test_special_values_must_be_among_the_operands():
    assert not is_compared(ADD, evidence(specials=0))
    assert not is_compared(MOVE, evidence(specials=0))
    assert is_compared("S2R R,SR_TID.X", evidence(specials=0, different=0))  # it reads no register
    assert is_compared("BAR.SYNC.DEFER_BLOCKING imm,R", evidence(specials=0, different=2))  # a number of threads
    assert not is_compared("MUFU.RCP R,imm", evidence(different=1))  # an immediate is an operand


HGMMA, SYNCS = 0xFE6000800081800E00000041879F0, 0x13E2000800000600000002FFFF89A7


@pytest.mark.parametrize(
    ("encoding", "text", "spelling", "named"),
    [
        (HGMMA, "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0", "R,gdesc[UR],R,gsb", "R,gdesc[UR],R,UP,gsb"),
        (HGMMA | 7 << 84, "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", "R,gdesc[UR],R", "R,gdesc[UR],R,UP,gsb"),
        (HGMMA ^ 1 << 87, "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, UP6, gsb0", "R,gdesc[UR],R,UP,gsb",
         "R,gdesc[UR],R,UP,gsb"),
        (HGMMA ^ 1 << 90, "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, !UPT, gsb0", "R,gdesc[UR],R,~UP,gsb",
         "R,gdesc[UR],R,~UP,gsb"),
        (SYNCS, "@!P0 SYNCS.ARRIVE.TRANS64 RZ, [UR6], R2", "R,[UR],R", "R,[R+UR],R"),
        (SYNCS ^ 0xF4 << 24, "@!P0 SYNCS.ARRIVE.TRANS64 RZ, [R11+UR6], R2", "R,[R+UR],R", "R,[R+UR],R"),
    ],
)  # fmt: skip
def test_a_field_that_names_nothing_is_the_number_of_a_register(encoding, text, spelling, named):
    """RZ is register 255, UPT predicate 7 and no scoreboard scoreboard 7; nvdisasm does not print them."""
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    ((inst,),) = disassemble([encoding.to_bytes(16, "little")], "sm_90a")
    opcode = ".".join((inst.opcode, *inst.modifiers))
    assert (inst.text, inst.spelling) == (text, f"{opcode} {spelling}")
    assert f"{opcode} {named}" in equivalents(inst.spelling)
    assert is_named(inst.spelling, frozenset({f"{opcode} {named}"}))
    assert not is_named(f"{opcode} {spelling.replace('R,', '-R,', 1)}", frozenset({f"{opcode} {named}"}))


def test_every_row_of_the_table_follows_the_definition():
    rows = compared_rows("sm_90")
    assert rows
    for row in rows:
        assert is_compared(row.spelling, evidence(row.sets, 1, row.distinct)), row


def test_a_spelling_that_differed_alone_is_not_compared():
    table = SpellingTable()
    table[ADD].add(evidence())
    assert table.is_complete(ADD)
    table[ADD].add(evidence(differs=True))
    assert not table.is_complete(ADD)


def test_counts_are_joined_and_read_back(tmp_path):
    few, more = evidence(sets=600, different=600), SpellingCount(1, 424, 0, set(range(500, 1024)))
    table = SpellingTable.from_rows({ADD: SpellingTable({ADD: few}).rows()[ADD]})
    assert table[ADD] == few
    table.join(SpellingTable({ADD: more}))
    table.write(tmp_path / "counts.xz")
    read = SpellingTable.read(tmp_path / "counts.xz")
    assert read.is_complete(ADD)
    assert read.rows() == table.rows() == {ADD: [2, 1024, 1, None, False]}


@pytest.fixture
def _tools():
    toolkit.find_ptxas("sm_90a")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")


def counted(text, data, expected):
    """Return the counts of a kernel that is compared with expected bytes."""

    def run(runner):
        array = data.copy()
        runner(Launch(assemble(text, "sm_90")["k"], 1, 64, {"args": [array]}, 0), LaunchOptions(limit=LIMIT))
        return [("data", array.tobytes(), expected.tobytes())]

    table = SpellingTable()
    verdict, reason = observed_outcome(Case("k", run), table)
    assert verdict in {"equal", "differ"}, reason
    return verdict, table


@pytest.mark.usefixtures("_tools")
def test_only_equal_runs_count():
    data = np.arange(128, dtype=np.float32)
    expected = data.copy()
    expected[::2] += data[1::2]
    verdict, table = counted(KERNEL.replace("@UNUSED@", ""), data, expected)
    assert verdict == "equal"
    assert (table[ADD].kernels, table[ADD].sets, len(table[ADD].values)) == (1, 64, 64)
    assert table[ADD].specials == 1  # the thread that adds 0 and 1
    expected[0] += 1
    verdict, table = counted(KERNEL.replace("@UNUSED@", ""), data, expected)
    assert verdict == "differ"
    assert not table


@pytest.mark.usefixtures("_tools")
def test_results_that_never_reach_memory_do_not_count():
    """A product that is stored only by threads that do not exist, and one that a branch depends on."""
    guarded = "mul.f32 %f3, %f0, %f1; setp.gt.u32 %p0, %r0, 100; @%p0 st.global.f32 [%d2+4], %f3;"
    data = np.arange(128, dtype=np.float32)
    expected = data.copy()
    expected[::2] += data[1::2]
    verdict, table = counted(
        KERNEL.replace("@UNUSED@", f"setp.gt.u32 %p1, %r0, 100; @!%p1 bra L; {guarded} L:"), data, expected
    )
    assert verdict == "equal"
    assert not table["FMUL R,R,R"].sets
    deciding = "mul.f32 %f3, %f0, %f1; setp.gt.f32 %p0, %f3, 0f7F000000; @%p0 st.global.f32 [%d2+4], %f3;"
    verdict, table = counted(KERNEL.replace("@UNUSED@", deciding), data, expected)
    assert verdict == "equal"
    assert table["FMUL R,R,R"].sets == 64


EXAMPLES = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u32 word)
{
    .reg .b32 %r<12>; .reg .b64 %d<8>; .reg .f32 %f<9>; .reg .f64 %e<4>; .reg .pred %p<4>; .reg .b16 %h<4>;
    .shared .align 16 .b8 cells[1024];
    ld.param.u64 %d0, [data]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 64; add.u64 %d2, %d0, %d1;
    ld.param.u32 %r9, [word]; ld.global.v2.u32 {%r1, %r2}, [%d2]; ld.global.v2.f32 {%f0, %f1}, [%d2];
    ld.global.v2.f64 {%e0, %e1}, [%d2]; mul.lo.u32 %r7, %r0, 16; mov.u32 %r8, cells; add.u32 %r8, %r8, %r7;
    fma.rp.ftz.f32 %f2, %f0, %f1, %f0; neg.f32 %f3, %f1; add.rz.f32 %f4, %f2, %f3; mul.rn.f64 %e2, %e0, %e1;
    setp.leu.xor.f32 %p0, %f0, %f1, %p1; selp.u32 %r3, %r1, %r2, %p0; cvt.rzi.s16.f32 %h0, %f0;
    cvt.u32.u16 %r4, %h0; shf.l.wrap.b32 %r5, %r1, %r2, %r4; mad.lo.u32 %r6, %r9, %r9, %r5;
    st.shared.u32 [%r8], %r1; atom.shared.min.s32 %r10, [%r8], %r2; atom.global.add.f32 %f5, [%d2+32], %f0;
    cvt.rp.f32.u32 %f6, %r9; redux.sync.max.s32 %r11, %r1, -1;
    st.global.v4.u32 [%d2], {%r3, %r4, %r5, %r6}; st.global.f32 [%d2+16], %f4; st.global.f64 [%d2+24], %e2;
    st.global.f32 [%d2+36], %f5; st.global.u32 [%d2+40], %r10; st.global.f32 [%d2+44], %f6;
    st.global.u32 [%d2+48], %r11;
    ret;
}
"""


@pytest.mark.usefixtures("_tools")
def test_probes_give_each_spelling_enough_operands():
    """Every computing instruction of a kernel becomes a probe, and one launch counts as its comparison."""
    examples: dict[str, list[int]] = {}
    for inst in assemble(EXAMPLES, "sm_90").decode("k"):
        examples.setdefault(inst.spelling, []).append(inst.encoding)
    made, reasons = probe_runs.probes_of(examples)
    found = {probe.inst.spelling for probe in made}
    assert {name.split(".")[0].split(" ")[0] for name in found} >= {
        "FFMA",
        "FADD",
        "DMUL",
        "FSETP",
        "SEL",
        "F2I",
        "SHF",
        "ATOMS",
        "ATOMG",
        "STG",
        "REDUX",
    }
    assert not set(reasons) & found
    assert all("EXIT" not in name for name in found)
    total = SpellingTable()
    for kernel in probe_kernels.kernels_of(made):
        again = probe_runs.rebuilt(kernel.layout, [probe.inst.encoding for probe in kernel.probes])
        assert again.cubin == kernel.cubin
        data, constants = probe_kernels.arguments_of(kernel)
        before = data.copy()
        module = SassModule(Cubin(kernel.cubin))
        decoded = {inst.spelling for inst in module.decode("k")}
        assert decoded >= {probe.inst.spelling for probe in kernel.probes}
        launch = Launch(module["k"], *kernel.layout, {"args": [data, constants]}, probes.SHARED_BYTES)
        total.join(observe(launch, LaunchOptions(limit=LIMIT), SpellingTable()))
        same = (data == before).all(axis=1)  # [group, word]
        assert same.reshape(-1)[: probe_kernels.FIRST_RESULT].all()
        for probe, words in zip(kernel.probes, kernel.words, strict=True):
            assert words, probe.inst.text
            assert probe.address or not any(same[word // 4, word % 4] for word in words), probe.inst.text
    assert {name for name in found if not total.is_complete(name)} == set()


class WrongGpu:
    """A GPU that computes like the machine, except for one bit of a word, and rejects an encoding."""

    def __init__(self, word, rejected=0):
        self.word, self.rejected = word, rejected.to_bytes(16, "little")[:8]

    def run(self, cubin, grid, block, arguments, shared):
        if self.rejected in cubin:
            raise DriverError("cuCtxSynchronize", 715, "an illegal instruction was encountered")
        data = arguments[0].view(np.uint32).reshape(probe_kernels.given_data().shape).copy()
        SassModule(Cubin(cubin))["k"].launch(grid, block, [data, arguments[1]], shared=shared, engine="reference")
        data[self.word // 4, 5, self.word % 4] ^= 1
        return [data.view(np.uint8).reshape(-1)]


@pytest.mark.slow
@pytest.mark.usefixtures("_tools")
def test_a_probe_that_differs_is_not_evidence(tmp_path, monkeypatch, capsys):
    """One wrong bit marks its spelling and leaves the others; an encoding that the GPU rejects is left out."""
    examples = {
        inst.spelling: [inst.encoding]
        for inst in assemble(EXAMPLES, "sm_90").decode("k")
        if inst.opcode in {"FFMA", "DMUL", "FSETP"}
    }
    made, _ = probe_runs.probes_of(examples)
    (kernel,) = probe_kernels.kernels_of(made)
    rejected, *spellings = [probe.inst.spelling for probe in kernel.probes]
    gpu = WrongGpu(kernel.words[0][0], kernel.probes[0].inst.encoding)
    monkeypatch.setattr(probe_runs, "device", lambda: gpu)
    probe_runs.record_probes(examples, tmp_path, workers=2, seconds=60)
    assert f"fails on the GPU: {kernel.probes[0].inst.text}" in capsys.readouterr().out
    table = SpellingTable()
    verdicts = [observed_outcome(case, table) for case in probe_runs.probe_cases(tmp_path)]
    wrong = [reason.partition(":")[0] for verdict, reason in verdicts if verdict == "differ"]
    assert rejected not in table
    assert len(wrong) == 1
    assert {name for name in spellings if table.is_complete(name)} == {*spellings} - {*wrong}


CONTROL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<12>; .reg .b64 %d; .reg .pred %p<6>; ld.param.u64 %d, [out]; ld.global.u32 %r0, [%d];
    ld.global.u32 %r1, [%d+4]; ld.global.u32 %r2, [%d+8]; setp.eq.u32 %p0, %r2, 7; setp.gt.u32 %p3, %r2, 9;
    barrier.red.popc.u32 %r3, %r0, %r1, %p0; barrier.red.and.pred %p1, %r0, %r1, !%p0;
    barrier.red.or.pred %p2, %r0, %r1, %p3; barrier.red.popc.u32 %r6, %r0, %p3; barrier.red.popc.u32 %r7, 1, %r1, %p3;
    barrier.arrive %r0, %r1; barrier.sync %r0, %r1; selp.u32 %r4, 1, 2, %p1; selp.u32 %r5, 1, 2, %p2;
    st.global.v4.u32 [%d+16], {%r3, %r4, %r5, %r6}; st.global.u32 [%d+32], %r7;
    ret;
}
"""
BARRIERS = {
    "BAR.RED.POPC.DEFER_BLOCKING R,R,P", "BAR.RED.AND.DEFER_BLOCKING R,R,~P", "BAR.RED.OR.DEFER_BLOCKING R,R,P",
    "BAR.RED.POPC.DEFER_BLOCKING R,P", "BAR.RED.POPC.DEFER_BLOCKING imm,R,P", "BAR.ARV R,R",
    "BAR.SYNC.DEFER_BLOCKING R,R",
}  # fmt: skip
BRANCHES = {
    "BRA.U target": [0xFEA00038000000000000100507947],
    "WARPSYNC.COLLECTIVE R,target": [0x1CFEA0003C000000000000004087348],
}


def test_probes_of_barriers_and_whole_branches_count_as_compared():
    toolkit.find_ptxas("sm_90a")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm")
    code = assemble(CONTROL, "sm_90a").decode("k")
    examples = {inst.spelling: [inst.encoding] for inst in code if inst.opcode == "BAR"}
    assert {name.replace("~", "") for name in examples} == {name.replace("~", "") for name in BARRIERS}

    made, reasons = probe_runs.probes_of(examples | BRANCHES)
    assert not reasons
    (kernel,) = probe_kernels.kernels_of(made)
    data, constants = probe_kernels.arguments_of(kernel)
    table = observe(probe_runs.launch_of(kernel, data, constants), LaunchOptions(limit=LIMIT), SpellingTable())

    first = probe_kernels.given_data()
    for number, (probe, left) in enumerate(zip(kernel.probes, probe_kernels.left_by(kernel, data), strict=True)):
        assert is_compared(probe.inst.spelling, table[probe.inst.spelling]), probe.inst.text
        if probe.inst.opcode == "BAR":  # the last word is what the other warp stored before the barrier
            stored = first[number // 4, :, number % 4].reshape(-1, 4, 32)
            assert (left[-1].reshape(stored.shape) == stored[:, [1, 0, 3, 2]]).all()
        if "RED" in probe.inst.modifiers:
            blocks = left[0].reshape(-1, 128)
            assert (blocks == blocks[:, :1]).all()
            assert len(np.unique(blocks)) > 1
        if probe.inst.opcode == "BRA":  # the branch skips a move of word 1
            is_taken = np.arange(left.size) // 32 % 3 == 1
            assert (left[0] == np.where(is_taken, first[0, :, 0], first[0, :, 1])).all()
