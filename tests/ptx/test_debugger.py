"""Breakpoints, steps, watchpoints, and registers and shared memory as matrices."""

import re
from functools import partial

import numpy as np
import pytest

import warpfrag as wf
from ptx.debugged import captured, hopper

pytestmark = pytest.mark.one_engine  # a debugger drives the reference engine

LOOP = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<3>;
.shared .align 16 .b8 tile[512];
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
mov.u32 %r2, 0;
mov.u32 %r5, tile;
LOOP:
add.u32 %r2, %r2, 1;
mad.lo.u32 %r3, %r2, 100, %r1;
shl.b32 %r4, %r1, 2;
add.u32 %r6, %r5, %r4;
st.shared.u32 [%r6], %r3;
setp.lt.u32 %p1, %r2, 5;
@%p1 bra LOOP;
setp.lt.u32 %p2, %r1, 40;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd3, %rd1, %rd2;
@%p2 st.global.u32 [%rd3], %r3;
ret;
}"""


def loop(**options):
    out = np.zeros((2, 32), np.uint32)
    return wf.ptx.load(LOOP)["k"].debug(1, 64, [out], **options), out


def test_a_breakpoint_stops_before_its_line_at_every_visit():
    debugger, out = loop()
    with debugger as d:
        point = d.break_at(line=14)
        seen = []
        while d.run() is not None:
            seen.append(int(d.register("%r2")[0]))
            assert str(d.stop) == "breakpoint at line 14, block (0, 0, 0), warp 0: mad.lo.u32 %r3, %r2, 100, %r1"
            assert [warp for _, warp in d.stop.warps] == [0, 1]  # in step, so they stop together
        assert seen == [1, 2, 3, 4, 5]
        assert point.hits == 10
    assert out.reshape(-1)[:40].tolist() == [500 + lane for lane in range(40)]
    assert not out.reshape(-1)[40:].any()


def test_conditions_visits_and_limits():
    with loop()[0] as d:
        d.break_at(line=14, condition=lambda d: d.register("%r2")[3] == 4)
        assert d.run().warps == (((0, 0, 0), 0), ((0, 0, 0), 1))
        assert d.register("%r2").tolist() == [4] * 32
        assert d.run() is None
    with loop()[0] as d:
        d.break_at(opcode="mad", warp=1, condition=lambda d: d.visit == 3)
        assert d.run().warps == (((0, 0, 0), 1),)
        assert d.register("%r2")[0] == 4
        assert d.stop.visit == 3
    with loop()[0] as d:
        point = d.break_at(opcode="st.global")
        assert (d.run().warp, d.stop.lanes) == (0, 0xFFFFFFFF)
        assert d.focus(warp=1) == ((0, 0, 0), 1)
        assert d.register("%r1").tolist() == [*range(32, 64)]
        d.delete(point)
        assert d.run() is None
        assert d.is_finished


def test_steps_go_through_a_whole_warp_in_the_order_of_its_text():
    with loop()[0] as d:
        lines = []
        while d.step() is not None:
            assert d.stop.reason == "step"
            lines.append(d.stop.line)
        body = [13, 14, 15, 16, 17, 18, 19]
        assert lines == [8, 9, 10, 11, *(body * 5), 20, 21, 22, 23, 24]
    with loop()[0] as d:
        assert d.step(6).line == 14
        assert d.instruction.name == "mad.lo.u32"


def test_a_watchpoint_stops_behind_the_access_with_its_threads():
    debugger, out = loop()
    with debugger as d:
        point = d.watch(out, (1, 3))
        stop = d.run()
        assert (stop.line, stop.threads) == (23, (((0, 0, 0), 1, 3),))
        assert (stop.old, int.from_bytes(stop.new, "little")) == (bytes(4), 535)
        assert out[1, 3] == 535
        assert d.run() is None
        assert point.hits == 1
    with loop()[0] as d:
        point = d.watch("out", (1, 3))
        assert (d.run().line, point.size) == (23, 4)
        with pytest.raises(wf.errors.InvalidOperand, match=r"expected an array argument \(out\), got 'c'"):
            d.watch("c", (1, 3))
    with loop()[0] as d:
        d.watch(shared=d.shared_end - 512 + 4 * 33)
        values = []
        while (stop := d.run()) is not None:
            assert (stop.line, str(stop.threads[0])) == (17, "block (0, 0, 0), warp 1, lane 1")
            values.append(int.from_bytes(stop.new, "little"))
            tile = d.shared.as_matrix(wf.Memory(pitch=128), (2, 32), "s32", start=d.shared.start)
            assert tile[1].tolist() == [values[-1] - 1 + lane for lane in range(32)]
        assert values == [133, 233, 333, 433, 533]
    with loop()[0] as d:
        point = d.watch(shared=d.shared_end - 4, access="read")
        assert d.run() is None
        assert point.hits == 0


def test_operands_of_mma_are_the_matrices_that_it_multiplies():
    kernel, launch, arrays = captured("t_matmul_f16_sm80")
    with kernel.debug(**launch) as d:
        d.break_at(opcode="mma", block=(1, 1), warp=3)
        stop = d.run()
        assert (stop.block, stop.warp, str(stop.source)) == ((1, 1, 0), 3, "tri.py:27")
        assert d.operands() == ("d", "a", "b", "c")
        a, b, c = (d.matrix(role) for role in "abc")
        line, mma = stop.line, wf.get(d.instruction.name)
        words = np.stack([d.registers()[item.name] for item in d.instruction.sources[0].items], axis=-1)
        assert (mma.a.unpack(words) == a).all()
        assert not c.any()
        d.step()
        assert (d.matrix("D", line=line) == mma(a, b, arch="sm_90")).all()
        # the tile of the block: rows 64 to 127 of A, of which this warp has 16 from some row on
        whole, right = arrays["in0"].view(np.float16).reshape(128, 96), arrays["in1"].view(np.float16).reshape(96, 128)
        assert any((whole[row : row + 16, :16] == a).all() for row in range(64, 128, 16))
        assert any((right[:16, col : col + 8] == b).all() for col in range(64, 128, 8))


def test_ldmatrix_loads_what_lies_in_the_shared_tile():
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    with kernel.debug(**launch) as d:
        d.break_at(opcode="ldmatrix")
        line = d.run().line
        addresses = d.register(d.instruction.sources[0].base.name) + np.uint32(d.instruction.sources[0].offset)
        d.step()
        loaded = d.matrix(d.operands(line)[0], line=line, raw=True)
        assert loaded.shape == (4, 8, 8)
        for matrix in range(4):
            places = [int(at) - d.shared.start for at in addresses[matrix * 8 :][:8]]
            rows = [d.shared.bytes[place : place + 16].view(np.uint16) for place in places]
            assert (np.stack(rows) == loaded[matrix]).all()


def test_operands_of_wgmma_lie_behind_its_descriptors():
    kernel, launch, maps = hopper("mm_host")
    with kernel.debug(**launch) as d:
        d.break_at(opcode="wgmma.mma_async", block=(1, 1), warp=4)
        stop = d.run()
        assert (stop.block, stop.warp) == ((1, 1, 0), 4)
        left, right = maps[0].array[128:, :], maps[1].array[64:, :]
        a, b = d.matrix("a"), d.matrix("b")
        assert (a == left[64:, :16]).all()  # the second warpgroup has the lower half
        assert (b == right[:, :16].T).all()
        w = wf.get(d.instruction.name)
        descriptor = wf.Descriptor.decode(int(d.register(d.instruction.sources[1].name)[0]))
        assert (d.shared.as_matrix(descriptor, operand=w.b) == b).all()
        box = d.shared.as_matrix(maps[1].memory(descriptor.start), maps[1].fields.box_shape[::-1], "f16")
        assert (box == right[:, :64]).all()
        line = stop.line
        d.step()
        assert (d.matrix("d", line=line) == w(a, b, arch="sm_90")).all()


def test_what_cannot_be_is_refused_with_what_is_there():
    debugger, out = loop()
    with debugger as d:
        for call, words in (
            (lambda: d.break_at(line=12), "at line 12; the nearest lines with instructions are 10, 11, 13, 14; its"),
            (lambda: d.break_at(opcode="mma"), "no instruction at opcode mma"),
            (lambda: d.watch(np.zeros(3)), "an array among the arguments"),
            (lambda: d.watch(out, 7), "expected an index of an array of shape"),
            (d.watch, "an array argument or shared="),
            (lambda: d.watch(shared=0), r"4 bytes at 0x0 are not in shared memory \(0x400 to 0x600\)"),
            (lambda: d.watch(out, access="x"), "access to be write, read or any"),
            (d.registers, "nothing has run yet"),
            (lambda: d.delete(wf.ptx.Breakpoint()), "a breakpoint or watchpoint of this debugger"),
        ):
            with pytest.raises(wf.errors.InvalidOperand, match=words):
                call()
        d.step()
        for call, words in (
            (lambda: d.matrix("a"), "line 8: .* is not a matrix instruction"),
            (lambda: d.matrix("a", line=14), "line 14 has no matrix instruction; lines with one: none"),
            (lambda: d.register("%x"), "a PTX register of k, such as .*, got '%x'"),
            (lambda: d.focus(warp=2), "a warp below 2, got 2"),
            (lambda: d.focus(block=3), r"a running block, \(0, 0, 0\) to \(0, 0, 0\); got \(3, 0, 0\)"),
            (lambda: d.focus(block="x"), "one to three indices"),
            (lambda: d.shared.as_matrix(3), "a Memory or a Descriptor, got 3"),
            (lambda: d.shared.as_matrix(wf.Memory()), "needs shape="),
            (lambda: d.shared.as_matrix(wf.Memory(), (2, 2), "f15"), "a number format"),
            (lambda: d.shared.as_matrix(wf.Descriptor()), "needs operand="),
        ):
            with pytest.raises(wf.errors.InvalidOperand, match=words):
                call()
    with pytest.raises(wf.errors.InvalidOperand, match="has ended"):
        debugger.run()


def _called(call, right, key, value):
    return call(**right | {key: value})


def test_only_our_errors_come_out():
    hostile = [
        True,
        -1,
        2**70,
        1.5,
        float("nan"),
        1j,
        "x",
        b"a",
        [],
        [[1], [2]],
        {},
        object(),
        len,
        np.zeros((2, 3)),
        None,
    ]
    debugger, out = loop()
    with debugger as d:
        d.step()
        words = [
            (d.break_at, {}, ("line", "opcode", "source", "block", "warp")),
            (d.watch, {"array": out}, ("index", "shared", "access", "size")),
            (d.focus, {}, ("block", "warp")),
            (d.matrix, {"role": "a"}, ("role", "line", "warp")),
            (d.shared.as_matrix, {"memory": wf.Memory()}, ("memory", "shape")),
        ]
        calls = [partial(_called, call, right, key) for call, right, keys in words for key in keys]
        calls += [d.watch, d.register, d.step, d.delete]
        refused = 0
        for call in calls:
            for value in hostile:
                try:
                    call(value)
                except wf.WarpfragError as error:
                    refused += bool(str(error))
        assert refused > len(calls) * len(hostile) // 2


def test_an_explanation_after_a_watchpoint_is_that_of_the_next_instruction():
    debugger, out = loop()
    with debugger as d:
        d.watch(out, (1, 2))
        stop = d.run()
        assert re.search(r"^watchpoint at .* st.global.* which changed 0x00000000 to 0x[0-9a-f]{8}$", repr(stop))
        following = d.instruction
        assert following.line != stop.line
        text = repr(d.explain())
        assert f"step at line {following.line}" in text
        assert "changed" not in text


def test_an_explanation_names_the_elements_of_arguments():
    values, out = np.arange(6, dtype=np.float32).reshape(2, 3) / 4, np.zeros(6, np.float32)
    text = """
        .version 8.0
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 x, .param .u64 out)
        {
            .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .pred %p;
            ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [out];
            mov.u32 %r1, %tid.x;
            setp.lt.u32 %p, %r1, 6;
            mul.wide.u32 %rd3, %r1, 4;
            add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
            @%p ld.global.b32 %r2, [%rd4];
            @%p st.global.b32 [%rd5], %r2;
            ret;
        }"""
    with wf.ptx.load(text)["k"].debug(1, 32, [values, out]) as d:
        d.break_at(opcode="ld.global.b32")
        d.run()
        assert "[%rd4] = x[0, 0] ... x[1, 2], %r2 (after) = [0.   0.25 ... " in repr(d.explain())
        assert "[%rd5] = out[0] ... out[5], %r2 = [0.   0.25 ... " in repr(d.explain())
    assert out.tolist() == values.reshape(-1).tolist()


def test_an_explanation_shows_values():
    with loop()[0] as d:
        d.break_at(line=14)
        d.run()
        text = repr(d.explain())
        assert "%r2 = [1 1 ... 1 1], " in text
        assert text.endswith("%r3 (after) = [100 101 ... 130 131]>")
        with pytest.raises(wf.errors.InvalidOperand, match=r"explain\(\) executes the next instruction and shows its"):
            d.register("total")
