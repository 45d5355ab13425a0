"""The level of a launch: machine code if PTX can be assembled and runs, else PTX with a reason."""

import pickle

import numpy as np
import pytest

import warpfrag as wf
from oracle import toolkit
from warpfrag.errors import CompilationFailed, InvalidOperand, PtxError, WarpfragError
from warpfrag.ptx import ptx_module
from warpfrag.sass import ptxas

pytestmark = pytest.mark.one_engine
HEAD = ".version 8.0\n.target {target}\n.address_size 64\n"
BODY = """.visible .entry k(.param .u64 out) {{
    .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
    {0}
    st.global.u32 [%d0], %r1; ret; }}"""
DOUBLE = "shl.b32 %r1, %r0, 1;"


def module(body=DOUBLE, target="sm_90", head=""):
    return wf.ptx.load(HEAD.format(target=target) + head + BODY.format(body))


def launch(body=DOUBLE, target="sm_90", size=32, head="", **options):
    out = np.zeros(size, np.uint32)
    run = module(body, target, head)["k"].launch(1, 32, [out], **options)
    return run, out.tolist()


@pytest.fixture(autouse=True)
def _tools():
    toolkit.find_ptxas("sm_90")
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")


@pytest.mark.parametrize("level", ["auto", "sass"])
@pytest.mark.parametrize("checks", [(), "all"])
def test_ptx_is_assembled_and_executed_as_machine_code(level, checks):
    run, out = launch(level=level, checks=checks)

    assert out == list(range(0, 64, 2))
    assert run.basis.startswith("sass sm_90, ptxas 1")
    assert run.basis == module().assemble()["k"].module.basis
    assert not any("PTX" in reason for reason in run.inexact)
    assert run.verdict == ("clean" if checks else None)
    assert ("no findings" if checks else "not checked") in repr(run)


@pytest.mark.parametrize(
    ("reason", "options"),
    [("the level is ptx", {"level": "ptx"}),
     ("compared with a GPU for sm_90 only, and the launch is for sm_80", {"arch": "sm_80", "target": "sm_80"}),
     ("cooperative", {"options": wf.ptx.LaunchOptions(cooperative=True)}),
     ("vprintf", {"head": ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n",
                  "body": "{ .param .b64 p0; .param .b64 p1; .param .b32 q; mov.b32 %r1, 3; setp.ne.u32 %p, %r0, %r0;"
                          " @%p call (q), vprintf, (p0, p1); }".replace("setp", ".reg .pred %p; setp")})],
)  # fmt: skip
def test_ptx_is_executed_for_a_reason(reason, options):
    run, _ = launch(**options)

    assert (run.basis, run.exact) == ("ptx", False)
    assert reason in run.inexact[0]


def test_the_level_must_be_known():
    with pytest.raises(InvalidOperand, match="expected level to be one of auto, sass, ptx, got 'fast'"):
        launch(level="fast")
    cubin = module().assemble()["k"]
    with pytest.raises(InvalidOperand, match="is machine code: expected level auto or sass, got ptx"):
        cubin.launch(1, 32, [np.zeros(32, np.uint32)], level="ptx")


def test_the_environment_chooses_the_level(monkeypatch):
    monkeypatch.setenv("WARPFRAG_LEVEL", "ptx")
    assert launch()[0].basis == "ptx"
    with pytest.raises(InvalidOperand, match="turned off by WARPFRAG_LEVEL=ptx"):
        launch(level="sass")


def test_without_an_assembler_ptx_is_executed(monkeypatch):
    def absent(name, path=None):
        raise wf.errors.MissingExtra(f"{name} is not found")

    monkeypatch.setattr(ptx_module, "find_tool", absent)
    run, out = launch()

    assert out[:3] == [0, 2, 4]
    assert run.basis == "ptx"
    assert "ptxas is not found" in run.inexact[0]
    with pytest.raises(wf.errors.MissingExtra):
        launch(level="sass")


def test_ptx_that_ptxas_rejects_is_executed_with_its_message():
    body = "mov.u32 %r1, 5; { .reg .pred %q; setp.eq.u32 %q, %r0, %r0; @%q bra DONE; st.bogus.u32 [%d0], %r1; DONE: }"
    run, out = launch(body)

    assert out == [5] * 32
    assert "ptxas" in run.inexact[0]
    with pytest.raises(CompilationFailed):
        launch(body, level="sass")


def test_variables_that_the_host_sets_are_read_by_ptx():
    loaded = module("ld.global.u32 %r1, [counter];", head=".visible .global .u32 counter = 7;\n")
    out = np.zeros(32, np.uint32)
    assert loaded["k"].launch(1, 32, [out]).basis.startswith("sass")
    assert out[0] == 7
    loaded.symbols["counter"] = 9
    run = loaded["k"].launch(1, 32, [out])
    assert out[0] == 9
    assert "module variables were set" in run.inexact[0]


def test_an_error_names_the_ptx_line():
    with pytest.raises(PtxError, match=r"line \d+: st.global.u32 by thread \(31, 0, 0\).*argument 0 \(out\)"):
        launch(size=31)


def test_findings_that_stop_a_launch_leave_the_result_of_the_ptx():
    run, out = launch(size=31, checks="memory")

    assert out == list(range(0, 62, 2))
    assert run.verdict == "findings"
    assert "a check found bounds" in run.inexact[0]


def test_machine_code_that_fails_is_replaced_by_ptx_from_the_same_memory(monkeypatch):
    out = np.zeros(32, np.uint32)
    kernel = module("ld.global.u32 %r1, [%d0]; add.u32 %r1, %r1, 1;")["k"]
    machine = kernel.module.machine_kernel("k", "sm_90")
    execute = type(machine)._execute

    def fail(own, *args):
        run = execute(own, *args)
        if own is machine:
            raise PtxError(16, "FANCY is not modelled")
        return run

    monkeypatch.setattr(type(machine), "_execute", fail)
    run = kernel.launch(1, 32, [out])
    assert out.tolist() == [1] * 32  # once, not twice
    assert "the machine code failed" in run.inexact[0]
    assert "FANCY is not modelled" in run.inexact[0]
    with pytest.raises(WarpfragError, match="FANCY"):
        kernel.launch(1, 32, [out], level="sass")
    out[...] = 0
    run = kernel.launch(1, 32, [out], checks="all")
    assert out.tolist() == [1] * 32
    assert run.verdict == "clean"
    assert "FANCY is not modelled" in run.inexact[0]


def test_a_module_is_assembled_once_and_its_cubin_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPFRAG_CACHE_DIR", str(tmp_path))
    calls = []
    run_ptxas = ptxas.run_ptxas
    monkeypatch.setattr(ptxas, "run_ptxas", lambda *args: calls.append(1) or run_ptxas(*args))
    body = "mov.u32 %r1, 48213;"
    loaded = module(body)
    for _ in range(2):
        loaded["k"].launch(1, 32, [np.zeros(32, np.uint32)])
    assert len(calls) == 1
    again = pickle.loads(pickle.dumps(module(body)))  # noqa: S301 (our own)
    assert again["k"].launch(1, 32, [np.zeros(32, np.uint32)]).basis.startswith("sass")
    assert len(calls) == 1
    assert list(tmp_path.glob("cubin/*.cubin"))
