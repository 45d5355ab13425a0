"""Vectors as C++: the header holds the words; the program runs every group and names those that fail.

The program is compiled by nvcc where there is one. What it says about groups is seen on the host, where a stand-in for
CUDA runs the kernels; the function under test reads D off the expected registers, with one bit wrong where asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pytest

from oracle.toolkit import absent, find_nvcc
from warpfrag.codegen.emit import emit
from warpfrag.codegen.statement import identifier
from warpfrag.codegen.vectors import vectors

SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
DOUBLE = "mma.m8n8k4.f64.f64.f64.f64"

# Compiled in front of a program; the environment says in which group the function under test gets a register wrong.
STAND_IN = """\
#include <cstdint>
#include <cstdlib>
#include <cstring>
#define __device__
#define __global__
#define __forceinline__ inline
struct dim3 { unsigned x; dim3(unsigned x) : x(x) {} };
struct Index { int x; };
inline Index blockIdx, blockDim, threadIdx;
enum cudaError_t { cudaSuccess };
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct cudaDeviceProp { const char* name; int major, minor; };
inline const char* cudaGetErrorString(cudaError_t) { return ""; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* gpu, int) { *gpu = {"stand-in", 8, 0}; return cudaSuccess; }
inline cudaError_t cudaMalloc(void** memory, size_t size) { *memory = std::malloc(size); return cudaSuccess; }
inline cudaError_t cudaFree(void* memory) { std::free(memory); return cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size, int) {
    std::memcpy(to, from, size);
    return cudaSuccess;
}
inline size_t __cvta_generic_to_shared(const void*) { return 0; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t, void*);
namespace stand_in {
inline int launches = -1;
const uint32_t* expected();
template <int... immediates, class D, class... Inputs>
void multiply(D& d, const Inputs&...) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t* words = expected() + thread * (sizeof d / sizeof(uint32_t));
    std::memcpy(&d, words, sizeof d);
    const int wrong_group = std::atoi(std::getenv("WRONG_GROUP"));
    if (launches == wrong_group && thread == 32 + 5) reinterpret_cast<uint32_t*>(&d)[WRONG_WORD] ^= 1;
}
}
#define UNDER_TEST stand_in::multiply
"""
REST = """
const uint32_t* stand_in::expected() { return warpfrag_vectors::groups[launches].d; }
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** given, size_t, void*) {
    using Pointer = const uint32_t*;
    auto run = (void (*)(uint32_t*, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, int))kernel;
    ++stand_in::launches;
    blockDim.x = block.x;
    for (blockIdx.x = 0; blockIdx.x < int(grid.x); ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < int(block.x); ++threadIdx.x)
            run(*(uint32_t**)given[0], *(Pointer*)given[1], *(Pointer*)given[2], *(Pointer*)given[3],
                *(Pointer*)given[4], *(Pointer*)given[5], *(Pointer*)given[6], *(int*)given[7]);
    return cudaSuccess;
}
"""


def find_compiler():
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    return compiler or absent("no C++ compiler")


def compiled(folder, source, *options):
    """A program for the host."""
    program = folder / "program"
    command = [
        find_compiler(),
        "-std=c++17",
        "-Wall",
        "-Wno-unknown-pragmas",
        *options,
        "-o",
        str(program),
        str(source),
    ]
    subprocess.run(command, check=True)
    return program


def run(program, **environment):
    """Its status and what it says."""
    done = subprocess.run([str(program)], capture_output=True, check=False, text=True, env=os.environ | environment)
    return done.returncode, done.stdout.splitlines()


def test_a_header_compiles_and_holds_the_words(tmp_path):
    found = vectors(SPARSE)
    found.save(tmp_path / "v.h")
    name = f"warpfrag_vectors::{identifier(found.instruction)}"
    (tmp_path / "sum.cpp").write_text(
        '#include "v.h"\n#include <cstdio>\nint main() {\n'
        f"  for (const auto& g : {name}::groups) {{\n"
        "    unsigned long long sum = 0;\n"
        "    for (int i = 0; i < g.cases * 32; ++i) sum += g.metadata[i];\n"
        "    for (int i = 0; i < g.cases * 32 * 4; ++i) sum += g.d[i];\n"
        '    std::printf("%d %llu %d\\n", g.selector, sum, g.scale_a == nullptr);\n  }\n}\n',
        encoding="utf-8",
    )
    _, lines = run(compiled(tmp_path, tmp_path / "sum.cpp", "-Werror"))
    sums = [int(group.words["metadata"].sum(dtype=np.uint64) + group.d.sum(dtype=np.uint64)) for group in found.groups]

    assert lines == [f"{g.choice.selector} {total} 1" for g, total in zip(found.groups, sums, strict=True)]


@pytest.mark.parametrize(("name", "arch", "wrong"), [(SPARSE, "sm_90", 2), (DOUBLE, "sm_90", 3), (SCALED, "sm_120", 4)])
def test_the_program_names_the_group_that_fails(tmp_path, name, arch, wrong):
    found = vectors(name, arch=arch)
    found.save(tmp_path / "program.cu")
    (tmp_path / "cuda_runtime.h").write_text("", encoding="utf-8")
    group, d = found.groups[wrong], found.instruction.d
    source = tmp_path / "host.cpp"
    text = [f"#define WRONG_WORD {d.words - 1}", STAND_IN, '#include "program.cu"', REST]
    source.write_text("\n".join(text), encoding="utf-8")
    program = compiled(tmp_path, source, f"-I{tmp_path}", "-Wno-unused-function")
    for planted in (-1, wrong):
        status, lines = run(program, WRONG_GROUP=str(planted))

        assert lines[0] == f"{found.instruction.name} on stand-in, sm_80"
        assert lines[1].startswith(f"note: expected are the codes of {arch};")
        if planted < 0:
            assert status == 0
            assert lines[2:] == [
                *(f"ok      {one.name}: {one.cases} cases" for one in found.groups),
                f"all {len(found.groups)} groups passed",
            ]
            continue
        width = d.words // d.regs
        words = group.d[1, 5].reshape(d.regs, width)[-1]
        expected = "".join(f"{word:08x}" for word in words[::-1])
        got = f"{int(expected, 16) ^ (1 << 32 * (width - 1)):0{8 * width}x}"
        place = f"case 1, lane 5, register {d.regs - 1}"

        assert status == 1
        assert [line for line in lines if line.startswith("FAILED")] == [
            f"FAILED  {group.name}: 1 of {group.cases} cases differ, in 1 registers"
        ]
        assert f"        catches {group.catches}" in lines
        assert f"        {place}: expected 0x{expected}, got 0x{got}" in lines
        assert f"1 of {len(found.groups)} groups failed: {group.name}" in lines


@pytest.mark.parametrize(("name", "arch", "with_own"), [(SPARSE, "sm_90", [False, True]), (SCALED, "sm_120", [True])])
def test_the_program_compiles_as_it_says(tmp_path, name, arch, with_own):
    """As it stands, and with a function of one's own, for which there are arguments of every kind."""
    nvcc = find_nvcc()
    source = tmp_path / "FILE.cu"
    found = vectors(name, arch=arch)
    found.save(source)
    said = [line[2:].split() for line in source.read_text(encoding="utf-8").splitlines() if "nvcc -std" in line]
    mine = f"#define my_mma warpfrag::{identifier(found.instruction)}::mma\n"
    (tmp_path / "my_mma.cuh").write_text(emit(name) + mine, encoding="utf-8")
    assert ["my_mma" in " ".join(words) for words in said] == [False, True]
    for own in with_own:
        options = said[own][1 : said[own].index("&&")]
        command = [str(nvcc), "-Werror", "all-warnings", "-Xptxas", "-O0", *options]
        built = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)

        assert [line for line in built.stderr.splitlines() if "; info" not in line] == []
        assert built.returncode == 0
        status, lines = run(tmp_path / "test")
        assert status == (0 if "groups passed" in "".join(lines) else 2), lines
