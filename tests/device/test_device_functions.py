"""Functions that kernels call: the driver's printf, malloc, free and assert, and functions of another file."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from device.conditions import is_found, needs_nvcc, needs_nvdisasm, needs_stand_ins
from device.driver_api import run
from warpfrag.cuda_tools import find_tool
from warpfrag.device.launch_log import read_log
from warpfrag.errors import PtxError

needs_nvlink = pytest.mark.skipif(not is_found("nvlink"), reason="needs nvlink, of the extra assembler")
pytestmark = [*needs_stand_ins, needs_nvcc, needs_nvdisasm]
SOURCE = Path(__file__).with_name("functions.cu")
THREADS = np.arange(32, dtype=np.int32)
VALUES = np.arange(4)[THREADS % 4] + 1
CALLED = np.where(THREADS % 2, np.where(VALUES > 2, 2 * VALUES + 2, VALUES) + THREADS, 0).tolist()


def compile_source(output: Path, *options: str) -> Path:
    """Compile the source with nvcc."""
    command = [find_tool("nvcc").path, "-arch=sm_90", "-lineinfo", *options, SOURCE, "-o", output]
    subprocess.run(command, check=True, capture_output=True)
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the cubin of the kernels, and relocatable PTX and cubins of both files."""
    folder = tmp_path_factory.mktemp("functions")
    compile_source(folder / "whole.cubin", "-cubin")
    for name in ("LINKED", "DEFINED"):
        compile_source(folder / f"{name}.ptx", "-ptx", "-rdc=true", f"-D{name}")
        compile_source(folder / f"{name}.cubin", "-cubin", "-rdc=true", f"-D{name}")
    return folder


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_machine_code_prints_allocates_and_asserts(engine, folder):
    module = wf.sass.load(folder / "whole.cubin")
    out = np.zeros(32, np.int32)
    run = module["print"].launch(1, 32, [out], engine=engine)
    assert run.printed == "thread 3 of one block: 1.50 %\nthread 19 of one block: 9.50 %\n"
    assert out.tolist() == THREADS.tolist()
    module["allocate"].launch(1, 32, [out], engine=engine)
    assert out.tolist() == (THREADS + 1).tolist()
    module["check"].launch(1, 32, [out, np.int32(32)], engine=engine)
    assert out.tolist() == [5] * 32
    with pytest.raises(PtxError, match=r"functions.cu:2\d: .*thread \(30, 0, 0\).*assertion `threadIdx.x < limit`"):
        module["check"].launch(1, 32, [out, np.int32(30)], engine=engine)


@needs_nvlink
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_a_function_of_another_file_is_called(engine, folder):
    linked = folder / "linked.cubin"
    inputs = [folder / "LINKED.cubin", folder / "DEFINED.cubin"]
    subprocess.run([find_tool("nvlink").path, "-arch=sm_90", *inputs, "-o", linked], check=True)
    out = np.zeros(32, np.int32)
    module = wf.sass.load(linked)
    run = module["call"].launch(1, 32, [out], engine=engine)
    assert out.tolist() == CALLED
    assert not run.exact, "a call was not compared with a GPU"
    sources = {str(inst.source).rpartition(":")[2] for inst in module["call"].instructions if inst.address >= 1 << 28}
    assert sources - {"None"}, "the instructions of the function have source lines"


@pytest.mark.parametrize("fast", [False, True])
def test_a_program_gets_the_text_and_the_error_of_an_assertion(fast, folder):
    program = run(
        """
        start()
        out = allocate(128)
        module = load(open("whole.cubin", "rb").read())
        for name, *more in (("print",), ("allocate",), ("check", C.c_int(30))):
            print(name, launch(function(module, name), (1,), (32,), out, *more), flush=True)
        print(launch(function(module, "print"), (1,), (32,), out))
        """,
        folder,
        fast=fast,
    )
    assert program.stdout.splitlines() == [
        "thread 3 of one block: 1.50 %", "thread 19 of one block: 9.50 %", "print 0", "allocate 0", "check 710", "710",
    ], program.stderr  # fmt: skip
    assert "assertion `threadIdx.x < limit` failed" in program.stderr
    launches = read_log(folder / "launches.jsonl")["launches"]
    assert not any(launch["exact"] for launch in launches), "calls were not compared with a GPU"
    assert any("CALL.ABS.NOINC" in reason for reason in launches[-3]["reasons"])


@needs_nvlink
@pytest.mark.parametrize("suffix", ["ptx", "cubin"])
def test_several_inputs_are_linked(suffix, folder):
    category = {"cubin": 0, "ptx": 1}[suffix]
    program = run(
        f"""
        start()
        def linked(*names):
            link, image, size = C.c_void_p(), C.c_void_p(), C.c_size_t()
            ok(cu.cuLinkCreate_v2(0, None, None, C.byref(link)))
            for name in names[:1]:
                data = open(name, "rb").read() + bytes(1)
                ok(cu.cuLinkAddData_v2(link, {category}, data, C.c_size_t(len(data)), name.encode(), 0, None, None))
            for name in names[1:]:
                ok(cu.cuLinkAddFile_v2(link, {category}, name.encode(), 0, None, None))
            assert cu.cuLinkAddFile_v2(link, {category}, b"missing", 0, None, None) == 301
            return cu.cuLinkComplete(link, C.byref(image), C.byref(size)), image
        error, image = linked("LINKED.{suffix}", "DEFINED.{suffix}")
        ok(error)
        out = allocate(128)
        ok(cu.cuMemsetD8_v2(out, 0, C.c_size_t(128)))
        ok(launch(function(load(image), "call"), (1,), (32,), out))
        print(take(out, C.c_int * 32))
        print(linked("LINKED.{suffix}", "LINKED.{suffix}")[0])
        """,
        folder,
    )
    assert program.stdout.splitlines() == [str(CALLED), "200"], program.stderr
    assert "cuLinkComplete" in program.stderr
    assert "Multiple definition" in program.stderr
