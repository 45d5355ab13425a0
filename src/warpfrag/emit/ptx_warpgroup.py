"""Kernels in PTX around wgmma, for blocks of one warpgroup.

A raw kernel is for programs that try descriptors: a block for each case, whose bytes of shared memory come as they are.
Its descriptors count from the first of these bytes, which lies at a multiple of 1024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.ptx_syntax import Body, entry, load_parameter, register_type, width
from warpfrag.emit.warpgroup import (
    BEFORE,
    COMMIT,
    PATTERN,
    PROXY,
    THREADS,
    WAIT,
    check,
    immediates,
    raw_name,
    statement,
)
from warpfrag.memory import UNIT
from warpfrag.staged import USUAL, Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.instruction import Instruction
    from warpfrag.operand import Registers

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
