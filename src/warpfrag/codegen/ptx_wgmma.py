"""Kernels in PTX around wgmma, for blocks of one warpgroup.

A raw kernel is for programs that try descriptors: a block for each case, whose bytes of shared memory come as they are.
Its descriptors count from the first of these bytes, which lies at a multiple of 1024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen.memory_indexing import described, described_index, stride_names
from warpfrag.codegen.ptx_builder import BLOCK_BARRIER, PtxBuilder, dynamic_shared, signature
from warpfrag.codegen.ptx_functions import call_moves, declare_operand, matrix_parameters, move_function, move_registers
from warpfrag.codegen.staging import Stage
from warpfrag.codegen.statement import identifier
from warpfrag.codegen.wgmma_variants import (
    COMMIT,
    FENCE,
    PROXY_FENCE,
    SWIZZLE_PERIOD,
    THREADS,
    WAIT,
    check,
    immediates,
    is_sparse,
    kernel_variants,
    raw_name,
    stages,
    statement,
    tile_name,
    tile_operands,
)
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import UNIT
from warpfrag.tensorcore.wgmma_call import USUAL, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.tensorcore.instruction import Instruction

BYTES = "shared_bytes"  # the name of dynamic shared memory
DECLARATION = dynamic_shared(BYTES, SWIZZLE_PERIOD)
# Registers are uint32[cases][128][words], shared is uint8[cases][bytes], bytes a multiple of 4. Give the launch
# bytes + 1024 of dynamic shared memory.
RAW_PARAMETERS = {
    **dict.fromkeys(("d", "a", "c", "metadata", "shared", "descriptor_a", "descriptor_b"), ".u64"),
    "scale_d": ".u32",
    "bytes": ".u32",
}


def raw_kernel(instruction: Instruction, variant: Variant = USUAL) -> list[str]:
    """Registers and bytes of shared memory in, registers out."""
    check(instruction, variant)
    code = PtxBuilder()
    case = code.compute("case", "mov.u32", "%ctaid.x")
    tid = code.compute("place", "mov.u32", "%tid.x")
    thread = code.compute("thread", "mad.lo.u32", case, THREADS, tid)
    base = _copy_image(code, case, tid)
    d = declare_operand(code, "d", instruction.d)
    move_registers(code, "c", instruction.c, d, thread, "ld")
    a: Sequence[str] | str
    if variant.staged:
        a = _descriptor(code, "descriptor_a", base)
    else:
        a = declare_operand(code, "a", instruction.a)
        move_registers(code, "a", instruction.a, a, thread, "ld")
    b = _descriptor(code, "descriptor_b", base)
    metadata: list[str] = []
    if is_sparse(instruction):
        word = code.declare("metadata_word")
        move_registers(code, "metadata", instruction.metadata, [word], thread, "ld")
        metadata = [word, str(variant.selector)]
    scale = code.declare("is_added", ".pred")
    code.emit(f"setp.ne.u32 {scale}, {code.load_parameter('scale_d', '.u32')}, 0")
    multiply(code, statement(instruction, d, a, b, scale, immediates(instruction, variant), metadata))
    move_registers(code, "d", instruction.d, d, thread, "st")
    return [f"// {instruction.name}", *code.entry(raw_name(instruction, variant), RAW_PARAMETERS)]


def wgmma_declarations(_instruction: Instruction) -> list[str]:
    """The dynamic shared memory of raw kernels."""
    return [DECLARATION]


def wgmma_functions(instruction: Instruction) -> list[str]:
    """A load or store of one register of each operand there, and how A and B get into shared memory."""
    lines = []
    for operand in (instruction.c, instruction.d, instruction.a, *filter(None, (instruction.metadata,))):
        lines += move_function(instruction, operand)
    for stage in stages(instruction):
        lines += stage_function(instruction, stage)
    return lines


def wgmma_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """Every kernel of one wgmma."""
    lines = []
    for variant in kernel_variants(instruction):
        lines += tile_kernel(instruction, variant)
        lines += [] if any(variant.trans) else raw_kernel(instruction, variant)
    return lines


def stage_name(instruction: Instruction, stage: Stage) -> str:
    """`..._stage_a` and its like."""
    return f"{identifier(instruction)}_stage_{stage.suffix}"


def stage_function(instruction: Instruction, stage: Stage) -> list[str]:
    """A or B from memory into shared memory, by all threads of a warpgroup."""
    operand, code = stage.operand, PtxBuilder()
    place = code.compute("place", "mov.u32", "%tid.x")
    unit = code.compute("unit", "and.b32", place, THREADS - 1)
    outside = code.declare("outside", ".pred")
    code.label("UNIT")
    code.emit(f"setp.ge.u32 {outside}, {unit}, {stage.units}")
    code.emit(f"@{outside} bra DONE")
    values = {"unit": unit}
    for name, formula in stage.formulas.items():
        values[name] = code.evaluate(name, formula, values)
    coordinates = {"k": values["k"], stage.other: values[stage.other]}
    if stage.elements > 1:
        coordinates["k"] = code.compute("k_element", "mul.lo.s32", values["k"], stage.elements)
    row, col = (stage.other, "k") if operand.role == "a" else ("k", stage.other)
    index = code.compute("index", "mul.lo.s32", coordinates[row], "%row_stride")
    index = code.compute("index", "mad.lo.s32", coordinates[col], "%col_stride", index)
    bits = 8 * stage.unit_bytes
    if stage.elements > 1:
        value = _bits_of_unit(code, stage, index)
    else:
        at = code.compute("at", "mad.wide.s32", index, stage.unit_bytes, "%memory")
        value = code.compute("code", f"ld.u{bits}", f"[{at}]")
    to = code.compute("to", "add.s32", "%shared", values["address"])
    code.emit(f"st.shared.u{bits} [{to}], {value}")
    code.emit(f"add.s32 {unit}, {unit}, {THREADS}")
    code.emit("bra UNIT")
    code.label("DONE")
    parameters = {"shared": ".b32", "memory": ".b64", **dict.fromkeys(stride_names(operand), ".b32")}
    return [
        f"// {described(operand)}, into shared memory, at a multiple of {SWIZZLE_PERIOD}: {stage.size} bytes.",
        f"// {stage.described}. {described_index(operand)}.",
        *code.function(signature(stage_name(instruction, stage), parameters)),
    ]


def _bits_of_unit(code: PtxBuilder, stage: Stage, index: str) -> str:
    """The elements of one byte, low bits first."""
    step = "%col_stride" if stage.operand.role == "a" else "%row_stride"
    bits = stage.operand.format.bits
    value = code.compute("code", "mov.b32", 0)
    for number in range(stage.elements):
        element = code.compute("element", "mad.lo.s32", step, number, index)
        bit = code.compute("bit", "mul.lo.s32", element, bits)
        byte = code.compute("byte", "shr.s32", bit, 3)
        at = code.compute("at", "mad.wide.s32", byte, 1, "%memory")
        low = code.compute("low", "and.b32", bit, 7)
        part = code.compute("part", "shr.u32", code.compute("part", "ld.u8", f"[{at}]"), low)
        part = code.compute("part", "and.b32", part, (1 << bits) - 1)
        value = code.compute("code", "mad.lo.s32", part, 1 << number * bits, value)
    return value


def tile_kernel(instruction: Instruction, variant: Variant) -> list[str]:
    """One tile from memory to memory, with one warpgroup."""
    check(instruction, variant)
    code = PtxBuilder()
    parameters, places = matrix_parameters(code, tile_operands(instruction))
    d = declare_operand(code, "d_", instruction.d)
    call_moves(code, instruction, instruction.c, d, places["c"])
    left: list[str] | str = ""
    right = ""
    for role, operand in (("a", instruction.a), ("b", instruction.b)):
        if role == "a" and not variant.staged:
            left = declare_operand(code, "a_", operand)
            call_moves(code, instruction, operand, left, places["a"])
            continue
        stage = Stage(operand, variant.trans["ab".index(role)])
        code.declare_shared(f"shared_{role}", stage.size, SWIZZLE_PERIOD)
        shared = code.compute("shared", "mov.u32", f"shared_{role}")
        code.emit(f"call.uni {stage_name(instruction, stage)}, ({', '.join([shared, *places[role]])})")
        descriptor = _descriptor_of(code, stage, shared)
        left, right = (descriptor, right) if role == "a" else (left, descriptor)
    metadata: list[str] = []
    if is_sparse(instruction):
        words = declare_operand(code, "metadata_", instruction.metadata)
        call_moves(code, instruction, instruction.metadata, words, places["metadata"])
        metadata = [words[0], str(variant.selector)]
    synchronize(code)
    always = code.declare("is_added", ".pred")
    code.emit(f"setp.eq.u32 {always}, 0, 0")
    multiply(code, statement(instruction, d, left, right, always, immediates(instruction, variant), metadata))
    call_moves(code, instruction, instruction.d, d, places["d"])
    comment = f"// {instruction.name}: one tile from memory to memory, with one warpgroup; {variant.described}"
    return [comment, *code.entry(tile_name(instruction, variant), parameters)]


def _descriptor_of(code: PtxBuilder, stage: Stage, shared: str) -> str:
    """The descriptor of a tile that starts at an address: all of it is known but the start."""
    field = Descriptor.FIELDS["start"]
    start = code.compute("start", "shr.u32", shared, (field.unit - 1).bit_length())
    start = code.compute("start", "and.b32", start, field.mask >> field.low)
    rest = stage.descriptor
    code.comment(f"leading {rest.leading}, stride {rest.stride}, swizzle {rest.swizzle} bytes")
    return code.compute("descriptor", "mad.wide.u32", start, 1 << field.low, f"0x{rest.word:x}")


def multiply(code: PtxBuilder, product: str) -> None:
    """One product, and what must stand around it."""
    for text in (FENCE, product, COMMIT, WAIT.format(0)):
        code.emit(text)


def _copy_image(code: PtxBuilder, case: str, tid: str) -> str:
    """Copy the bytes of this case into shared memory; where they start there."""
    first = code.compute("first", "mov.u32", BYTES)
    first = code.compute("first", "add.u32", first, SWIZZLE_PERIOD - 1)
    base = code.compute("base", "and.b32", first, -SWIZZLE_PERIOD)
    count = code.load_parameter("bytes", ".u32")
    image = code.compute("image", "mad.wide.u32", case, count, code.load_parameter("shared", ".u64"))
    at = code.compute("at", "mul.lo.u32", tid, 4)
    word, outside = code.declare("word"), code.declare("outside", ".pred")
    code.label("COPY")
    code.emit(f"setp.ge.u32 {outside}, {at}, {count}")
    code.emit(f"@{outside} bra COPIED")
    source = code.compute("from", "mad.wide.u32", at, 1, image)
    target = code.compute("to", "add.u32", base, at)
    code.emit(f"ld.global.b32 {word}, [{source}]")
    code.emit(f"st.shared.b32 [{target}], {word}")
    code.emit(f"add.u32 {at}, {at}, {4 * THREADS}")
    code.emit("bra COPY")
    code.label("COPIED")
    synchronize(code)
    return base


def synchronize(code: PtxBuilder) -> None:
    """Let wgmma see what all threads wrote into shared memory."""
    code.emit(PROXY_FENCE)
    code.emit(BLOCK_BARRIER)


def _descriptor(code: PtxBuilder, name: str, base: str) -> str:
    """A descriptor that counts from the first byte of shared memory, as one that counts from where that is."""
    relative = code.load_parameter(name, ".u64")
    units = code.compute("units", "shr.u32", base, (UNIT - 1).bit_length())
    return code.compute("moved", "mad.wide.u32", units, 1, relative)
