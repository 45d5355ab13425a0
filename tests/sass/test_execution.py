"""Machine code in both engines: kernels from PTX through ptxas, against NumPy and what an H200 left."""

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
from warpfrag.errors import CompilationFailed, InvalidOperand, PtxError
from warpfrag.machine.launch.launch_arguments import RawArguments
from warpfrag.sass.cubin import Cubin
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


def test_raw_parameters_and_memory_at_given_addresses(tmp_path):
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 value) {{{INDEX}
    ld.param.u64 %d0, [out]; ld.param.u32 %r4, [value]; mul.wide.u32 %at, %r0, 4; add.u64 %d0, %d0, %at;
    add.u32 %r4, %r4, %r0; st.global.b32 [%d0], %r4; ret; }}"""
    kernel = assemble(text, tmp_path)["k"]
    out, address = np.zeros(32, np.uint32), 0x7F76_ABE0_0000
    params = address.to_bytes(8, "little") + (7).to_bytes(4, "little")
    kernel.launch(1, 32, RawArguments(params, {address: out}), engine="reference")
    assert out.tolist() == list(range(7, 39))
    with pytest.raises(InvalidOperand, match="expected 12 parameter bytes, got 8"):
        kernel.launch(1, 32, RawArguments(params[:8], {address: out}))


def test_an_unknown_instruction_is_an_error_only_if_it_runs(tmp_path):
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 value) {{{INDEX} .reg .b32 %t<5>;
    ld.param.u64 %d0, [out]; ld.param.u32 %r4, [value]; setp.eq.u32 %p0, %r4, 0; @%p0 bra DONE;
    ld.param.u64 %d1, [out]; tex.1d.v4.s32.s32 {{%t0, %t1, %t2, %t3}}, [%d1, {{%r4}}]; st.global.b32 [%d0+4], %t0;
    DONE: st.global.b32 [%d0], 5; ret; }}"""
    kernel = assemble(text, tmp_path)["k"]
    out = np.zeros(2, np.uint32)
    kernel.launch(1, 1, [out, np.uint32(0)], engine="reference")
    assert out[0] == 5
    with pytest.raises(PtxError, match="is not modelled: TLD is not an opcode of the table"):
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
        assert not run.exact
        assert "machine code was executed" in run.inexact[0]
    assert [inst.address for inst in module.instructions["twice"][:3]] == [0, 16, 32]


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
    with pytest.raises(InvalidOperand, match="linked from 2"):
        linked.assemble()
    monkeypatch.setenv("WARPFRAG_LEVEL", "ptx")
    with pytest.raises(InvalidOperand, match="WARPFRAG_LEVEL=ptx"):
        wf.ptx.load(TWICE).assemble()
