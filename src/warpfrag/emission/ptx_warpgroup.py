"""Kernels in PTX around wgmma, for blocks of one warpgroup.

A raw kernel is for programs that try descriptors: a block for each case, whose bytes of shared memory come as they are.
Its descriptors count from the first of these bytes, which lies at a multiple of 1024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emission.ptx_functions import call_moves, move_function
from warpfrag.emission.ptx_syntax import Body, entry, load_parameter, register_type, width
from warpfrag.emission.staging import Stage
from warpfrag.emission.statement import identifier
from warpfrag.emission.strides import described, described_index, stride_names
from warpfrag.emission.warpgroup import (
    BEFORE,
    COMMIT,
    PATTERN,
    PROXY,
    THREADS,
    TILE_ROLES,
    WAIT,
    check,
    immediates,
    kernel_variants,
    raw_name,
    stages,
    statement,
    tile_name,
)
from warpfrag.execution.wgmma_call import USUAL, Variant
from warpfrag.memory.descriptor import Descriptor
from warpfrag.memory.shared_memory import UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.execution.operand import Registers

BYTES = "shared_bytes"  # the name of dynamic shared memory, which a module declares once
DECLARATION = f".extern .shared .align {PATTERN} .b8 {BYTES}[];"
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
    body = Body()
    case = body.compute("case", "mov.u32", "%ctaid.x")
    tid = body.compute("place", "mov.u32", "%tid.x")
    thread = body.compute("thread", "mad.lo.u32", case, THREADS, tid)
    base = _copy_image(body, case, tid)
    d = body.vector("d", instruction.d)
    _move(body, "c", instruction.c, d, thread, "ld")
    a: Sequence[str] | str
    if variant.staged:
        a = _descriptor(body, "descriptor_a", base)
    else:
        a = body.vector("a", instruction.a)
        _move(body, "a", instruction.a, a, thread, "ld")
    b = _descriptor(body, "descriptor_b", base)
    metadata: list[str] = []
    if instruction.form.is_sparse:
        word = body.new("metadata_word")
        _move(body, "metadata", instruction.metadata, [word], thread, "ld")
        metadata = [word, str(variant.selector)]
    scale = body.new("is_added", ".pred")
    body.do(f"setp.ne.u32 {scale}, {load_parameter(body, 'scale_d', '.u32')}, 0")
    multiply(body, statement(instruction, d, a, b, scale, immediates(instruction, variant), metadata))
    _move(body, "d", instruction.d, d, thread, "st")
    return [f"// {instruction.name}", *entry(raw_name(instruction, variant), RAW_PARAMETERS, body)]


def body(instruction: Instruction) -> list[str]:
    """Functions and kernels of one wgmma."""
    lines = []
    for operand in (instruction.c, instruction.d, instruction.a, *filter(None, (instruction.metadata,))):
        lines += move_function(instruction, operand)
    for stage in stages(instruction):
        lines += stage_function(instruction, stage)
    for variant in kernel_variants(instruction):
        lines += tile_kernel(instruction, variant)
        lines += [] if any(variant.trans) else raw_kernel(instruction, variant)
    return lines


def stage_name(instruction: Instruction, stage: Stage) -> str:
    """`..._stage_a` and its like."""
    return f"{identifier(instruction)}_stage_{stage.suffix}"


def stage_function(instruction: Instruction, stage: Stage) -> list[str]:
    """A or B from memory into shared memory, by all threads of a warpgroup."""
    operand, code = stage.operand, Body()
    place = code.compute("place", "mov.u32", "%tid.x")
    unit = code.compute("unit", "and.b32", place, THREADS - 1)
    outside = code.new("outside", ".pred")
    code.label("UNIT")
    code.do(f"setp.ge.u32 {outside}, {unit}, {stage.units}")
    code.do(f"@{outside} bra DONE")
    values = {"unit": unit}
    for name, formula in stage.formulas.items():
        values[name] = code.formula(name, formula, values)
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
    code.do(f"st.shared.u{bits} [{to}], {value}")
    code.do(f"add.s32 {unit}, {unit}, {THREADS}")
    code.do("bra UNIT")
    code.label("DONE")
    parameters = [".reg .b32 %shared", ".reg .b64 %memory", *(f".reg .b32 %{name}" for name in stride_names(operand))]
    return [
        f"// {described(operand)}, into shared memory, at a multiple of {PATTERN}: {stage.size} bytes.",
        f"// {stage.described}. {described_index(operand)}.",
        f".func {stage_name(instruction, stage)}({', '.join(parameters)})",
        *code.lines(["ret"]),
    ]


def _bits_of_unit(code: Body, stage: Stage, index: str) -> str:
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
    code = Body()
    operands = {role: instruction.operands[role] for role in TILE_ROLES if role in instruction.operands}
    parameters: dict[str, str] = {}
    places = {}
    for role, operand in operands.items():
        own = {role: ".u64", **dict.fromkeys(stride_names(operand, f"{role}_"), ".u32")}
        parameters |= own
        places[role] = [load_parameter(code, name, kind) for name, kind in own.items()]
    d = code.vector("d_", instruction.d)
    call_moves(code, instruction, instruction.c, d, places["c"])
    left: list[str] | str = ""
    right = ""
    for role, operand in (("a", instruction.a), ("b", instruction.b)):
        if role == "a" and not variant.staged:
            left = code.vector("a_", operand)
            call_moves(code, instruction, operand, left, places["a"])
            continue
        stage = Stage(operand, variant.trans["ab".index(role)])
        code.shared(f"shared_{role}", stage.size, PATTERN)
        shared = code.compute("shared", "mov.u32", f"shared_{role}")
        code.do(f"call.uni {stage_name(instruction, stage)}, ({', '.join([shared, *places[role]])})")
        found = _descriptor_of(code, stage, shared)
        left, right = (found, right) if role == "a" else (left, found)
    metadata: list[str] = []
    if instruction.form.is_sparse:
        words = code.vector("metadata_", instruction.metadata)
        call_moves(code, instruction, instruction.metadata, words, places["metadata"])
        metadata = [words[0], str(variant.selector)]
    synchronize(code)
    always = code.new("is_added", ".pred")
    code.do(f"setp.eq.u32 {always}, 0, 0")
    multiply(code, statement(instruction, d, left, right, always, immediates(instruction, variant), metadata))
    call_moves(code, instruction, instruction.d, d, places["d"])
    comment = f"// {instruction.name}: one tile from memory to memory, with one warpgroup; {variant.described}"
    return [comment, *entry(tile_name(instruction, variant), parameters, code)]


def _descriptor_of(code: Body, stage: Stage, shared: str) -> str:
    """The descriptor of a tile that starts at an address: all of it is known but the start."""
    field = Descriptor.FIELDS["start"]
    start = code.compute("start", "shr.u32", shared, (field.unit - 1).bit_length())
    start = code.compute("start", "and.b32", start, field.mask >> field.low)
    rest = stage.descriptor
    code.say(f"leading {rest.leading}, stride {rest.stride}, swizzle {rest.swizzle} bytes")
    return code.compute("descriptor", "mad.wide.u32", start, 1 << field.low, f"0x{rest.word:x}")


def multiply(body: Body, product: str) -> None:
    """One product, and what must stand around it."""
    for text in (BEFORE, product, COMMIT, WAIT.format(0)):
        body.do(text.rstrip(";"))


def _copy_image(body: Body, case: str, tid: str) -> str:
    """Copy the bytes of this case into shared memory; where they start there."""
    first = body.compute("first", "mov.u32", BYTES)
    first = body.compute("first", "add.u32", first, PATTERN - 1)
    base = body.compute("base", "and.b32", first, -PATTERN)
    count = load_parameter(body, "bytes", ".u32")
    image = body.compute("image", "mad.wide.u32", case, count, load_parameter(body, "shared", ".u64"))
    at = body.compute("at", "mul.lo.u32", tid, 4)
    word, outside = body.new("word"), body.new("outside", ".pred")
    body.label("COPY")
    body.do(f"setp.ge.u32 {outside}, {at}, {count}")
    body.do(f"@{outside} bra COPIED")
    source = body.compute("from", "mad.wide.u32", at, 1, image)
    target = body.compute("to", "add.u32", base, at)
    body.do(f"ld.global.b32 {word}, [{source}]")
    body.do(f"st.shared.b32 [{target}], {word}")
    body.do(f"add.u32 {at}, {at}, {4 * THREADS}")
    body.do("bra COPY")
    body.label("COPIED")
    synchronize(body)
    return base


def synchronize(body: Body) -> None:
    """Let wgmma see what all threads wrote into shared memory."""
    body.do(PROXY.rstrip(";"))
    body.do("bar.sync 0")


def _descriptor(body: Body, name: str, base: str) -> str:
    """A descriptor that counts from the first byte of shared memory, as one that counts from where that is."""
    given = load_parameter(body, name, ".u64")
    units = body.compute("units", "shr.u32", base, (UNIT - 1).bit_length())
    return body.compute("moved", "mad.wide.u32", units, 1, given)


def _move(body: Body, name: str, operand: Registers, words: Sequence[str], thread: str, operation: str) -> None:
    """Load or store the registers of an operand, those of one thread after those of another."""
    size = width(register_type(operand))
    pointer = load_parameter(body, name, ".u64")
    pointer = body.compute(f"{name}_at", "mad.wide.u32", thread, size * len(words), pointer)
    for reg, word in enumerate(words):
        place = f"[{pointer} + {size * reg}]"
        body.do(f"{operation}.global.b{8 * size} {', '.join([word, place] if operation == 'ld' else [place, word])}")
