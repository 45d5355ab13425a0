"""Hostile and unusual PTX: faults have a line, a thread and an address, and both engines end in the same way."""

# ruff: noqa: E501 (a kernel is a line)
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import warpfrag as wf
from ptx.hostile import HEAD, entry, kernels
from ptx.mutations import failure, mutated
from warpfrag.machine.ir.actions import Branch, DirectCall, Return
from warpfrag.machine.ir.program import registers_of
from warpfrag.machine.jit.register_flow import is_written_whole, live_after, reads_of
from warpfrag.machine.launch.grid import Waves
from warpfrag.machine.ops.opcode_lookup import ROWS
from warpfrag.ptx.lowering.passes import lower
from warpfrag.ptx.reader.parser import parse

SAMPLE = [*range(0, len(kernels()), 61)]


@pytest.mark.one_engine
@pytest.mark.parametrize("number", SAMPLE)
def test_hostile_kernels_end_alike_in_both_engines(number):
    kernel = kernels()[number]

    assert failure(kernel.text, kernel.checks, kernel.limit) == ""


@pytest.mark.slow
@pytest.mark.one_engine
@pytest.mark.parametrize("seed", range(1_000_000, 1_000_010))
def test_mutated_files_end_alike_in_both_engines(seed):
    assert failure(mutated(seed), ((), ("memory", "barriers"))[seed % 2]) == ""


@pytest.mark.one_engine
def test_there_are_many_hostile_kernels_and_no_two_alike():
    assert len({kernel.text for kernel in kernels()}) >= 500
    assert mutated(7) == mutated(7) != mutated(8)


# --- addresses

OUTSIDE = {  # accesses, and the address that the message has
    "ld.local.u32 %r1, [loc - 4];": "4 bytes at 0xfffffffffffffffc are outside local memory",
    "st.local.u64 [loc - 8], %d0;": "8 bytes at 0xfffffffffffffff8 are outside local memory",
    "mov.u64 %d1, -16; ld.local.v4.u32 {%r1, %r2, %r3, %r4}, [%d1];": "16 bytes at 0xfffffffffffffff0 are outside local",
    "mov.u64 %d1, -4; ld.shared.u32 %r1, [%d1];": "4 bytes at 0xfffffffffffffffc are outside shared memory",
    "mov.u64 %d1, -4; atom.shared.add.u32 %r1, [%d1], 1;": "4 bytes at 0xfffffffffffffffc are outside shared memory",
    "mov.u64 %d1, -8; red.shared.add.u64 [%d1], 1;": "8 bytes at 0xfffffffffffffff8 are outside shared memory",
    "mov.u64 %d1, -4; st.shared.u32 [%d1], 1;": "4 bytes at 0xfffffffffffffffc are outside shared memory",
    "ld.param.u32 %r1, [out - 4];": "4 bytes at 0xfffffffffffffffc are outside param memory",
    "mov.u64 %d1, -16; cp.async.ca.shared.global [%d1], [%d0], 16;": "16 bytes at 0xfffffffffffffff0 are outside shared",
    "mov.u64 %d1, -8; mbarrier.init.shared.b64 [%d1], 1;": "8 bytes at 0xfffffffffffffff8 are outside shared memory",
    "cvta.local.u64 %d1, 0; ld.u32 %r1, [%d1 - 4];": "4 bytes at 0xfffffffffffc are outside shared memory",
    "cvta.shared.u64 %d1, 0; st.u32 [%d1 + 1020], 5;": "4 bytes at 0x3fc are outside shared memory",
    "cvta.local.u64 %d1, 0; atom.add.u32 %r1, [%d1 + 65536], 1;": "4 bytes at 0x10000 are outside local memory",
}
WHOLE_WARP = {
    "mov.u64 %d1, -16; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%d1];": "0xfffffffffffffff0 are outside shared",
    "mov.u64 %d1, -16; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%d1], {%r1};": "0xfffffffffffffff0 are outside shared",
    "mov.u64 %d1, -64; wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1];":
        "0xffffffffffffffc0 are outside shared",
    "add.u64 %d1, %d0, 0x2000000000000000; wmma.load.c.sync.aligned.row.m16n16k16.global.f32"
    " {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1];": "outside every allocation",
}  # fmt: skip


def launch(body, before="", **options):
    out = np.arange(256, dtype=np.uint32)
    return wf.ptx.load(entry(body, before))["k"].launch(1, 64, [out], **options), out


@pytest.mark.parametrize(("body", "message"), [*OUTSIDE.items(), *WHOLE_WARP.items()])
def test_an_address_below_its_memory_is_a_fault(body, message):
    with pytest.raises(wf.ptx.PtxError, match=rf"by thread \(0, 0, 0\) of block \(0, 0, 0\): .*{message}") as caught:
        launch(body)

    assert caught.value.line == 11


@pytest.mark.parametrize(("body", "message"), OUTSIDE.items())
def test_an_address_below_its_memory_is_a_finding_of_every_thread(body, message):
    if "mbarrier" in body:
        pytest.skip("ends the launch")
    run, _ = launch(body, checks=("memory",))

    (finding,) = run.findings
    assert (finding.check, finding.line) == ("memory", 11)
    assert message in finding.text
    assert finding.count == 64


def test_the_fault_of_the_first_warp_is_reported():
    body = "setp.lt.u32 %p2, %r0, 32; selp.b64 %d1, -4, 1025, %p2; ld.shared.u32 %r1, [%d1];"
    with pytest.raises(wf.ptx.PtxError, match=r"thread \(0, 0, 0\) .*0xfffffffffffffffc are outside shared"):
        launch(body)


def test_a_store_to_parameters_that_no_lane_makes_is_none():
    run, _ = launch("setp.gt.u32 %p2, %r0, 99; mov.u64 %d2, out; @%p2 st.param.u32 [%d2], 1;")

    assert run.findings == []


def test_thousands_of_faults_are_collected():
    run = wf.ptx.load(entry("ld.local.u32 %r1, [loc - 4];"))["k"].launch(
        64, 64, [np.zeros(64, np.uint32)], checks=["memory"]
    )

    assert run.findings[0].count == 64 * 64


# --- what ended in an exception that is not ours, or in silence

FORMAT = ".global .b8 form[] = {37, 57, 57, 57, 57, 57, 57, 57, 57, 57, 100, 0};"  # %999999999d
PRINTF = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);"
REFUSED = [
    ("call again;", ".func again () { call again; ret; }", "line 4: calls are nested more than 1024 deep"),
    ("ld.param.u64 %d1, %d0;", "", "line 11: expected one operand in brackets, got ld.param.u64 %d1, %d0"),
    ("ld.global.u64 %r1, [%d0];", "", "line 11: expected a register of at least 64 bits"),
    ("ld.global.v4.u32 {%r1, %r2}, [%d0];", "", "line 11: expected 4 elements in the vector of ld.global.v4.u32"),
    ("and.pred %p2, %tid.x, %p0;", "", "line 11: expected a source of .pred"),
    ("add.s32 %r1, [%d0], 5;", "", "line 11: expected no operand in brackets"),
    ("mov.b32 {%r1, %r2, %r3}, %r0;", "", "line 11: expected vector elements with 32 bits in total"),
    ("bar.red.popc.u32 %r1, 0, %r2;", "", "line 11: expected a predicate as the last source"),
    (f"mov.u32 %r1, {'1' * 5000};", "", "line 11: expected an integer of at most 64 bits"),
    ("mov.u64 %d1, form; call (%r1), vprintf, (%d1, %d0);", f"{PRINTF}{FORMAT}",
     "line 11: printf of '%999999999d': expected a width and a precision of at most 4096, got '999999999'"),
    ("call (%r1), vprintf, (%d0);", PRINTF, "line 11: expected operands of 8, 8 bytes in the call"),
    ("alloca.u64 %d1, 1099511627776;", "",
     r"line 11: alloca.u64 by thread \(0, 0, 0\) .*: 1099511627776 bytes do not fit on the stack"),
    ("@%p1 alloca.u64 %d1, -16;", "", r"alloca.u64 by thread \(3, 0, 0\) .*: 18446744073709551600 bytes do not fit"),
    ("alloca.u64 %d1, 8, 3;", "", "line 11: expected an alignment that is a power of two"),
    ("st.const.u32 [c], 1;", ".const .u32 c = 5;", "line 11: st.const.u32 is not modelled: st does not take .const"),
    ("mov.u64 %d1, c; st.global.u32 [%d1], 1;", ".const .u32 c = 5;", "line 11: .* a store to c at .*, which is read-only"),
    ("cvta.const.u64 %d1, c; atom.add.u32 %r1, [%d1], 1;", ".const .u32 c = 5;", "line 11: .*which is read-only"),
    ("", ".entry k() { ret; }", "line 5: 'k' has a second body; the first is at line 4"),
    ("", ".global .align 3 .u32 x;", "line 4: expected an alignment that is a power of two up to 1048576, got 3"),
    ("", ".global .u32 x; .global .u32 x;", "line 4: duplicate declaration of 'x'"),
    ("", ".global .b8 x[4611686018427387904];", "line 4: expected at most 1073741824 bytes of global memory"),
    (".local .b8 x[524288];", "", "line 11: expected at most 524288 bytes of local memory, got 524352 with 'x'"),
    (".reg .b32 %s<4>; mov.u32 %s4, 1;", "", "line 11: expected a declared name, got '%s4'"),
    (".reg .b32 %r<4>;", "", "line 11: duplicate declaration of '%r'"),
    ("{ .param .b32 x; call f, (x - 4); }", ".func f (.param .b32 x) { ret; }", "line 11: expected operands of 4 bytes"),
    ("call f, (%r1);", ".func f (.param .align 4 .b8 x[24]) { ret; }", "line 11: expected operands of 24 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "before", "message"), REFUSED)
def test_what_no_gpu_runs_is_refused_with_its_line(body, before, message):
    with pytest.raises(wf.ptx.PtxError, match=message):
        launch(body, before)


@pytest.mark.one_engine
@pytest.mark.parametrize("types", ["", ".s16", ".f32", ".global.bf16", ".s16.s16.s16"])
def test_refused_instructions_that_do_not_run_are_no_error(types):
    lines = {number: f"{opcode}{types} %r1, %r1;" for number, opcode in enumerate(sorted(ROWS), 12)}
    count = len(lines)
    while True:
        body = "\n".join(lines.get(number, "") for number in range(12, 12 + count))
        try:
            kernel = wf.ptx.load(entry(f"exit;\n{body}\nmul.wide.s16 %r1, %h0, %h0; neg.f32 %r1, %r1;"))["k"]
            break
        except wf.ptx.PtxError as error:  # some are refused when a kernel is read
            del lines[error.line]
    run = kernel.launch(1, 32, [np.zeros(1, np.uint32)])

    assert run.counts.instructions > 0
    assert len(lines) > count // 2


def test_a_function_without_parameters_may_call_itself():
    before = """.global .u32 left = 5; .func again () { .reg .b32 a; .reg .pred p; atom.global.add.u32 a, [left], -1;
      setp.lt.s32 p, a, 2; @p ret; call again; ret; } .func bare () { call bare2; ret; } .func bare2 () { ret; }"""
    _, out = launch("@%p1 call again; call bare; ld.global.u32 %r1, [left];", before)

    assert out[0] == 0


def test_printf_prints_as_c_does():
    form = b"%-5d|%+d|% d|%05d|%.3d|%5.1f|%c|%%|%x|%5s|%-*d|%.*f\0"
    data = ", ".join(map(str, form))
    numbers = [-3, 4, 5, 42, 7, None, 65, 255, None, -6, 9, -1]
    lines, at = [], 0
    for number in numbers:
        at = -(-at // 8) * 8 if number is None else at
        code = {5: "0x4009000000000000", 8: "%d1"}.get(len(lines), number)
        lines.append(f"st.local.b{64 if number is None else 32} [big + {at}], {code};")
        at += 8 if number is None else 4
    at = -(-at // 8) * 8
    lines.append(f"st.local.b64 [big + {at}], 0x4004000000000000;")
    body = f""".local .align 16 .b8 big[128]; mov.u64 %d1, form; {" ".join(lines)}
      cvta.local.u64 %d2, big; setp.eq.u32 %p2, %r0, 0; @%p2 call (%r1), vprintf, (%d1, %d2);"""
    run, _ = launch(body, f"{PRINTF}.global .b8 form[] = {{{data}}};")

    text = form[:-1].decode()
    assert run.printed == f"-3   |+4| 5|00042|007|  3.1|A|%|ff|{text}|9     |2.500000"


# --- resources

MEASURE = """
    import resource, sys
    import warpfrag as wf
    TEXT = '''.version 8.0
    .target sm_80
    .address_size 64
    .entry k() { .reg .b32 %r<3>; A: add.s32 %r1, %r1, 1; bra A; }
    .entry e() { ret; }'''
    module = wf.ptx.load(TEXT)
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    def launch(grid, **options):
        for entry in module:
            try:
                module[entry].launch(grid, 32, options=wf.ptx.LaunchOptions(limit=1000), engine=sys.argv[1], **options)
            except wf.WarpfragError as error:
                assert "the launch reached its limit of 1000 warp instructions" in str(error)
                assert grid != 1 or entry == "k"
            else:
                assert grid == 1
    launch(1)
    before = peak()
    launch(2**31 - 1)
    launch(2**31 - 1, seed=3)
    launch((2**31 - 1, 65535, 65535), seed=3)
    print(peak() - before)
"""


def test_a_grid_of_two_billion_blocks_takes_no_memory(engine):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), engine], capture_output=True, text=True, check=True
    )

    assert int(done.stdout) < 100_000_000


@pytest.mark.slow
@pytest.mark.one_engine
def test_memory_grows_with_registers_and_instructions_not_with_their_product():
    import tracemalloc

    def peak(count):
        body = "\n".join(f"@%p bra L{at}; add.s32 %r{at + 1}, %r{at * 7 % count}, 1; L{at}:" for at in range(count))
        text = f"{HEAD}.entry k() {{ .reg .pred %p; .reg .b32 %r<{count + 1}>; {body} }}"
        program = lower(parse(text), "k")
        tracemalloc.start()
        live = sum(1 for _ in live_after(program))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert live == len(program.instructions)
        return most

    assert peak(3200) < 6 * peak(800)


@pytest.mark.one_engine
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097])
def test_a_seed_permutes_all_blocks(size):
    orders = [Waves((size, 1, 1), size, seed).take()[1] for seed in range(8)]

    assert all(sorted(order) == [(x, 0, 0) for x in range(size)] for order in orders)
    assert len(set(map(tuple, orders))) > (1 if size > 2 else 0)
    assert orders[3] == Waves((size, 1, 1), size, 3).take()[1]


@pytest.mark.one_engine
def test_a_seed_permutes_the_largest_grid():
    waves = Waves((2**31 - 1, 65535, 65535), 5000, 1)
    blocks = waves.take()[1] + waves.take()[1]

    assert len(set(blocks)) == 10000
    assert all(x < 2**31 - 1 and y < 65535 and z < 65535 for x, y, z in blocks)


def test_a_seed_changes_the_order_in_which_blocks_run():
    before = ".global .u32 count;"
    body = (
        "mov.u32 %r3, %ctaid.x; atom.global.add.u32 %r2, [count], 1; mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %d0;"
    )
    kernel = wf.ptx.load(entry(f"{body} st.global.u32 [%d1 + 4], %r3;", before))["k"]
    orders = []
    for seed in (None, 1, 2, 1):
        out = np.zeros(65, np.uint32)
        kernel.launch(64, 1, [out], seed=seed)
        orders.append(out[1:].tolist())

    assert orders[0] == [*range(64)]
    assert all(sorted(order) == [*range(64)] for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert orders[1] == orders[3]


# --- liveness, as it is defined: step by step, until nothing changes


def live_by_definition(program):
    steps = program.instructions
    before = [set() for _ in range(len(steps) + 1)]
    after = [set() for _ in steps]
    calls = [at for at, step in enumerate(steps) if isinstance(step.action, DirectCall)]
    changed = True
    while changed:
        changed = False
        returned = set().union(*(before[at + 1] | reads_of(steps[at]) for at in calls))
        for at in range(len(steps) - 1, -1, -1):
            step = steps[at]
            passes = step.guard is not None or not isinstance(step.action, Branch | Return)
            live = set(before[at + 1]) if passes else set()
            live = live.union(*(before[target] for target in step.targets))
            after[at] = live | returned if isinstance(step.action, Return) else live
            written = {item.index for result in step.results for item in registers_of(result)}
            live = reads_of(step) | (after[at] - written if is_written_whole(step) else after[at])
            changed = changed or live != before[at]
            before[at] = live
    return after


@pytest.mark.one_engine
@pytest.mark.parametrize("name", ["c_scan_sm80", "t_softmax_sm80", "calls"])
def test_liveness_is_that_of_the_definition(name):
    from ptx.mutations import DATA

    if name == "calls":
        before = ".func (.param .b32 r) f (.param .b32 x) { .reg .b32 a; .reg .pred p; ld.param.b32 a, [x]; setp.eq.s32 p, a, 3;"
        before += " @p ret; add.s32 a, a, 1; st.param.b32 [r], a; ret; }"
        text = entry("A: call (%r2), f, (%r1); @%p0 call (%r3), f, (%r2); setp.lt.s32 %p2, %r3, 9; @%p2 bra A;", before)
    else:
        text = (DATA / f"{name}.ptx").read_text(encoding="utf-8")
    source = parse(text)
    program = lower(source, next(item.name for item in source.functions if item.is_entry))
    expected = live_by_definition(program)
    every = range(len(program.registers))

    count = 0
    for at, live in live_after(program):
        assert {register for register in every if register in live} == expected[at]
        count += 1
    assert count == len(program.instructions) > 15


# --- what load takes for a path


@pytest.mark.one_engine
def test_a_path_may_contain_what_begins_a_module(tmp_path, monkeypatch):
    text = f"{HEAD}.entry k() {{ ret; }}"
    (tmp_path / "a.version.ptx").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert [*wf.ptx.load("a.version.ptx")] == ["k"]
    assert [*wf.ptx.load(text)] == [*wf.ptx.load(text.replace("\n", " "))] == ["k"]
    assert [*wf.ptx.load("/* on one line */ " + text.replace("\n", " "))] == ["k"]
    with pytest.raises(wf.errors.FileError, match=r"b\.version\.ptx"):
        wf.ptx.load("b.version.ptx")
