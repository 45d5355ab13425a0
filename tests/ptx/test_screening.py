"""Screened launches: the checks agree that launches proved clean are clean, and they decide the uncertain ones.

Every planted mistake and every litmus test is launched twice, with the screen and without, for each check: findings,
verdict, counts and memory are the same.
"""

import numpy as np
import pytest

import warpfrag as wf
from ptx import litmus, planted_mistakes, test_litmus, test_stored_kernels, test_tensor_checks, wgmma_orders
from slow_cases import sampled
from warpfrag.machine.interpreter.kernel_findings import CHECKS
from warpfrag.machine.ir.program import Register
from warpfrag.machine.jit.engine import CompiledProgram
from warpfrag.machine.jit.register_flow import maybe_unassigned
from warpfrag.machine.jit.screening import ProgramScreen
from warpfrag.machine.launch.grid import InstrumentedLaunch

pytestmark = pytest.mark.one_engine


@pytest.fixture
def both(monkeypatch):
    """Return a function that launches with and without the screen, compares both, and returns the run or its error."""

    def launch_both(launch):
        seen = []
        for is_enabled in (False, True):
            monkeypatch.setattr(ProgramScreen, "is_enabled", is_enabled)
            try:
                run, arrays = launch()
            except wf.errors.PtxError as error:  # what is no finding of the checks
                run = error
                seen.append(str(error))
                continue
            findings = [finding.to_dict() for finding in run.findings]
            told = run.verdict, findings, run.unjudged, run.uncertain, run.inexact_lines, run.counts, run.printed
            seen.append((told, [array.tobytes() for array in arrays]))
        assert seen[0] == seen[1]
        return run

    return launch_both


def launches(text, name, checks, engine="compiled"):
    """A launch of a kernel of `planted_mistakes`, and its memory."""
    kernel = wf.ptx.load(text)["k"]
    grid = 2 if name in {"blocks", "counter", "neighbours", "sum of the last block"} else 1
    block = 128 if name.startswith("wgmma") else 64

    def launch():
        arrays = np.zeros((2, 256), np.uint32)
        return kernel.launch(grid, block, list(arrays), checks=checks, engine=engine), arrays

    return launch


@pytest.mark.parametrize("name", sampled(planted_mistakes.KERNELS, 5))
def test_a_correct_kernel_is_judged_the_same(both, name):
    for checks in (*CHECKS, CHECKS):
        run = both(launches(planted_mistakes.text_of(name), name, checks))
        assert run.verdict == "clean"


@pytest.mark.parametrize(("name", "mark", "instead", "kind", "place"), sampled(planted_mistakes.PLANTED, 8))
def test_a_planted_mistake_is_judged_the_same(both, name, mark, instead, kind, place):
    del place
    text = planted_mistakes.text_of(name, mark, instead)
    for checks in CHECKS:
        both(launches(text, name, checks))
    found = {finding.kind for finding in both(launches(text, name, "all")).findings}
    assert found == set() if kind in {None, "incomplete"} else kind in found


@pytest.mark.parametrize("row", litmus.ROWS, ids=[row[0] for row in litmus.ROWS])
def test_a_litmus_test_is_judged_the_same(both, row):
    _, place, programs, verdict, _ = row
    text, grid, block, options = test_litmus.launch_of(place, programs)
    kernel = wf.ptx.load(text)["k"]

    def launch():
        array = np.zeros(128, np.uint32)
        return kernel.launch(grid, block, [array], checks="races", engine="compiled", **options), [array]

    assert {finding.kind for finding in both(launch).findings} == ({verdict} - {"none"})


@pytest.mark.slow
@pytest.mark.parametrize("mistake", test_tensor_checks.MISTAKES)
def test_a_mistake_with_tensor_memory_is_judged_the_same(both, monkeypatch, mistake):
    monkeypatch.setenv("WARPFRAG_ENGINE", "compiled")
    text, launch = test_tensor_checks.emitted("f16")
    part, number, _, _ = test_tensor_checks.MISTAKES[mistake]
    run = both(lambda: (launch(test_tensor_checks.without(text, part, number)), []))

    assert {finding.kind for finding in run.findings} == {"tensor_memory"}


PROVED = {
    "t_layernorm_90": "all", "t_mm_f16acc_80": "all", "t_softmax_90": "all", "votes": "all",
    "histogram": "uninitialised", "wgmma_bf16": "uninitialised", "wgmma_narrow": "barriers",
    "t_atomics_80": "async",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVED)
def test_a_stored_kernel_is_proved_clean_in_compiled_code(both, name):
    case = test_stored_kernels.CASES[name]
    kernel = test_stored_kernels.module(case["file"])[case["entry"]]
    options = {"shared": case["shared"], "checks": PROVED[name], "engine": "compiled"}

    def launch():
        args = [test_stored_kernels.argument(given) for given in case["args"]]
        run = kernel.launch(case["grid"], case["block"], args, **options)
        return run, [item for item in args if isinstance(item, np.ndarray)]

    run = both(launch)
    assert (run.verdict, run.engine) == ("clean", "compiled")


MASKED = """st.shared.u32 [%r5], %r1;
bar.sync 0;
setp.lt.u32 %p2, %r1, 8;
@%p2 ld.shared.u32 %r11, [%r5];
{moved}
add.u32 %r11, %r11, %r12;
selp.b32 %r13, %r11, %r1, %p2;
{store}
bar.sync 0;
ld.shared.u32 %r10, [%r3];
{last}"""
RIGHT = {
    "moved": "shfl.sync.bfly.b32 %r12, %r11, 4, 31, -1;",
    "store": "@%p1 st.shared.u32 [%r3], %r11;",
    "last": "add.u32 %r10, %r10, %r13;",
}


@pytest.mark.parametrize(
    ("mark", "instead", "is_proved"),
    [
        ("moved", RIGHT["moved"], True),
        ("moved", "shfl.sync.bfly.b32 %r12, %r11, 8, 31, -1;", False),
        ("moved", "mov.b32 %r12, %r11;", True),
        ("moved", "bar.warp.sync -1;\nmov.b32 %r12, 0;\nvote.sync.any.pred %p3, %p2, -1;", True),
        ("store", "and.b32 %r14, %r11, 4;\nadd.u32 %r14, %r3, %r14;\nld.shared.u32 %r15, [%r14];", False),
        ("store", "setp.eq.u32 %p4, %r11, 3;\n@%p4 bra NEXT;\nNEXT:\nmov.u32 %r20, 0;", False),
        ("last", "add.u32 %r10, %r10, %r11;", False),
    ],
)
def test_a_masked_load_is_followed_through_registers(both, mark, instead, is_proved):
    words = RIGHT | {mark: instead}
    body = MASKED.format(**words)
    run = both(launches(planted_mistakes.HEAD + body + planted_mistakes.TAIL, "masked", "uninitialised"))

    assert (run.engine == "compiled") == is_proved
    assert run.verdict == ("clean" if is_proved else "findings")


def test_what_compiled_code_does_not_follow_is_left_to_the_checks(both):
    body = MASKED.format(**RIGHT | {"store": "st.shared.u32 [%r5], %r11;"})  # of which only the first word is loaded
    run = both(launches(planted_mistakes.HEAD + body + planted_mistakes.TAIL, "masked", "uninitialised"))

    assert (run.verdict, run.engine) == ("clean", "reference")


@pytest.mark.parametrize("name", ["cp.async", "cp.async twice", "cp.async source"])
@pytest.mark.parametrize("checks", ["races", "async"])
def test_copies_that_are_waited_for_are_proved(name, checks):
    run, _ = launches(planted_mistakes.text_of(name), name, checks)()

    assert (run.verdict, run.engine) == ("clean", "compiled" if name != "cp.async source" else "reference")


SAME = "and.b32 %r12, %r1, 7;\nshl.b32 %r13, %r12, 2;\nadd.u32 %r13, %r3, %r13;\n"


@pytest.mark.parametrize(
    ("body", "engine", "kinds"),
    [
        ("st.shared.u32 [%r13], %r12;\nbar.sync 0;\nld.shared.u32 %r10, [%r13];", "compiled", set()),
        (
            "st.shared.u32 [%r3], 5;\nst.shared.u32 [%r3], 5;\nbar.sync 0;\nld.shared.u32 %r10, [%r3];",
            "compiled",
            set(),
        ),
        ("st.shared.v2.u32 [%r3], {%r2, %r2};\nbar.sync 0;\nld.shared.u32 %r10, [%r3];", "compiled", set()),
        ("st.shared.v2.u32 [%r3], {%r2, %r1};\nbar.sync 0;\nld.shared.u32 %r10, [%r3];", "reference", {"race"}),
        ("st.shared.u32 [%r13], %r1;\nbar.sync 0;\nld.shared.u32 %r10, [%r13];", "reference", {"race"}),
        ("st.shared.u32 [%r13], %r12;\nld.shared.u32 %r10, [%r13];", "reference", {"race"}),
        ("@%p1 st.shared.u32 [%r3], 0;\nst.shared.u32 [%r3], 5;\nmov.u32 %r10, 0;", "reference", {"race"}),
    ],
)
def test_threads_of_a_block_may_store_the_same(both, body, engine, kinds):
    run = both(launches(planted_mistakes.HEAD + SAME + body + planted_mistakes.TAIL, "same", "races"))

    assert (run.engine, {finding.kind for finding in run.findings}) == (engine, kinds)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("mov.u32 %r10, %r1;", set()),
        ("mov.u32 %r10, %r30;", {"%r30"}),
        ("@%p1 mov.u32 %r10, 1;", {"%r10"}),
        ("@%p1 bra A;\nmov.u32 %r10, 1;\nA:", {"%r10"}),
        ("@%p1 bra A;\nmov.u32 %r10, 1;\nbra B;\nA:\nmov.u32 %r10, 2;\nB:", set()),
        ("L:\nadd.u32 %r10, %r9, 1;\nmov.u32 %r9, 1;\n@%p1 bra L;", {"%r9"}),
        ("mov.u32 %r10, 1;\nbra A;\nadd.u32 %r8, %r30, 1;\nA:", set()),  # nobody gets there
        ("ld.shared.u32 %r10, [%r31];", {"%r31"}),
        ("mov.u32 %r10, 1;\n@%p5 bra A;\nA:", {"%p5"}),
    ],
)
def test_registers_that_may_be_read_unwritten_are_known(body, names):
    kernel = wf.ptx.load(planted_mistakes.HEAD + body + planted_mistakes.TAIL)["k"]
    steps = kernel.program.instructions
    named = {
        item.index: item.name
        for step in steps
        for operand in (*step.sources, *step.results, step.guard)
        for item in (operand, getattr(operand, "base", None))
        if isinstance(item, Register)
    }

    assert {named[register] for register in maybe_unassigned(kernel.program)} == names


def test_a_long_launch_is_compiled_while_it_is_followed(both, monkeypatch):
    text = planted_mistakes.text_of("sum")
    monkeypatch.setattr(
        CompiledProgram, "is_worthwhile_after", lambda self, more: self.interpreted_instructions + more >= 5
    )
    run, _ = launches(text, "sum", "all", engine="auto")()
    assert (run.verdict, run.engine) == ("clean", "compiled")

    broken = planted_mistakes.text_of("sum", "sync", "")
    kinds = {finding.kind for finding in both(launches(broken, "sum", "all", engine="auto")).findings}
    assert kinds == {"race"}


def judge_orders(both, seed):
    """Launch the kernel of a seed with the screen and without; return the run."""
    kernel = wf.ptx.load(wgmma_orders.text_of(seed))["k"]

    def launch():
        arrays = [np.zeros(4096, np.uint8), np.zeros(256, np.uint32)]
        return kernel.launch(1, 256, arrays, checks="all", engine="compiled", level="ptx"), arrays

    return both(launch)


@pytest.mark.slow
def test_random_orders_of_wgmma_are_judged_the_same(both):
    assert {getattr(judge_orders(both, seed), "verdict", "") for seed in range(30)} == {"clean", "findings"}


@pytest.mark.slow
@pytest.mark.parametrize("first", [1000])
def test_a_hundred_orders_of_wgmma_are_judged_the_same(both, first):
    verdicts = {getattr(judge_orders(both, seed), "verdict", "") for seed in range(first, first + 100)}
    assert verdicts >= {"clean", "findings"}


def test_orders_of_wgmma_are_proven_in_compiled_code(monkeypatch):
    monkeypatch.setattr(InstrumentedLaunch, "interpret", None)  # it would raise
    for seed in (1, 4, 18, 21, 22, 29):
        assert judge_orders(lambda launch: launch()[0], seed).verdict == "clean"
