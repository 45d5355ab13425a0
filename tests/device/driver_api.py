"""The driver API through ctypes, in a separate process: `run(source)` executes a program's text."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import warpfrag
from warpfrag.device.virtual_gpu import FOLDER, GpuOptions, libraries

HEAD = """
import ctypes as C
import sys
cu = C.CDLL("libcuda.so.1")

def ok(result):
    assert result == 0, result

def start():
    ok(cu.cuInit(0))
    context = C.c_void_p()
    ok(cu.cuDevicePrimaryCtxRetain(C.byref(context), 0))
    ok(cu.cuCtxSetCurrent(context))
    return context

def allocate(size):
    address = C.c_uint64()
    ok(cu.cuMemAlloc_v2(C.byref(address), C.c_size_t(size)))
    return address

def put(address, data):
    ok(cu.cuMemcpyHtoD_v2(address, data, C.c_size_t(C.sizeof(data))))

def take(address, kind):
    data = kind()
    ok(cu.cuMemcpyDtoH_v2(data, address, C.c_size_t(C.sizeof(data))))
    return list(data)

def load(image):
    module = C.c_void_p()
    ok(cu.cuModuleLoadData(C.byref(module), image))
    return module

def function(module, name):
    handle = C.c_void_p()
    ok(cu.cuModuleGetFunction(C.byref(handle), module, name.encode()))
    return handle

def launch(handle, grid, block, *values, shared=0, stream=None):
    grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    pointers = (C.c_void_p * max(1, len(values)))(*[C.cast(C.byref(value), C.c_void_p) for value in values])
    return cu.cuLaunchKernel(handle, *grid, *block, shared, stream, pointers, None)
"""

ADD = """
.version 8.0
.target sm_90
.address_size 64
.global .align 4 .u32 counter = 5;
.const .align 4 .f32 scale = 0f40000000;
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p; .reg .b32 %r<8>; .reg .f32 %f<5>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra DONE;
    mul.wide.u32 %rd4, %r5, 4;
    add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4; add.s64 %rd7, %rd3, %rd4;
    ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6]; ld.const.f32 %f3, [scale];
    fma.rn.f32 %f4, %f1, %f3, %f2;
    st.global.f32 [%rd7], %f4;
    setp.ne.u32 %p, %r5, 0;
    @%p bra DONE;
    atom.global.add.u32 %r6, [counter], 1;
DONE:
    ret;
}
"""


def environment(folder: Path, **options: object) -> dict[str, str]:
    """The environment of a program with a virtual GPU."""
    inherited = {name: value for name, value in os.environ.items() if name != "WARPFRAG_LEVEL"}
    found = {**inherited, **GpuOptions(**options).environment(folder / "launches.jsonl")}  # type: ignore[arg-type]
    found["LD_PRELOAD"] = ":".join(map(str, libraries()))
    found["LD_LIBRARY_PATH"] = str(FOLDER)
    found["PYTHONPATH"] = str(Path(warpfrag.__file__).parents[1])
    return found


def run(source: str, folder: Path, seconds: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
    """Execute a program after the definitions above."""
    text = HEAD + f"ADD = {ADD!r}.encode()\n" + textwrap.dedent(source)
    return subprocess.run(
        [sys.executable, "-c", text], env=environment(folder, **options), cwd=folder, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip
