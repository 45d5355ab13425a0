"""Mistakes planted in correct kernels are found with the right kind and line; the kernels themselves are clean."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.planted_mistakes import BRANCHES, KERNELS, PLANTED, TAIL, run_checks, text_of
from small_kernel import kernel
from warpfrag.machine.interpreter.kernel_findings import CHECKS, FindingCollector, KernelAccess, KernelFinding
from warpfrag.machine.ir.program import SourceLine

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize("name", KERNELS)
def test_a_correct_kernel_is_clean(name):
    run = run_checks(text_of(name), name)

    assert (run.verdict, run.findings) == ("clean", [])


@pytest.mark.parametrize(("name", "mark", "instead", "kind", "place"), PLANTED)
def test_a_planted_mistake_is_found(name, mark, instead, kind, place):
    text = text_of(name, mark, instead)
    run = run_checks(text, name)

    if kind in {None, "incomplete"}:
        assert (run.verdict, run.findings) == (kind or "clean", [])
        return
    lines = text.splitlines()
    assert run.verdict == "findings"
    assert [finding for finding in run.findings if finding.kind == kind and place in lines[finding.line - 1]], (
        run.findings
    )


PLACES = (("exchange", "sync", "bar.sync 0;"), ("lanes", "warp", "bar.warp.sync -1;"), ("bulk", "init", "bar.sync 0;"))
HEAP = """.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry"""
MALLOC = """mov.u64 %rd9, 8;
{ .param .b64 n; .param .b64 r; st.param.b64 [n], %rd9; call.uni (r), malloc, (n); ld.param.b64 %rd10, [r]; }
st.u32 [%rd10], %r1;
"""
FREE = "{ .param .b64 q; st.param.b64 [q], %rd10; call.uni free, (q); }\n"


@pytest.mark.parametrize(("name", "mark", "right"), PLACES)
@pytest.mark.parametrize(
    ("uses", "line"),
    [
        (FREE, None),
        (FREE + "ld.u32 %r13, [%rd10];", "ld.u32 %r13"),
        (FREE + "st.u32 [%rd10], %r1;", "st.u32 [%rd10], %r1"),
        (FREE + FREE, "call.uni free"),
    ],
)
def test_memory_that_is_freed_is_not_used(name, mark, right, uses, line):
    text = text_of(name, mark, f"{right}\n{MALLOC}{uses}").replace(".visible .entry", HEAP, 1)
    run = run_checks(text, name)

    assert run.verdict == ("clean" if line is None else "findings")
    assert {finding.kind for finding in run.findings} <= {"freed"}
    assert all(line in text.splitlines()[finding.line - 1] for finding in run.findings)


@pytest.mark.parametrize(("name", "mark", "right"), PLACES)
def test_a_store_to_a_read_only_array_is_found(name, mark, right):
    text = text_of(name, mark, f"{right}\nst.global.u32 [%rd5], %r1;")
    out, data = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
    data.setflags(write=False)

    def launched(text):
        return wf.ptx.load(text)["k"].launch(1, 64, [out, data], checks="all")

    assert launched(text_of(name)).verdict == "clean"
    (finding,) = launched(text).findings
    assert finding.kind == "readonly"
    assert text.splitlines()[finding.line - 1] == "st.global.u32 [%rd5], %r1;"


def test_a_finding_says_who_and_where():
    run = run_checks(text_of("exchange", "sync", ""), "exchange", checks="races")
    (finding,) = run.findings
    lines = text_of("exchange", "sync", "").splitlines()

    assert (finding.kind, finding.check, finding.space, finding.count) == ("race", "races", "shared", 64)
    assert lines[finding.other.line - 1].startswith("st.shared.u32")
    assert (finding.block, finding.other.block) == ((0, 0, 0), (0, 0, 0))
    assert finding.thread[0] ^ finding.other.thread[0] == 32
    assert finding.text.startswith(f"ld.shared.u32 by thread {finding.thread} and st.shared.u32 at line ")
    assert str(finding) == f"race, line {finding.line}: {finding.text} (and 63 similar pairs); fix: {finding.fix}"
    assert finding.fix == "put __syncthreads() (bar.sync) between them"
    assert finding.to_dict()["other"]["line"] == finding.other.line
    assert run.uncertain
    assert "uncertain: the order of accesses" in repr(run)


def test_unrolled_copies_of_one_mistake_are_one_finding():
    """rowsum.cu lacks one `__syncthreads()` before line 9, and one inside the unrolled loop."""
    kernel = wf.ptx.load("sample:rowsum.ptx")["rowsum"]
    arrays = [np.ones((2, 128), np.float32), np.zeros(2, np.float32)]
    run = kernel.launch(grid=2, block=128, args=arrays, checks="all")

    lines = [(f.kind, str(f.source), str(f.other.source)) for f in run.findings]
    assert lines == [("race", "rowsum.cu:9", "rowsum.cu:6"), ("race", "rowsum.cu:9", "rowsum.cu:9")]
    assert run.findings[1].count > 64  # of six copies
    assert "st.shared.f32 at rowsum.cu:6 (line " in run.findings[0].text


@pytest.mark.parametrize(("order", "count"), [("012abc", 1), ("0a1b2c", 3)])
def test_findings_that_one_barrier_would_fix_are_one_finding(order, count):
    """Digits store to three arrays, and letters load another warp's words: one barrier, or three, are missing."""
    places = {name: f"[%r{3 + (name > '9')}+{256 * 'abc012'.index(name) % 768}]" for name in order}
    body = [
        f"st.shared.u32 {place}, %r1;" if name < "a" else f"ld.shared.u32 %r5, {place};\nst.global.u32 [%rd1], %r5;"
        for name, place in places.items()
    ]
    text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .b32 %r<6>; .reg .b64 %rd<4>; .shared .b32 words[192];
mov.u32 %r1, %tid.x;
mov.u32 %r2, words;
mad.lo.u32 %r3, %r1, 4, %r2;
xor.b32 %r4, %r1, 32;
mad.lo.u32 %r4, %r4, 4, %r2;
ld.param.u64 %rd1, [out];
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd1, %rd1, %rd2;
BARRIER{"BARRIER".join(body)}
ret;
}}"""
    for barrier, findings in (("\n", count), ("\nbar.sync 0;\n", 0)):
        run = wf.ptx.load(text.replace("BARRIER", barrier))["k"].launch(1, 64, [np.zeros(64, np.uint32)], checks="all")
        assert [finding.count for finding in run.findings] == [192 // count] * findings


def test_a_finding_names_the_load_of_an_unwritten_value():
    text = text_of("exchange").replace("st.shared.u32 [%r5], %r1;", "", 1)
    run = run_checks(text, "exchange", checks="uninitialised")

    (finding,) = run.findings
    line = next(n for n, row in enumerate(text.splitlines(), start=1) if row.startswith("ld.shared.u32"))
    assert finding.text.endswith(f"; unwritten values were read at line {line} (shared memory at 0x480)")


SHUFFLES = """
setp.ge.u32 %p2, %r1, 16;
{branch}
mov.u32 %r10, %r1;
shfl.sync.down.b32 %r11, %r10, {offset}, 31, {members};
{use}
"""


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize(
    ("branch", "offset", "members", "use", "is_found"),
    [
        ("@%p2 bra DONE;", 16, "0xffffffff", "add.u32 %r10, %r10, %r11;", True),  # 16 lanes run it
        ("@%p2 bra DONE;", 12, "0xffff", "add.u32 %r10, %r10, %r11;", True),  # lane 4 reads lane 16
        ("", 12, "0xffff", "add.u32 %r10, %r10, %r11;", True),  # lanes 16 to 31 are not named
        ("@%p2 bra DONE;", 12, "0xffff", "setp.lt.u32 %p3, %r1, 4;\n@%p3 add.u32 %r10, %r10, %r11;", False),
        ("@%p2 bra DONE;", 12, "0xffff", "", False),  # the value is not used
        ("", 16, "0xffffffff", "add.u32 %r10, %r10, %r11;", False),
    ],
)
def test_a_shuffle_from_a_lane_that_takes_no_part_is_undefined(engine, branch, offset, members, use, is_found):
    body = SHUFFLES.format(branch=branch, offset=offset, members=members, use=use)
    text = text_of("exchange").replace("st.shared.u32 [%r5], %r1;", body + "st.global.u32 [%rd4], %r10;\nDONE:", 1)
    text = text[: text.index("DONE:")] + "DONE:\nret;\n}\n"
    module = wf.ptx.load(text)
    run = module["k"].launch(1, 32, [np.zeros(32, np.uint32)] * 2, checks="uninitialised", engine=engine)

    assert [finding.kind for finding in run.findings] == ["uninitialised"] * is_found
    line = next(n for n, row in enumerate(text.splitlines(), start=1) if row.startswith("shfl.sync"))
    told = f"; unwritten values were read at line {line} (lanes that do not take part in it)"
    assert all(finding.text.endswith(told) for finding in run.findings)


def test_only_the_checks_that_are_asked_for_report():
    text = text_of("cp.async", "wait", "")

    assert run_checks(text, "cp.async", checks="races").verdict == "clean"
    assert run_checks(text, "cp.async", checks=("async", "barriers")).verdict == "findings"
    assert run_checks(text, "cp.async", checks=()).verdict is None
    assert not run_checks(text, "cp.async", checks=()).uncertain


@pytest.mark.parametrize("name", ["exchange", "sum", "named"])
def test_more_threads_at_a_barrier_than_it_waits_for_are_found(name):
    """The third warp of three would wait for a fourth."""
    arrays = [np.zeros(256, np.uint32) for _ in range(2)]
    for threads, count in ((96, 64), (96, 96), (128, 64)):
        text = text_of(name, "sync", f"bar.sync 1, {count};")
        run = wf.ptx.load(text)["k"].launch(1, threads, arrays, checks="barriers")
        if threads % count == 0:
            assert (run.verdict, run.findings) == ("clean", [])
            continue
        (finding,) = run.findings
        assert (finding.kind, text.splitlines()[finding.line - 1]) == ("barrier", "bar.sync 1, 64;")
        assert "barrier 1 waits for 64 threads, but 96 arrive: 32 are left over" in finding.text


INIT, INVAL = "mbarrier.init.shared.b64 [%r20], 1;", "mbarrier.inval.shared.b64 [%r20];"
REUSES = {  # statements of the first thread behind the last wait, and what is said of the last of them
    "again": ([INIT], "is initialised again: expected mbarrier.inval first"),
    "by a store": (["st.shared.u32 [%r20+4], 0;"], "is overwritten: expected mbarrier.inval first"),
    "by an atomic": (["atom.shared.exch.b32 %r12, [%r20], 1;"], "is overwritten: expected mbarrier.inval first"),
    "by a copy": (["cp.async.ca.shared.global [%r20], [%rd2], 4;", "cp.async.wait_all;"], "is overwritten"),
    "in use": (["mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r20], 16;", INIT], "is in use: its phase of parity"),
    "invalid twice": ([INVAL, INVAL], "expected an initialised mbarrier"),
    "waited for": ([INVAL, "mbarrier.arrive.shared.b64 _, [%r20];"], "no mbarrier is initialised at"),
    "initialised anew": ([INVAL, INIT], ""),
    "stored anew": ([INVAL, "st.shared.u32 [%r20+4], 0;"], ""),
    "near it": (["st.shared.u32 [%r3], 0;"], ""),
}


@pytest.mark.parametrize("name", ["bulk", "st.async", "phases"])
@pytest.mark.parametrize("reuse", REUSES)
def test_memory_of_a_valid_mbarrier_is_not_used_again(name, reuse):
    """Undefined according to the manual: the finding names both lines, the thread and the mbarrier."""
    statements, said = REUSES[reuse]
    text = text_of(name).replace(TAIL, "\nbar.sync 0;\n" + "\n".join(f"@%p1 {line}" for line in statements) + TAIL)
    run = run_checks(text, name)

    if not said:
        assert (run.verdict, run.findings) == ("clean", [])
        return
    (finding,) = run.findings
    lines = text.splitlines()
    assert (finding.kind, finding.check) == ("barrier", "barriers")
    wrong = statements[0] if reuse == "by a copy" else statements[-1]
    assert lines[finding.line - 1] == f"@%p1 {wrong}"
    assert said in finding.text
    assert "by thread (0, 0, 0) of block (0, 0, 0)" in finding.text
    if "valid" not in finding.text and "no mbarrier" not in finding.text:
        born = next(number for number, line in enumerate(lines, 1) if "mbarrier.init" in line)
        assert f"initialised at line {born}" in finding.text


@pytest.mark.parametrize("name", ["bulk", "phases"])
def test_mbarriers_are_followed_in_a_kernel_that_is_compiled(name):
    text = text_of(name).replace(TAIL, f"\nbar.sync 0;\n@%p1 {INIT}" + TAIL)
    kernel, arrays = wf.ptx.load(text)["k"], [np.zeros(256, np.uint32) for _ in range(2)]
    kernel.launch(1, 64, arrays, engine="compiled")
    assert [finding.kind for finding in kernel.launch(1, 64, arrays, checks="barriers").findings] == ["barrier"]


@pytest.mark.parametrize("store", ["mov.u32 %r30, 5;", ""])
@pytest.mark.parametrize("use", ["@%p4 mov.u32 %r10, 2;", "@%p4 exit;", "bar.red.popc.u32 %r10, 0, %p4;"])
def test_an_unwritten_guard_or_barrier_operand_is_found(use, store):
    text = text_of("unwritten branch", "store", store).replace("@%p4 bra NEXT;\nmov.u32 %r10, 2;", use)
    assert use in text
    run = wf.ptx.load(text)["k"].launch(1, 64, [np.zeros(64, np.uint32)] * 2, checks="uninitialised")
    assert {finding.kind for finding in run.findings} == (set() if store else {"uninitialised"})


def test_a_marked_array_is_unwritten():
    text = text_of("unwritten register").replace("add.u32 %r10, %r30, 1;", "ld.global.u32 %r10, [%rd5];")
    kernel, out = wf.ptx.load(text)["k"], np.zeros(64, np.uint32)

    assert kernel.launch(1, 64, [out, np.zeros(64, np.uint32)], checks="uninitialised").verdict == "clean"
    run = kernel.launch(1, 64, [out, wf.ptx.Unwritten(np.empty(64, np.uint32))], checks="uninitialised")
    assert [(finding.kind, finding.count) for finding in run.findings] == [("uninitialised", 64)]


def test_other_interleavings_show_that_the_order_matters():
    racy = text_of("global histogram", "count", next(row[2] for row in PLANTED if row[0] == "global histogram"))
    out, data = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    run = wf.ptx.load(racy)["k"].launch(1, 64, [out, data], options=wf.ptx.LaunchOptions(explore=12))
    left = data.copy()

    assert run.exploration.seeds
    assert not run.exploration.agrees
    assert "differ in argument 1" in str(run.exploration)
    data[:] = 0
    wf.ptx.load(racy)["k"].launch(1, 64, [out, data])
    assert np.array_equal(data, left)  # exploring leaves what the launch left
    run = wf.ptx.load(text_of("global histogram"))["k"].launch(
        1, 64, [out, data], options=wf.ptx.LaunchOptions(explore=5)
    )
    assert str(run.exploration) == "all 5 interleavings end with the same memory"


LARGE = 1 << 19  # words of an array with few slots for unordered accesses
READ_BY_MANY_WARPS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 out)
{{ .reg .b32 %r<9>; .reg .b64 %rd<6>; .reg .pred %p<4>;
 ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [out];
 mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd2, %rd3;
 ld.global.u32 %r2, [%rd1];
 st.global.u32 [%rd4], %r2;
 setp.lt.u32 %p1, %r1, {first}; @%p1 bra DONE;
 bar.sync 1, {count};
 setp.ne.u32 %p2, %r1, {last}; @%p2 bra DONE;
 st.global.u32 [%rd1], 7;
DONE: ret; }}"""


@pytest.mark.parametrize(
    ("warps", "first", "words", "verdict"),
    [(4, 2, LARGE, "findings"), (8, 4, LARGE, "incomplete"), (32, 28, 1, "findings"), (8, 0, LARGE, "clean")],
)
def test_a_read_that_is_not_kept_leaves_a_write_unjudged(warps, first, words, verdict):
    text = READ_BY_MANY_WARPS.format(first=32 * first, count=32 * (warps - first), last=32 * warps - 1)
    arrays = [np.zeros(words, np.uint32), np.zeros(32 * warps, np.uint32)]

    run = wf.ptx.load(text)["k"].launch(1, 32 * warps, arrays, checks="races")

    assert run.verdict == verdict
    assert [finding.kind for finding in run.findings] == ["race"] * (verdict == "findings")
    assert any("more unordered accesses than are recorded" in reason for reason in run.unjudged) == (
        verdict == "incomplete"
    )


@pytest.mark.parametrize("pairs", [2, 3, 12])
def test_pairs_of_source_lines_that_share_a_line_are_one_finding_if_they_are_many(pairs):
    lines = {line: SourceLine("k.cu", line) for line in range(100)}
    collector = FindingCollector(lines, CHECKS)
    zero = (0, 0, 0)
    for number in range(pairs):
        other = KernelAccess("cp.async", 40 + number // 2, zero, zero)
        kind = ("race", "async")[number % 2]
        collector.add(KernelFinding(kind, 20 + (number + 1) // 2, "text", block=zero, thread=zero, other=other), 3)
    apart = KernelAccess("st.shared", 70, zero, zero)
    collector.add(KernelFinding("race", 60, "another", block=zero, thread=zero, other=apart))
    collector.add(KernelFinding("bounds", 20, "outside", block=zero, thread=zero))

    found = [(finding.line, finding.kind, finding.count) for finding in collector.findings]
    first = [(20, "race", 3 * pairs)] if pairs > 2 else [(20, "race", 3), (21, "async", 3)]
    assert found == sorted([*first, (20, "bounds", 1), (60, "race", 1)])


HALVING = """.version 8.0
.target sm_90
.address_size 64
.visible .entry halving() {
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .shared .align 4 .b8 s[512];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, s;
    add.u32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    FIRST
    mov.u32 %r5, 64;
loop:
    setp.ge.u32 %p1, %r1, %r5;
    @%p1 bra skip;
    shl.b32 %r6, %r5, 2;
    add.u32 %r6, %r4, %r6;
    ld.shared.u32 %r7, [%r6];
    st.shared.u32 [%r4], %r7;
skip:
    LAST
    shr.u32 %r5, %r5, 1;
    setp.gt.u32 %p2, %r5, 16;
    @%p2 bra loop;
    ret;
}
"""


@pytest.mark.parametrize(
    ("first", "last", "fix"),
    [
        ("bar.sync 0;", "", "put __syncthreads() at the end of the loop body"),
        ("", "bar.sync 0;", "put __syncthreads() (bar.sync) between them"),
        ("bar.sync 0;", "bar.sync 0;", None),
    ],
)
def test_a_race_between_iterations_is_fixed_at_the_end_of_the_loop(first, last, fix):
    text = HALVING.replace("FIRST", first).replace("LAST", last)
    run = wf.ptx.load(text)["halving"].launch(1, 128, [], checks="races")

    assert {finding.fix for finding in run.findings} == ({fix} if fix else set())


def test_a_lost_update_in_one_warp_needs_an_atomic():
    counts = "ld.shared.u32 %r9, [sm];\nadd.u32 %r9, %r9, 1;\nst.shared.u32 [sm], %r9;\n"
    text = text_of("exchange").replace("st.shared.u32 [%r5], %r1;", counts * 2, 1)
    run = wf.ptx.load(text)["k"].launch(1, 32, [np.zeros(256, np.uint32)] * 2, checks="races")

    fixes = {finding.fix for finding in run.findings if finding.kind == "lockstep"}
    (fix,) = fixes
    assert fix.startswith(
        "use an atomic operation (atomicAdd, tl.atomic_add) if both update it, otherwise put __syncwarp()"
    )


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        ("bar.warp.sync -1;", "bar.warp.sync -1;", []),
        ("mov.u32 %r9, -1; bar.warp.sync %r9;", "mov.u32 %r10, -1; bar.warp.sync %r10;", []),
        ("", "", ["lockstep"]),
        ("bar.warp.sync 0xffff;", "bar.warp.sync 0xffff0000;", ["lockstep"]),
    ],
)
def test_branches_synchronise_at_different_instructions(low, high, found, engine):
    module = wf.ptx.load(kernel(BRANCHES.format(low=low, high=high)))
    out = np.zeros(32, np.uint32)
    run = module["k"].launch(1, 32, [out], checks=("races", "barriers"), engine=engine)

    assert [finding.kind for finding in run.findings] == found
    assert found or out.tolist() == [*range(31, -1, -1)]


def test_a_missing_block_barrier_is_not_called_one_between_lanes():
    """Lane 0 reads words that its own warp stored, and lane 16 reads words of the other warp."""
    text = (
        HALVING[: HALVING.index(".visible")]
        + """.visible .entry two() {
.reg .b32 %r<9>; .shared .align 8 .b8 sm[256];
mov.u32 %r1, %tid.x; mov.u32 %r3, sm; shl.b32 %r4, %r1, 2; add.u32 %r4, %r3, %r4; st.shared.u32 [%r4], %r1;
and.b32 %r2, %r1, 31; shl.b32 %r5, %r2, 3; add.u32 %r6, %r3, %r5; ld.shared.v2.u32 {%r7, %r8}, [%r6]; ret; }"""
    )
    (finding,) = wf.ptx.load(text)["two"].launch(1, 64, [], checks="races").findings

    assert (finding.kind, finding.fix) == ("race", "put __syncthreads() (bar.sync) between them")
