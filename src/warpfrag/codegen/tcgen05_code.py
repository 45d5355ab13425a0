"""Generate tcgen05 kernels in PTX.

A kernel multiplies one tile, with one block or a pair, on memory images (`tensorcore.tensor_images`). It copies the
images of A and B to shared memory and that of C to tensor memory, runs one instruction and writes the image of D. A
GPU's result can thus be compared bit for bit with `execute`. The probes of the tests use the same kernel with
other statements.
"""

from collections.abc import Sequence

from warpfrag.codegen.operation_texts import fill_template
from warpfrag.codegen.ptx_builder import module_header
from warpfrag.codegen.statement import identifier
from warpfrag.errors import InvalidOperand
from warpfrag.isa.legality import first_version
from warpfrag.smem.descriptor import Descriptor, stored_bits
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import IN_TENSOR_MEMORY, image_columns, shared_parts
from warpfrag.tensorcore.tensor_operand import InTensorShared

THREADS = 128
SMALLEST = 32  # the smallest number of columns that can be allocated
DEFAULT_TARGET = "sm_100a"
PAIR = 3  # the mask that selects both blocks of a pair
TILE_ALIGNMENT = 1024  # the number of bytes after which swizzles repeat


def product(instruction: Instruction) -> TensorMma:
    """Return the instruction if code can be generated for it; raise InvalidOperand otherwise."""
    if not isinstance(instruction, TensorMma) or not instruction.shape.m:
        raise InvalidOperand(f"code generation needs a tcgen05.mma with shape and types, got {instruction}")
    return instruction


def _sizes(t: TensorMma) -> dict[str, int]:
    """Return the sizes of A's and B's images in bytes, the columns of D and of the image, and those to allocate."""
    a, b = shared_parts(t.form)
    end = image_columns(t.form)["end"]
    allocated = max(SMALLEST, 1 << (end - 1).bit_length())
    return {"a": _bytes(a), "b": _bytes(b), "d": t.d.columns, "columns": end, "allocated": allocated}


def _bytes(operand: InTensorShared) -> int:
    """Return the size in bytes of the image of an operand in shared memory."""
    rows, cols = operand.shape
    return rows * cols * stored_bits(operand) // 8


def _descriptors(t: TensorMma) -> tuple[Descriptor, Descriptor]:
    a, b = shared_parts(t.form)
    return a.descriptors()[0], b.descriptors()[0]


def _statement(t: TensorMma, d: str, a: str, b: str, idesc: str, extra: dict[str, str], accumulate: str) -> str:
    """Return the mma statement with its operands."""
    operands = [f"[{d}]", a, b, *(f"[{extra[role]}]" for role in extra if role == "metadata"), idesc]
    operands += [*(f"[{extra[role]}]" for role in extra if role != "metadata"), accumulate]
    return f"{t.ptx} {', '.join(operands)};"


def module(instructions: Sequence[Instruction], target: str | None) -> str:
    """Return a PTX module with a kernel for each instruction."""
    chosen = target or DEFAULT_TARGET
    lines = module_header(max(first_version(instruction.form, chosen) for instruction in instructions), chosen)
    for instruction in instructions:
        lines.append(_ptx_kernel(product(instruction)))
    return "\n".join(lines)


def _ptx_kernel(t: TensorMma) -> str:
    a, b = _descriptors(t)
    sizes, columns = _sizes(t), image_columns(t.form)
    extra = {role: f"%r8+{columns[role]}" for role in IN_TENSOR_MEMORY if role in t.operands}
    by_thread = [
        f"add.u64 %rd6, %rd5, 0x{a.word:016x};",
        f"add.u64 %rd7, %rd5, 0x{b.word:016x};",
        f"add.u64 %rd7, %rd7, {_aligned(sizes['a']) >> 4};",
        f"mov.u32 %r9, 0x{t.descriptor().word:08x};",
        _statement(t, "%r8", "%rd6", "%rd7", "%r9", extra, "%p4"),
    ]
    comment = f"// {t.name}: images of A, B and tensor memory in, the columns of D out; {THREADS} threads\n"
    return comment + tensor_kernel(
        f"{identifier(t)}_kernel",
        {"a": sizes["a"], "b": sizes["b"]},
        {"c": sizes["columns"], "d": sizes["d"]},
        by_thread="\n".join(f"    {line}" for line in by_thread),
        blocks=t.blocks,
    )


def _aligned(size: int) -> int:
    """Round the size of a tile up to the alignment of the next one."""
    return -(-size // TILE_ALIGNMENT) * TILE_ALIGNMENT


STORE_COLUMN = """    ld.global.b32 %v0, [%rd4];
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%v0};"""
LOAD_COLUMN = """    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r5];
    tcgen05.wait::ld.sync.aligned;
    st.global.b32 [%rd4], %v0;"""


def tensor_kernel(
    name: str, tiles: dict[str, int], images: dict[str, int], by_thread: str = "", by_warps: str = "", blocks: int = 1
) -> str:
    """Return a kernel that runs statements on tiles in shared memory and an image of tensor memory.

    `tiles` maps the parameters of tiles to their sizes in bytes. `images` maps the two parameters for tensor memory,
    before and after the statements, to their numbers of columns.
    """
    is_pair = blocks == 2
    (before, columns), (after, out_columns) = images.items()
    sync = "    barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;" if is_pair else "    bar.sync 0;"
    ordered = f"    tcgen05.fence::before_thread_sync;\n{sync}\n    tcgen05.fence::after_thread_sync;"
    copies, offset = [], 0
    for parameter, size in tiles.items():
        copies += _image(parameter, size, is_pair=is_pair)
        copies.append(fill_template("copy_tile.ptx", name=parameter, units=size // 16, offset=offset))
        offset += _aligned(size)
    stores, loads = (
        "\n".join(
            [
                *_image(parameter, 4 * THREADS * count, is_pair=is_pair),
                fill_template("each_column.ptx", name=parameter, row=4 * count, columns=count, body=body),
            ]
        )
        for parameter, count, body in ((before, columns, STORE_COLUMN), (after, out_columns, LOAD_COLUMN))
    )
    kernel = fill_template(
        "tensor_kernel.ptx",
        name=name,
        parameters=", ".join(f".param .u64 {parameter}" for parameter in (*tiles, *images)),
        cluster=".explicitcluster\n.reqnctapercluster 2\n" if is_pair else "",
        alignment=TILE_ALIGNMENT,
        size=offset,
        copies="\n".join(copies),
        group=f"cta_group::{blocks}",
        allocated=max(SMALLEST, 1 << (columns - 1).bit_length()),
        ordered=ordered,
        stores=stores,
        by_warps=f"{by_warps}\n    tcgen05.wait::st.sync.aligned;\n{ordered}" if by_warps else "",
        is_first="    setp.ne.u32 %p1, %r7, 0;\n    @%p1 bra ISSUED;" if is_pair else "",
        by_thread=by_thread,
        both=PAIR,
        multicast=".multicast::cluster" if is_pair else "",
        mask=", %h" if is_pair else "",
        loads=loads,
        sync=sync,
    )
    return f"{kernel}\n"


def _image(parameter: str, size: int, *, is_pair: bool) -> list[str]:
    """Return code that loads the address of this block's part of an array into %rd1."""
    block = [f"    mul.wide.u32 %rd4, %r7, {size};", "    add.u64 %rd1, %rd1, %rd4;"] if is_pair else []
    return [f"    ld.param.u64 %rd1, [{parameter}];", "    cvta.to.global.u64 %rd1, %rd1;", *block]
