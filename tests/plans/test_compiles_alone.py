"""Emitted relayouts and loads are complete: a compiler accepts each one alone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import warpfrag as wf

F16 = "mma.m16n8k16.f32.f16.f16.f32"


def nvcc():
    """Return the installed compiler, if there is one."""
    wheel = [Path(entry) / "nvidia" / "cu13" / "bin" / "nvcc" for entry in __import__("sys").path]
    return shutil.which("nvcc") or next((str(path) for path in wheel if path.exists()), None)


def emitted():
    mma = wf.get(F16)
    memory = wf.Memory(pitch=128, swizzle=128)
    return {
        "relayout": wf.relayout(mma.d.tiled(col=2), mma.a).emit("cuda"),
        "loads": wf.loads(mma.a, memory)[0].emit("cuda"),
        "stores": wf.stores(mma.d, wf.Memory(pitch=64))[0].emit("cuda"),
    }


def test_the_code_brings_the_header_that_it_needs():
    for code in emitted().values():
        assert code.startswith("#include <cstdint>\n")
        assert "uint32_t" in code


@pytest.mark.slow
@pytest.mark.parametrize("what", ["relayout", "loads", "stores"])
def test_a_compiler_takes_it_alone(what, tmp_path):
    if nvcc() is None:
        if os.environ.get("WARPFRAG_REQUIRE_ASSEMBLER") == "1":
            pytest.fail("nvcc is required")
        pytest.skip("needs nvcc")
    source = tmp_path / "alone.cu"
    source.write_text(emitted()[what], encoding="utf-8")
    ran = subprocess.run(
        [nvcc(), "-arch=sm_90", "--ptx", "-o", str(tmp_path / "alone.ptx"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
