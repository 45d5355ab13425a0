"""Test vectors as C++: a header of arrays, and a CUDA program that runs them and names the groups that fail."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from warpfrag.codegen import cuda_kernels, cuda_wgmma, wgmma_variants
from warpfrag.codegen import cuda_wrappers as cuda
from warpfrag.codegen import emit_tcgen05 as tcgen05
from warpfrag.codegen.cuda_builder import CudaBuilder
from warpfrag.codegen.statement import ROLES, identifier, raw_name, threads
from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.targets import targets
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.tensorcore.tensor_call import TensorCall
from warpfrag.tensorcore.tensor_images import image_columns
from warpfrag.tensorcore.wgmma_call import WgmmaCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.codegen.vectors.vector_group import VectorGroup
    from warpfrag.tensorcore.instruction import Instruction

UNDER_TEST = "UNDER_TEST"  # the macro that names the function under test

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

# Runs one group of an instruction of one warp.
RUN_WARP = """\
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

# Runs one group of a wgmma.
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

# Runs one group of a product of tcgen05: a block, or a pair, for each case.
RUN_BLOCK = """\
// The columns of D as the GPU gives them.
std::vector<uint32_t> run(const Group& group, const void* kernel) {
    constexpr int blocks = lanes / 128;
    const size_t tiles = size_t{blocks} * group.cases;
    std::vector<uint32_t> d(128 * words[0] * tiles, poison);
    const uint32_t* given[operands] = {d.data(), group.a, group.b, group.c};
    const size_t counts[operands] = {size_t{128} * words[0], group.words_a, group.words_b, size_t{128} * words[3]};
    uint32_t* memory[operands] = {};
    for (int i = 0; i < operands; ++i) memory[i] = on_gpu(given[i], counts[i] * tiles);
    uint64_t descriptors[] = {group.descriptor_a, group.descriptor_b};
    uint32_t idesc = group.idesc;
    int sizes[] = {static_cast<int>(group.words_a), static_cast<int>(group.words_b)};
    void* arguments[] = {&memory[1],      &memory[2], &memory[3], &memory[0], &descriptors[0],
                         &descriptors[1], &idesc,     &sizes[0],  &sizes[1]};
    const int size = 4 * (group.words_a + group.words_b) + 2 * 1024;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size), "cudaFuncSetAttribute");
    check(cudaLaunchKernel(kernel, dim3(tiles), dim3(128), arguments, size, nullptr), "launch");
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
                         ", " + unit + " " + std::to_string(reg) + ": expected " + hex(&group.d[at]) + ", got " +
                         hex(&got[at]) + "\\n";
            }
        }
        cases += differing > before;
    }
    if (differing == 0) {
        std::printf("ok      %s: %d cases\\n", group.name, group.cases);
        return true;
    }
    std::printf("FAILED  %s: %d of %d cases differ, in %d %ss\\n", group.name, cases, group.cases, differing, unit);
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
    std::printf("which element a %s holds: warpfrag at %s d %s\\n", unit, instruction, where);
    return 1;
}

}  // namespace warpfrag_vectors

int main() {
    return warpfrag_vectors::test();
}
"""


@frozen_dataclass
class ProgramScope:
    """What differs in C++ between products of a warp, a warpgroup and a block.

    operands   the arrays of a group, in the order in which a raw kernel takes them, D the first
    numbers    the members of a group that are no arrays
    values     the values of those members but for the number of cases, which is the first
    note       a comment for what the arrays are, besides registers
    index      what the report of a difference calls a thread
    where      what `warpfrag at` takes to name a place of D
    unit       what the report calls a word of a thread
    run        the function that runs a group
    raw_name   the name of the kernel that runs a group
    kernels    these kernels, each once, for the function under test
    words      the words of a thread, by operand
    header     the functions that are tested
    function   the one under test, if the user names no other
    """

    operands: tuple[str, ...]
    numbers: tuple[str, ...]
    values: Callable[[VectorGroup], list[str]]
    note: tuple[str, ...]
    index: str
    where: str
    unit: str
    run: str
    raw_name: Callable[[Instruction, VectorGroup], str]
    kernels: Callable[[Instruction, Sequence[VectorGroup]], list[str]]
    words: Callable[[Instruction], dict[str, int]]
    header: Callable[[Sequence[Instruction]], str]
    function: Callable[[Instruction], str]

    @property
    def members(self) -> tuple[str, ...]:
        """The arrays of a group as its members: D, the result, is the last."""
        return (*self.operands[1:], self.operands[0])


def _immediate_values(group: VectorGroup) -> list[str]:
    return [str(number) for number in group.choice.numbers]


def _call(group: VectorGroup) -> WgmmaCall:
    """How a group of wgmma is called, which every such group says."""
    if not isinstance(group.call, WgmmaCall):
        msg = f"group {quote(group.name)} of a wgmma has no call"
        raise InvalidOperand(msg)
    return group.call


def _tensor_call(group: VectorGroup) -> TensorCall:
    """How a group of tcgen05 is called, which every such group says."""
    if not isinstance(group.call, TensorCall):
        msg = f"group {quote(group.name)} of a product of tcgen05 has no call"
        raise InvalidOperand(msg)
    return group.call


def _tensor_values(group: VectorGroup) -> list[str]:
    call = _tensor_call(group)
    words = [f"0x{word:016x}ull" for word in call.descriptors]
    return [*words, f"0x{call.idesc:08x}u", *(str(group.words[role].shape[-1]) for role in "ab")]


def _call_values(group: VectorGroup) -> list[str]:
    call = _call(group)
    variant = call.variant
    signs = [-1 if negate else 1 for negate in variant.negate]
    numbers = [variant.selector, *(int(flag) for flag in (variant.staged, *variant.trans)), *signs]
    words = [f"0x{word:016x}ull" for word in call.descriptors]
    return [*map(str, numbers), *words, str(int(call.scale_d)), str(4 * group.words["shared"].shape[1])]


def _warp_raw_name(instruction: Instruction, group: VectorGroup) -> str:
    return raw_name(instruction, group.choice)


def _warpgroup_raw_name(instruction: Instruction, group: VectorGroup) -> str:
    return wgmma_variants.raw_name(instruction, _call(group).variant)


def _warp_kernels(instruction: Instruction, groups: Sequence[VectorGroup]) -> list[str]:
    choices = dict.fromkeys(group.choice for group in groups)
    return [line for choice in choices for line in cuda_kernels.raw_kernel(instruction, choice, UNDER_TEST)]


def _warpgroup_kernels(instruction: Instruction, groups: Sequence[VectorGroup]) -> list[str]:
    variants = dict.fromkeys(_call(group).variant for group in groups)
    lines = [line for variant in variants for line in cuda_wgmma.raw_kernel(instruction, variant, UNDER_TEST)]
    return ["using namespace warpfrag;", "", *lines]


def _tensor_raw_name(instruction: Instruction, _group: VectorGroup) -> str:
    return f"{tcgen05.identifier(instruction)}_raw"


def _tensor_kernels(instruction: Instruction, _groups: Sequence[VectorGroup]) -> list[str]:
    return tcgen05.raw_kernel(tcgen05.product(instruction), UNDER_TEST)


def _register_words(instruction: Instruction) -> dict[str, int]:
    return {role: operand.words for role, operand in instruction.operands.items() if operand.home != "shared"}


def _image_words(instruction: Instruction) -> dict[str, int]:
    t = tcgen05.product(instruction)
    return {"d": t.d.columns, "c": image_columns(t.form)["end"]}


def _register_function(instruction: Instruction) -> str:
    return f"warpfrag::{identifier(instruction)}::mma"


SCOPES = {
    "warp": ProgramScope(
        operands=ROLES,
        numbers=("int cases, selector, byte_id_a, byte_id_b, thread_id_a, thread_id_b;",),
        values=_immediate_values,
        note=(),
        index="lane",
        where="LANE REGISTER",
        unit="register",
        run=RUN_WARP,
        raw_name=_warp_raw_name,
        kernels=_warp_kernels,
        words=_register_words,
        header=cuda.header,
        function=_register_function,
    ),
    "warpgroup": ProgramScope(
        operands=("d", "a", "c", "metadata", "shared"),
        numbers=(
            "int cases, selector, a_in_shared, trans_a, trans_b, scale_a, scale_b;",
            "uint64_t descriptor_a, descriptor_b;",
            "uint32_t scale_d, bytes;",
        ),
        values=_call_values,
        note=("// shared is uint8[cases][bytes], as words.",),
        index="thread",
        where="--warp WARP LANE REGISTER",
        unit="register",
        run=RUN_WARPGROUP,
        raw_name=_warpgroup_raw_name,
        kernels=_warpgroup_kernels,
        words=_register_words,
        header=cuda.header,
        function=_register_function,
    ),
    "block": ProgramScope(
        operands=("d", "a", "b", "c"),
        numbers=(
            "int cases;",
            "uint64_t descriptor_a, descriptor_b;",
            "uint32_t idesc, words_a, words_b;",
        ),
        values=_tensor_values,
        note=(
            "// a and b are uint32[cases][words], the bytes of shared memory; c and d have the lanes of tensor memory.",
        ),
        index="lane",
        where="LANE COLUMN",
        unit="column",
        run=RUN_BLOCK,
        raw_name=_tensor_raw_name,
        kernels=_tensor_kernels,
        words=_image_words,
        header=partial(tcgen05.header, is_included=False),
        function=tcgen05.identifier,
    ),
}


def _scope(instruction: Instruction) -> ProgramScope:
    return SCOPES[instruction.form.operation.scope]


def as_header(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> str:
    """A C++17 header: arrays [case][lane][word], and a table of the groups."""
    code = CudaBuilder()
    code.line(f"// Test vectors of {instruction.name}, arithmetic of {arch}.")
    count = threads(instruction)
    code.line(f"// Every operand is uint32[cases][{count}][words]; what an instruction does not have is null.")
    code.line(*_scope(instruction).note, "#pragma once", "", "#include <cstdint>", "")
    code.line(f"namespace warpfrag_vectors::{identifier(instruction)} {{", "")
    _write_tables(code, _scope(instruction), groups)
    code.line("", "}  // namespace", "")
    return "\n".join(code.body())


def _write_tables(code: CudaBuilder, scope: ProgramScope, groups: Iterable[VectorGroup]) -> None:
    """The type Group, the arrays of every group, and the array `groups`."""
    with code.braces("struct Group", "};"):
        code.line("const char* name;", "const char* catches;", *scope.numbers)
        code.line(f"const uint32_t {', '.join(f'*{role}' for role in scope.members)};")
    code.line("")
    rows = []
    for number, group in enumerate(groups):
        for role, words in group.registers.items():
            with code.braces(f"inline constexpr uint32_t group{number}_{role}[] =", "};"):
                code.line(*_hex_words(words))
        arrays = [f"group{number}_{role}" if role in group.registers else "nullptr" for role in scope.members]
        values = [json.dumps(group.name), json.dumps(group.catches), str(group.cases), *scope.values(group), *arrays]
        rows.append(f"{{{', '.join(values)}}},")
    code.line("")
    with code.braces("inline constexpr Group groups[] =", "};"):
        code.line(*rows)


def _hex_words(words: NDArray[np.uint32]) -> list[str]:
    flat = words.reshape(-1).tolist()
    return [", ".join(f"0x{word:08x}" for word in flat[at : at + 8]) + "," for at in range(0, len(flat), 8)]


def as_program(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> str:
    """A CUDA program that runs every group on a GPU: exit status 0 if all pass, 1 if one fails, 2 without a GPU."""
    scope = _scope(instruction)
    base = targets()[arch].arch
    target = next(target for target in (arch, *instruction.targets) if _is_of(target, base, instruction))
    options, function = cuda.nvcc_options(target), scope.function(instruction)
    d = instruction.operands["d"]
    held = scope.words(instruction)
    counts = ", ".join(str(held.get(role, 0)) for role in scope.operands)
    code = CudaBuilder()
    code.line(
        f"// Runs the test vectors of {instruction.name} on a GPU, and names the groups that fail.",
        "//",
        f"//     nvcc -std=c++17 {options} -o test FILE.cu && ./test",
        "//",
        f"// That tests the instruction itself. To test a function of yours, which takes what {function} takes:",
        "//",
        f"//     nvcc -std=c++17 {options} -include my_mma.cuh -D{UNDER_TEST}=my_mma -o test FILE.cu && ./test",
        "//",
        "// Exit status: 0 if every register is as expected, 1 if one is not, 2 if the GPU cannot be used.",
        "#include <cuda_runtime.h>",
        "",
        *(f"#include <{name}>" for name in ("cstdint", "cstdio", "cstdlib", "cstring", "string", "vector")),
        "",
        scope.header([instruction]),
        f"#ifndef {UNDER_TEST}",
        f"#define {UNDER_TEST} {function}",
        "#endif",
        "",
        *scope.kernels(instruction, groups),
        "namespace warpfrag_vectors {",
        "",
    )
    _write_tables(code, scope, groups)
    code.line("", "// The kernel of each group: its selector and ids are immediates.")
    with code.braces("const void* const kernels[] =", "};"):
        names = [scope.raw_name(instruction, group) for group in groups]
        code.line(*(f"reinterpret_cast<const void*>(&{name})," for name in names))
    code.line(
        "",
        f"constexpr char instruction[] = {json.dumps(instruction.name)};",
        f"constexpr int arch = {base.removeprefix('sm_')};",
        f"constexpr int lanes = {threads(instruction)};",
        f"constexpr int operands = {len(scope.operands)};",
        f"constexpr int words[operands] = {{{counts}}};  // of a lane: {', '.join(scope.operands)}",
        f"constexpr char place[] = {json.dumps(scope.index)};",
        f"constexpr char unit[] = {json.dumps(scope.unit)};",
        f"constexpr char where[] = {json.dumps(scope.where)};",
        f"constexpr int register_words = {d.row.register_bits // 32};",
        "",
        START + scope.run + MAIN,
    )
    return "\n".join(code.body())


def _is_of(target: str, base: str, instruction: Instruction) -> bool:
    return target in instruction.targets and targets()[target].arch == base
