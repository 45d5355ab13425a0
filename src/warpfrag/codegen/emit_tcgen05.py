"""tcgen05 in CUDA C++ and PTX: the instruction descriptor, the wrapper of a product, and a whole kernel.

The kernel multiplies one tile, with one block or a pair, on images of its memories (`execution.tensor_images`): it
copies those of A and B to shared memory and that of C to tensor memory, runs one product and writes the image of D. So
what a GPU gives is compared word for word with `t.execute`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand
from warpfrag.isa.legality import first_version
from warpfrag.smem.descriptor import stored_bits
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import IN_TENSOR_MEMORY, image_columns, shared_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.tensor_operand import InTensorShared

THREADS = 128
SMALLEST = 32  # columns of an allocation
DEFAULT_TARGET = "sm_100a"
PAIR = 3  # both blocks, as a mask


def product(instruction: Instruction) -> TensorMma:
    """A product for which code is written; refused, with the reason, for others."""
    if not isinstance(instruction, TensorMma) or not instruction.shape.m:
        msg = f"code is written for products of tcgen05 with shape and types, not for {instruction}"
        raise InvalidOperand(msg)
    return instruction


def identifier(instruction: Instruction) -> str:
    """The name of its functions."""
    return instruction.name.replace("::", "_").replace(".", "_")


def _sizes(t: TensorMma) -> dict[str, int]:
    """Bytes of the images of A and B, columns of D and of the image, and columns to allocate."""
    a, b = shared_parts(t.form)
    end = image_columns(t.form)["end"]
    allocated = max(SMALLEST, 1 << (end - 1).bit_length())
    return {"a": _bytes(a), "b": _bytes(b), "d": t.d.columns, "columns": end, "allocated": allocated}


def _bytes(operand: InTensorShared) -> int:
    """The bytes of an image of an operand in shared memory."""
    rows, cols = operand.shape
    return rows * cols * stored_bits(operand) // 8


def _descriptors(t: TensorMma) -> tuple[Descriptor, Descriptor]:
    a, b = shared_parts(t.form)
    return a.descriptors()[0], b.descriptors()[0]


def _extra(t: TensorMma) -> list[str]:
    """The operands in tensor memory besides D, in the order of the statement."""
    return [role for role in IN_TENSOR_MEMORY if role in t.operands]


def _statement(t: TensorMma, d: str, a: str, b: str, idesc: str, extra: dict[str, str], accumulate: str) -> str:
    """The product with its operands."""
    operands = [f"[{d}]", a, b, *(f"[{extra[role]}]" for role in extra if role == "metadata"), idesc]
    operands += [*(f"[{extra[role]}]" for role in extra if role != "metadata"), accumulate]
    return f"{t.ptx} {', '.join(operands)};"


def header(instructions: Sequence[Instruction], *, is_included: bool = True) -> str:
    """The wrappers in CUDA C++; a file that is compiled alone needs no guard."""
    lines = [
        "// Written by warpfrag. One thread calls a product; D is an address of tensor memory, lane << 16 | column.",
        *(["#pragma once"] if is_included else []),
        "#include <cstdint>",
        "",
        "// A shared-memory descriptor whose tile starts at a shared address.",
        "__device__ inline uint64_t tcgen05_descriptor(uint64_t word, uint32_t shared_address) {",
        "    return word + ((shared_address & 0x3FFFF) >> 4);",
        "}",
        "",
    ]
    for instruction in instructions:
        lines += _wrapper(product(instruction))
    return "\n".join(lines)


def _wrapper(t: TensorMma) -> list[str]:
    name = identifier(t)
    a, b = _descriptors(t)
    extra = _extra(t)
    numbered = {role: f"%{4 + at}" for at, role in enumerate(extra)}
    flag = f"%{4 + len(extra)}"
    parameters = "".join(f", uint32_t {role}" for role in extra)
    inputs = "".join(f', "r"({role})' for role in extra)
    return [
        f"// {t.name}",
        f"inline constexpr uint32_t {name}_idesc = 0x{t.descriptor().word:08x}u;",
        f"inline constexpr uint64_t {name}_a = 0x{a.word:016x}ull;  // {a}",
        f"inline constexpr uint64_t {name}_b = 0x{b.word:016x}ull;  // {b}",
        f"__device__ inline void {name}(uint32_t d, uint64_t a, uint64_t b{parameters}, bool accumulate,",
        f"                              uint32_t idesc = {name}_idesc) {{",
        f'    asm volatile("{{ .reg .pred p; setp.ne.b32 p, {flag}, 0;"',
        f'                 " {_statement(t, "%0", "%1", "%2", "%3", numbered, "p")} }}"',
        f'                 :: "r"(d), "l"(a), "l"(b), "r"(idesc){inputs}, "r"(accumulate ? 1 : 0) : "memory");',
        "}",
        "",
    ]


def source_file(instructions: Sequence[Instruction]) -> str:
    """The wrappers, and a kernel for each product."""
    lines = [header(instructions, is_included=False)]
    for instruction in instructions:
        lines += _cuda_kernel(product(instruction))
    return "\n".join(lines)


def _cuda_sync(t: TensorMma) -> list[str]:
    """All threads of the block, or of the pair, come together."""
    if t.blocks == 1:
        return ["    __syncthreads();"]
    return [
        '    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");',
        '    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");',
    ]


def _cuda_kernel(t: TensorMma) -> list[str]:
    """A kernel for one tile, whose sizes and descriptors are constants."""
    name, sizes = identifier(t), _sizes(t)
    return [
        f"// One tile: images of A, B and tensor memory in, the columns of D out; {THREADS} threads.",
        *_cuda_signature(t, f"{name}_kernel", "const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d"),
        f"    constexpr int words_a = {sizes['a'] // 4}, words_b = {sizes['b'] // 4};",
        f"    constexpr uint64_t descriptor_a = {name}_a, descriptor_b = {name}_b;",
        f"    constexpr uint32_t idesc = {name}_idesc;",
        "    __shared__ alignas(1024) uint32_t tile_a[words_a];",
        "    __shared__ alignas(1024) uint32_t tile_b[words_b];",
        *_cuda_body(t, name),
    ]


def raw_kernel(t: TensorMma, function: str) -> list[str]:
    """A kernel for many tiles, with sizes and descriptors as parameters; `function` is called for the product."""
    arrays = "const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d"
    numbers = "uint64_t descriptor_a, uint64_t descriptor_b, uint32_t idesc, int words_a, int words_b"
    return [
        f"// A tile for each {'block' if t.blocks == 1 else 'pair of blocks'}: images in, the columns of D out.",
        *_cuda_signature(t, f"{identifier(t)}_raw", f"{arrays},\n    {numbers}"),
        "    extern __shared__ uint32_t dynamic[];",
        "    const uint32_t past = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic)) % 1024;",
        "    uint32_t* const tile_a = dynamic + (1024 - past) % 1024 / 4;",
        "    uint32_t* const tile_b = tile_a + (words_a + 255) / 256 * 256;",
        *_cuda_body(t, function),
    ]


def _cuda_signature(t: TensorMma, name: str, parameters: str) -> list[str]:
    cluster = "__cluster_dims__(2, 1, 1) " if t.blocks == 2 else ""
    return [f'extern "C" __global__ void {cluster}__launch_bounds__({THREADS})', f"{name}({parameters}) {{"]


def _cuda_body(t: TensorMma, function: str) -> list[str]:
    """What both kernels do: copy the images of this block, run the product, write the columns of D."""
    sizes, group = _sizes(t), f"cta_group::{t.blocks}"
    places = image_columns(t.form)
    columns, of_d = sizes["columns"], sizes["d"]
    sync = _cuda_sync(t)
    ordered = [
        '    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");',
        *sync,
        '    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");',
    ]
    extra = "".join(f", base + {places[role]}" for role in _extra(t))
    signal = "tcgen05.commit." + group + ".mbarrier::arrive::one.shared::cluster"
    is_pair = t.blocks == 2
    mask = f', "h"(static_cast<uint16_t>({PAIR}))' if is_pair else ""
    return [
        "    __shared__ alignas(8) uint64_t done;",
        "    __shared__ uint32_t allocated;",
        "    const int thread = threadIdx.x;",
        "    const size_t block = blockIdx.x;",
        "    a += block * words_a, b += block * words_b;",
        f"    c += block * {THREADS * columns}, d += block * {THREADS * of_d};",
        f"    for (int at = thread; at < words_a; at += {THREADS}) tile_a[at] = a[at];",
        f"    for (int at = thread; at < words_b; at += {THREADS}) tile_b[at] = b[at];",
        "    const uint32_t done_address = static_cast<uint32_t>(__cvta_generic_to_shared(&done));",
        "    if (thread < 32) {",
        f'        asm volatile("tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%0], {sizes["allocated"]};"',
        '                     :: "r"(static_cast<uint32_t>(__cvta_generic_to_shared(&allocated))) : "memory");',
        "    }",
        '    if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(done_address) : "memory");',
        '    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
        *ordered,
        "    const uint32_t base = allocated;",
        "    const uint32_t lanes = base + (static_cast<uint32_t>(thread / 32 * 32) << 16);",
        f"    for (int column = 0; column < {columns}; ++column)",
        '        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};"',
        f'                     :: "r"(lanes + column), "r"(c[thread * {columns} + column]) : "memory");',
        '    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");',
        *ordered,
        f"    if (thread == 0{' && block % 2 == 0' if is_pair else ''}) {{",
        "        const uint32_t at_a = static_cast<uint32_t>(__cvta_generic_to_shared(tile_a));",
        "        const uint32_t at_b = static_cast<uint32_t>(__cvta_generic_to_shared(tile_b));",
        "        const uint64_t a_at = tcgen05_descriptor(descriptor_a, at_a);",
        "        const uint64_t b_at = tcgen05_descriptor(descriptor_b, at_b);",
        f"        {function}(base, a_at, b_at{extra}, true, idesc);",
        f'        asm volatile("{signal}{".multicast::cluster.b64 [%0], %1;" if is_pair else ".b64 [%0];"}"',
        f'                     :: "r"(done_address){mask} : "memory");',
        "    }",
        '    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"',
        '                 " @!p bra again; }"',
        '                 :: "r"(done_address) : "memory");',
        '    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");',
        f"    for (int column = 0; column < {of_d}; ++column) {{",
        "        uint32_t word;",
        '        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(word) : "r"(lanes + column));',
        '        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");',
        f"        d[thread * {of_d} + column] = word;",
        "    }",
        '    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");',
        *sync,
        "    if (thread < 32)",
        f'        asm volatile("tcgen05.dealloc.{group}.sync.aligned.b32 %0, %1;"',
        f'                     :: "r"(base), "n"({sizes["allocated"]}));',
        "}",
        "",
    ]


def module(instructions: Sequence[Instruction], target: str | None) -> str:
    """A PTX module with a kernel for each product."""
    chosen = target or DEFAULT_TARGET
    version = max(first_version(instruction.form, chosen) for instruction in instructions)
    lines = [f".version {version[0]}.{version[1]}", f".target {chosen}", ".address_size 64", ""]
    for instruction in instructions:
        lines += _ptx_kernel(product(instruction))
    return "\n".join(lines)


def _copied(source: str, tile: str, words: int, label: str, *, is_pair: bool) -> list[str]:
    """Words of global memory to a tile of shared memory, all threads together."""
    return [
        *_image(source, 4 * words, is_pair=is_pair),
        f"    mov.u32 %r2, {tile};",
        "    mov.u32 %r3, %r1;",
        f"{label}:",
        f"    setp.ge.u32 %p1, %r3, {words};",
        f"    @%p1 bra {label}_END;",
        "    mul.wide.u32 %rd2, %r3, 4;",
        "    add.u64 %rd2, %rd1, %rd2;",
        "    ld.global.u32 %r4, [%rd2];",
        "    shl.b32 %r5, %r3, 2;",
        "    add.u32 %r5, %r2, %r5;",
        "    st.shared.u32 [%r5], %r4;",
        f"    add.u32 %r3, %r3, {THREADS};",
        f"    bra {label};",
        f"{label}_END:",
    ]


def _image(parameter: str, size: int, *, is_pair: bool) -> list[str]:
    """The address of this block's image of so many bytes, in %rd1."""
    own = [f"    mul.wide.u32 %rd5, %r10, {size};", "    add.u64 %rd1, %rd1, %rd5;"] if is_pair else []
    return [f"    ld.param.u64 %rd1, [{parameter}];", "    cvta.to.global.u64 %rd1, %rd1;", *own]


def _each_column(parameter: str, columns: int, label: str, body: list[str], *, is_pair: bool) -> list[str]:
    """A loop over the columns of this thread's lane: %rd2 is its word of an image, %r7 its address."""
    return [
        *_image(parameter, 4 * THREADS * columns, is_pair=is_pair),
        f"    mul.wide.u32 %rd2, %r1, {4 * columns};",
        "    add.u64 %rd2, %rd1, %rd2;",
        "    mov.u32 %r7, %r6;",
        "    mov.u32 %r3, 0;",
        f"{label}:",
        *body,
        "    add.u64 %rd2, %rd2, 4;",
        "    add.u32 %r7, %r7, 1;",
        "    add.u32 %r3, %r3, 1;",
        f"    setp.lt.u32 %p1, %r3, {columns};",
        f"    @%p1 bra {label};",
    ]


def _described(tile: str, word: int, register: str) -> list[str]:
    """A descriptor with the address of its tile."""
    return [
        f"    mov.u32 %r3, {tile};",
        "    and.b32 %r3, %r3, 0x3FFFF;",
        "    shr.u32 %r3, %r3, 4;",
        f"    cvt.u64.u32 {register}, %r3;",
        f"    or.b64 {register}, {register}, 0x{word:016x};",
    ]


def _ptx_kernel(t: TensorMma) -> list[str]:
    name, sizes, group = f"{identifier(t)}_kernel", _sizes(t), f"cta_group::{t.blocks}"
    a, b = _descriptors(t)
    places, is_pair = image_columns(t.form), t.blocks == 2
    sync = ["    barrier.cluster.arrive.aligned;", "    barrier.cluster.wait.aligned;"]
    sync = sync if is_pair else ["    bar.sync 0;"]
    ordered = ["    tcgen05.fence::before_thread_sync;", *sync, "    tcgen05.fence::after_thread_sync;"]
    stored = ["    ld.global.u32 %r4, [%rd2];", "    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%r4};"]
    loaded = [
        "    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r7];",
        "    tcgen05.wait::ld.sync.aligned;",
        "    st.global.u32 [%rd2], %r4;",
    ]
    extra = {role: f"%r8+{places[role]}" for role in _extra(t)}
    multicast = (".multicast::cluster", ", %h1") if is_pair else ("", "")
    return [
        f"// {t.name}: images of A, B and tensor memory in, the columns of D out; {THREADS} threads",
        f".visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)",
        *([".explicitcluster", ".reqnctapercluster 2"] if is_pair else []),
        f".reqntid {THREADS}",
        "{",
        "    .reg .b16 %h<2>;",
        "    .reg .b32 %r<11>;",
        "    .reg .b64 %rd<6>;",
        "    .reg .pred %p<4>;",
        f"    .shared .align 1024 .b8 tile_a[{sizes['a']}];",
        f"    .shared .align 1024 .b8 tile_b[{sizes['b']}];",
        "    .shared .align 8 .b64 done;",
        "    .shared .align 4 .b32 allocated;",
        "    mov.u32 %r1, %tid.x;",
        *(["    mov.u32 %r10, %ctaid.x;"] if is_pair else []),
        *_copied("a", "tile_a", sizes["a"] // 4, "COPY_A", is_pair=is_pair),
        *_copied("b", "tile_b", sizes["b"] // 4, "COPY_B", is_pair=is_pair),
        "    setp.ge.u32 %p2, %r1, 32;",
        "    setp.ne.u32 %p3, %r1, 0;",
        "    @%p2 bra ALLOCATED;",
        f"    tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [allocated], {sizes['allocated']};",
        "ALLOCATED:",
        "    @!%p3 mbarrier.init.shared::cta.b64 [done], 1;",
        "    fence.proxy.async.shared::cta;",
        *ordered,
        "    ld.shared.u32 %r8, [allocated];",
        "    and.b32 %r6, %r1, 0xFFFFFFE0;",
        "    shl.b32 %r6, %r6, 16;",
        "    add.u32 %r6, %r6, %r8;",
        *_each_column("c", sizes["columns"], "STORE_C", stored, is_pair=is_pair),
        "    tcgen05.wait::st.sync.aligned;",
        *ordered,
        "    @%p3 bra ISSUED;",
        *(["    setp.ne.u32 %p1, %r10, 0;", "    @%p1 bra ISSUED;"] if is_pair else []),
        *_described("tile_a", a.word, "%rd3"),
        *_described("tile_b", b.word, "%rd4"),
        f"    mov.u32 %r9, 0x{t.descriptor().word:08x};",
        "    setp.eq.u32 %p1, %r1, 0;",
        f"    {_statement(t, '%r8', '%rd3', '%rd4', '%r9', extra, '%p1')}",
        "    mov.u32 %r3, done;",
        *([f"    mov.u16 %h1, {PAIR};"] if is_pair else []),
        f"    tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster{multicast[0]}.b64 [%r3]{multicast[1]};",
        "ISSUED:",
        "    mbarrier.try_wait.parity.shared::cta.b64 %p1, [done], 0;",
        "    @!%p1 bra ISSUED;",
        "    tcgen05.fence::after_thread_sync;",
        *_each_column("d", sizes["d"], "LOAD_D", loaded, is_pair=is_pair),
        "    tcgen05.fence::before_thread_sync;",
        *sync,
        "    @%p2 bra FREED;",
        f"    tcgen05.dealloc.{group}.sync.aligned.b32 %r8, {sizes['allocated']};",
        "FREED:",
        "    ret;",
        "}",
        "",
    ]
