"""Test vectors as C++: a header of arrays, and a CUDA program that runs them and names the groups that fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from warpfrag.emission import cuda, cuda_kernels, cuda_warpgroup, warpgroup
from warpfrag.emission.statement import ROLES, identifier, raw_name, threads
from warpfrag.emission.warpgroup import THREADS
from warpfrag.isa.targets import targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.emission.vectors.cases import Group

WARPGROUP_ROLES = ("a", "c", "metadata", "shared", "d")

# Runs every group. The text in front of it, in the same namespace, defines Group, groups, kernels and the constants.
START = """\
constexpr int shown = 4;  // of the registers that differ in a group
constexpr uint32_t poison = 0xdeadbeef;  // what D holds before a run: a register that is not written shows

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "cannot use the GPU: %s: %s\\n", what, cudaGetErrorString(status));
    std::exit(2);
}

uint32_t* on_gpu(const uint32_t* words, size_t count) {
    uint32_t* memory = nullptr;
    check(cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(uint32_t)), "cudaMalloc");
    check(cudaMemcpy(memory, words, count * sizeof(uint32_t), cudaMemcpyHostToDevice), "cudaMemcpy");
    return memory;
}

"""

# Of an instruction of one warp.
RUN = """\
// D's registers as the GPU gives them.
std::vector<uint32_t> run(const Group& group, const void* kernel) {
    std::vector<uint32_t> d(size_t{lanes} * words[0] * group.cases, poison);
    const uint32_t* given[operands] = {d.data(),       group.a,       group.b,      group.c,
                                       group.metadata, group.scale_a, group.scale_b};
    uint32_t* memory[operands] = {};
    void* arguments[operands + 1];
    for (int i = 0; i < operands; ++i) {
        if (given[i] != nullptr) memory[i] = on_gpu(given[i], size_t{lanes} * words[i] * group.cases);
        arguments[i] = &memory[i];
    }
    int cases = group.cases;
    arguments[operands] = &cases;
    check(cudaLaunchKernel(kernel, dim3(group.cases), dim3(lanes), arguments, 0, nullptr), "launch");
    check(cudaDeviceSynchronize(), "kernel");
    check(cudaMemcpy(d.data(), memory[0], d.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (uint32_t* part : memory) check(cudaFree(part), "cudaFree");
    return d;
}

"""

# Of a wgmma.
RUN_WARPGROUP = """\
// D's registers as the GPU gives them.
std::vector<uint32_t> run(const Group& group, const void* kernel) {
    std::vector<uint32_t> d(size_t{lanes} * words[0] * group.cases, poison);
    const uint32_t* given[operands] = {d.data(), group.a, group.c, group.metadata, group.shared};
    uint32_t* memory[operands] = {};
    void* arguments[operands + 4];
    for (int i = 0; i < operands; ++i) {
        const size_t count = i == operands - 1 ? group.bytes / 4 : size_t{lanes} * words[i];
        if (given[i] != nullptr) memory[i] = on_gpu(given[i], count * group.cases);
        arguments[i] = &memory[i];
    }
    uint64_t descriptors[] = {group.descriptor_a, group.descriptor_b};
    uint32_t numbers[] = {group.scale_d, group.bytes};
    for (int i = 0; i < 2; ++i) {
        arguments[operands + i] = &descriptors[i];
        arguments[operands + 2 + i] = &numbers[i];
    }
    const int size = group.bytes + 1024;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size), "cudaFuncSetAttribute");
    check(cudaLaunchKernel(kernel, dim3(group.cases), dim3(lanes), arguments, size, nullptr), "launch");
    check(cudaDeviceSynchronize(), "kernel");
    check(cudaMemcpy(d.data(), memory[0], d.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (uint32_t* part : memory) check(cudaFree(part), "cudaFree");
    return d;
}

"""

MAIN = """\
// One register in hex; one of 64 bits is two words, the low one first.
std::string hex(const uint32_t* words) {
    std::string text = "0x";
    for (int word = register_words - 1; word >= 0; --word) {
        char digits[9];
        std::snprintf(digits, sizeof digits, "%08x", words[word]);
        text += digits;
    }
    return text;
}

// Print what is wrong with a group; whether nothing is.
bool compare(const Group& group, const std::vector<uint32_t>& got) {
    const int registers = words[0] / register_words;
    int differing = 0, cases = 0;
    std::string first;
    for (int c = 0; c < group.cases; ++c) {
        const int before = differing;
        for (int lane = 0; lane < lanes; ++lane) {
            for (int reg = 0; reg < registers; ++reg) {
                const size_t at = (size_t{lanes} * c + lane) * words[0] + reg * register_words;
                if (std::memcmp(&group.d[at], &got[at], register_words * sizeof(uint32_t)) == 0) continue;
                if (++differing > shown) continue;
                first += "        case " + std::to_string(c) + ", " + place + " " + std::to_string(lane) +
                         ", register " + std::to_string(reg) + ": expected " + hex(&group.d[at]) + ", got " +
                         hex(&got[at]) + "\\n";
            }
        }
        cases += differing > before;
    }
    if (differing == 0) {
        std::printf("ok      %s: %d cases\\n", group.name, group.cases);
        return true;
    }
    std::printf("FAILED  %s: %d of %d cases differ, in %d registers\\n", group.name, cases, group.cases, differing);
    std::printf("        catches %s\\n%s", group.catches, first.c_str());
    if (differing > shown) std::printf("        ... and %d more\\n", differing - shown);
    return false;
}

int test() {
    cudaDeviceProp gpu;
    check(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
    std::printf("%s on %s, sm_%d%d\\n", instruction, gpu.name, gpu.major, gpu.minor);
    if (gpu.major * 10 + gpu.minor != arch) {
        std::printf("note: expected are the codes of sm_%d; the arithmetic of another GPU may differ\\n", arch);
    }
    std::string failed;
    int count = 0, number = 0;
    for (const Group& group : groups) {
        if (compare(group, run(group, kernels[number++]))) continue;
        failed += (count++ ? ", " : "") + std::string(group.name);
    }
    if (count == 0) {
        std::printf("all %d groups passed\\n", number);
        return 0;
    }
    std::printf("%d of %d groups failed: %s\\n", count, number, failed.c_str());
    std::printf("which element a register holds: warpfrag at %s d %sLANE REGISTER\\n", instruction, warp_option);
    return 1;
}

}  // namespace warpfrag_vectors

int main() {
    return warpfrag_vectors::test();
}
"""


def as_header(instruction: Instruction, arch: str, groups: Sequence[Group]) -> str:
    """A C++17 header: arrays [case][lane][word], and a table of the groups."""
    name = identifier(instruction)
    count = THREADS if instruction.form.is_warpgroup else threads(instruction)
    memory = ["// shared is uint8[cases][bytes], as words."] if instruction.form.is_warpgroup else []
    lines = [
        f"// Test vectors of {instruction.name}, arithmetic of {arch}.",
        f"// Every operand is uint32[cases][{count}][words]; what an instruction does not have is null.",
        *memory,
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        f"namespace warpfrag_vectors::{name} {{",
        "",
        *_tables(groups),
        "",
        "}  // namespace",
        "",
    ]
    return "\n".join(lines)


def _tables(groups: Sequence[Group]) -> list[str]:
    """The type Group, the arrays of every group, and the array `groups`."""
    is_warpgroup = any(group.call is not None for group in groups)
    roles = WARPGROUP_ROLES if is_warpgroup else (*ROLES[1:], ROLES[0])
    numbers = "int cases, selector, byte_id_a, byte_id_b, thread_id_a, thread_id_b;"
    members = [f"    {numbers}"]
    if is_warpgroup:
        members = [
            "    int cases, selector, a_in_shared, trans_a, trans_b, scale_a, scale_b;",
            "    uint64_t descriptor_a, descriptor_b;",
            "    uint32_t scale_d, bytes;",
        ]
    lines = [
        "struct Group {",
        "    const char* name;",
        "    const char* catches;",
        *members,
        f"    const uint32_t {', '.join(f'*{role}' for role in roles)};",
        "};",
        "",
    ]
    rows = []
    for number, group in enumerate(groups):
        for role, words in group.registers.items():
            lines += [f"inline constexpr uint32_t group{number}_{role}[] = {{", *_numbers(words), "};"]
        places = [f"group{number}_{role}" if role in group.registers else "nullptr" for role in roles]
        said = _call_numbers(group) if is_warpgroup else [str(number) for number in group.choice.numbers]
        facts = [json.dumps(group.name), json.dumps(group.catches), group.cases, *said, *places]
        rows.append(f"    {{{', '.join(map(str, facts))}}},")
    return [*lines, "", "inline constexpr Group groups[] = {", *rows, "};"]


def _call_numbers(group: Group) -> list[str]:
    """What a group of wgmma says between its cases and its arrays."""
    assert group.call is not None  # noqa: S101 (for the type: who calls has looked)
    variant = group.call.variant
    signs = [-1 if negate else 1 for negate in variant.negate]
    numbers = [variant.selector, *(int(flag) for flag in (variant.staged, *variant.trans)), *signs]
    words = [f"0x{word:016x}ull" for word in group.call.descriptors]
    return [*map(str, numbers), *words, str(int(group.call.scale_d)), str(4 * group.words["shared"].shape[1])]


def _numbers(words: NDArray[np.uint32]) -> list[str]:
    flat = words.reshape(-1).tolist()
    return ["    " + ", ".join(f"0x{word:08x}" for word in flat[at : at + 8]) + "," for at in range(0, len(flat), 8)]


def as_program(instruction: Instruction, arch: str, groups: Sequence[Group]) -> str:
    """A CUDA program that runs every group on a GPU: exit status 0 if all pass, 1 if one fails, 2 without a GPU."""
    name = identifier(instruction)
    base = targets()[arch].arch
    target = next(target for target in (arch, *instruction.targets) if _is_of(target, base, instruction))
    options = cuda.nvcc_options(target)
    kernels = [_kernel_name(instruction, group) for group in groups]
    d = instruction.operands["d"]
    is_warpgroup = instruction.form.is_warpgroup
    roles = ("d", *WARPGROUP_ROLES[:-1]) if is_warpgroup else ROLES
    counts = [
        instruction.operands[role].words if role in instruction.operands else 0 for role in roles if role != "shared"
    ] + [0] * is_warpgroup
    lines = [
        f"// Runs the test vectors of {instruction.name} on a GPU, and names the groups that fail.",
        "//",
        f"//     nvcc -std=c++17 {options} -o test FILE.cu && ./test",
        "//",
        "// That tests the instruction itself. To test a function of yours, which takes what warpfrag's `mma` takes:",
        "//",
        f"//     nvcc -std=c++17 {options} -include my_mma.cuh -DUNDER_TEST=my_mma -o test FILE.cu && ./test",
        "//",
        "// Exit status: 0 if every register is as expected, 1 if one is not, 2 if the GPU cannot be used.",
        "#include <cuda_runtime.h>",
        "",
        "#include <cstdint>",
        "#include <cstdio>",
        "#include <cstdlib>",
        "#include <cstring>",
        "#include <string>",
        "#include <vector>",
        "",
        cuda.header([instruction]),
        "#ifndef UNDER_TEST",
        f"#define UNDER_TEST warpfrag::{name}::mma",
        "#endif",
        "",
        *_raw_kernels(instruction, groups),
        "namespace warpfrag_vectors {",
        "",
        *_tables(groups),
        "",
        "// The kernel of each group: its selector and ids are immediates.",
        "const void* const kernels[] = {",
        *(f"    reinterpret_cast<const void*>(&{kernel})," for kernel in kernels),
        "};",
        "",
        f"constexpr char instruction[] = {json.dumps(instruction.name)};",
        f"constexpr int arch = {base.removeprefix('sm_')};",
        f"constexpr int lanes = {THREADS if is_warpgroup else threads(instruction)};",
        f"constexpr int operands = {len(roles)};",
        f"constexpr int words[operands] = {{{', '.join(map(str, counts))}}};  // of a lane: {', '.join(roles)}",
        f"constexpr char place[] = {json.dumps('thread' if is_warpgroup else 'lane')};",
        f"constexpr char warp_option[] = {json.dumps('--warp WARP ' if is_warpgroup else '')};",
        f"constexpr int register_words = {d.words // d.regs};",
        "",
        START + (RUN_WARPGROUP if is_warpgroup else RUN) + MAIN,
    ]
    return "\n".join(lines)


def _kernel_name(instruction: Instruction, group: Group) -> str:
    if group.call is None:
        return raw_name(instruction, group.choice)
    return warpgroup.raw_name(instruction, group.call.variant)


def _raw_kernels(instruction: Instruction, groups: Sequence[Group]) -> list[str]:
    """The raw kernel of each choice or variant, with the function under test."""
    if not instruction.form.is_warpgroup:
        chosen = dict.fromkeys(group.choice for group in groups)
        return [line for choice in chosen for line in cuda_kernels.raw_kernel(instruction, choice, "UNDER_TEST")]
    variants = dict.fromkeys(group.call.variant for group in groups if group.call)
    texts = [cuda_warpgroup.raw_kernel(instruction, variant, "UNDER_TEST") for variant in variants]
    return ["using namespace warpfrag;", "", *(line for text in texts for line in text)]


def _is_of(target: str, base: str, instruction: Instruction) -> bool:
    return target in instruction.targets and targets()[target].arch == base
