"""`warpfrag descriptor`: decode or build the descriptors of wgmma and tcgen05."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from warpfrag.cli.io.output import DONE, NO, echo, echo_wrapped, print_heading, print_table
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.errors import InvalidOperand, quote
from warpfrag.smem.descriptor import Descriptor, Problem
from warpfrag.smem.instruction_descriptor import MASK_BITS, WORD_BITS, InstructionDescriptor, ZeroColumnMask
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorMma

WORD = re.compile(r"(?:0x)?[0-9a-f]+(?:_[0-9a-f]+)*", re.IGNORECASE | re.ASCII)


class DescriptorFacts(NamedTuple):
    """One descriptor.

    word: its bits, in hex
    fields: each field with its bits, raw value and meaning
    problems: with --for: field and text of each problem
    cute: for shared memory, the layout in CuTe notation
    hints: fields whose values look like bytes instead of units of 16 bytes
    columns: for a zero-column mask: the column of B that each column of D reads, null if it is zero
    start: start address, in bytes
    leading: leading byte offset
    stride: stride byte offset
    swizzle: swizzle width in bytes; 0 for none
    base_offset: swizzle phase, in 128-byte rows
    """

    word: str
    fields: list[dict[str, Any]]
    problems: list[Problem]
    cute: str | None = None
    hints: list[str] | None = None
    columns: object = None
    start: int | None = None
    leading: int | None = None
    stride: int | None = None
    swizzle: int | None = None
    base_offset: int | None = None


class DescriptorAnswer(NamedTuple):
    """Decoded descriptors.

    instruction: with --for: canonical name
    operand: with --for: a, b, idesc or mask
    trans: true if the operand is MN-major
    descriptors: one; with --tile one for each step along k
    """

    instruction: str | None
    operand: str | None
    trans: bool
    descriptors: list[DescriptorFacts]


def read_word(text: str, kind: str = "wgmma") -> Descriptor:
    """Return the descriptor encoded by a hex number, with or without 0x."""
    return Descriptor.decode(_number("a descriptor", 64, text, "0x4000004000000000"), kind=kind)


def _number(name: str, bits: int, text: str, example: str) -> int:
    """Return the value of a hex number."""
    if not WORD.fullmatch(text.strip()) or int(text, 16) >> bits:
        raise InvalidOperand(f"{name}: expected {bits} bits in hex, such as {example}; got {quote(text)}")
    return int(text, 16)


@verb
def descriptor(
    word: str | None = None,
    *,
    start: int | None = None,
    leading: int | None = None,
    stride: int | None = None,
    swizzle: int | None = None,
    base_offset: int | None = None,
    for_: tuple[str, str] | None = None,
    trans: bool = False,
    tile: int | None = None,
) -> Answer[DescriptorAnswer]:
    """Decode or build a shared-memory descriptor of wgmma or tcgen05: its fields, its CuTe layout and its problems.

    Pass WORD (64 bits in hex, with or without 0x), its fields in bytes, or --tile for a tile without gaps. With --for,
    the exit status is 1 if there is a problem. The hardware does not report problems. For tcgen05, the operand may also
    be idesc, the 32-bit instruction descriptor, or mask, the zero-column mask of mma.ws; without WORD, idesc is built.

    Options:
        start (BYTES): Start address of the operand.
        leading (BYTES): Leading byte offset.
        stride (BYTES): Stride byte offset.
        swizzle (BYTES): Swizzle width: 0, 32, 64 or 128.
        base_offset (N): Swizzle phase, in 128-byte rows.
        for_ (INSTRUCTION OPERAND): The operand that the descriptor is for: a or b; for tcgen05 also idesc and mask.
        trans: The operand is MN-major (16-bit types; for tcgen05 also 8-bit types and tf32).
        tile (K): Build the descriptors of a tile without gaps, one for each step along K.

    For example:
        warpfrag descriptor 0x4000004000000000                 # decode its fields
        warpfrag descriptor 4000004000000000                   # the same: digits without 0x are hex
        warpfrag descriptor --stride 1024 --swizzle 128        # build one
        warpfrag descriptor 0x4000004000000000 --for wgmma.mma_async.m64n64k16.f32.f16.f16 b   # its problems
        warpfrag descriptor --tile 64 --swizzle 128 --for wgmma.mma_async.m64n64k16.f32.f16.f16 b
        warpfrag descriptor 0x4000404000000000 --for tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 b
        warpfrag descriptor 0x8400490 --for tcgen05.mma.cta_group::1.kind::f16 idesc    # the instruction descriptor
        warpfrag descriptor --for tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 idesc    # build it
    """
    if for_ is not None and for_[1].lower() in ("idesc", "mask"):
        return _tensor_word(for_[0], for_[1].lower(), word)
    fields = {"start": start, "leading": leading, "stride": stride, "swizzle": swizzle, "base_offset": base_offset}
    values = {name: number for name, number in fields.items() if number is not None}
    operand = _operand(*for_) if for_ else None
    if trans and operand is not None:
        operand.memory(0, trans=trans)  # raises an error if the type cannot be transposed
    if tile is not None:
        descriptors = _of_tile(operand, values, word, tile, trans=trans)
    elif (word is None) == (not values):
        got = f"{quote(word)} and --{next(iter(values)).replace('_', '-')}" if values else "neither"
        raise InvalidOperand(
            f"expected a word such as 0x4000004000000000, or its fields (--stride 1024 --swizzle 128); got {got}"
        )
    else:
        kind = operand.descriptor_kind if operand else "wgmma"
        entries: dict[str, Any] = {**values, "kind": kind}
        descriptors = [Descriptor(**entries) if word is None else read_word(word, kind)]
    rows = [_facts(each, each.problems(operand, trans=trans) if operand else [], trans=trans) for each in descriptors]
    instruction, role = (operand.instruction, operand.role) if operand else (None, None)

    def show() -> None:
        if word is not None and word.strip().isdecimal():
            echo(f"{word.strip()} is read as hex")
        for number, row in enumerate(rows):
            if number:
                echo()
            _print(row, trans=trans)
        if len(rows) > 1:
            starts = [each.start for each in descriptors]
            echo(f"\nstart of each step in K: {', '.join(map(str, starts))}; first increment {starts[1] - starts[0]}")

    status = NO if any(row.problems for row in rows) else DONE
    return Answer(DescriptorAnswer(instruction, role, trans, rows), show, status)


def _tensor_word(name: str, which: str, text: str | None) -> Answer[DescriptorAnswer]:
    """Decode or build the instruction descriptor or the zero-column mask of tcgen05.mma."""
    instruction = get(name)
    if not isinstance(instruction, TensorMma):
        raise InvalidOperand(f"{which} applies to tcgen05.mma, not to {instruction}")
    bits = MASK_BITS if which == "mask" else WORD_BITS
    number = None if text is None else _number(which, bits, text, "0x8400490")
    if which == "mask":
        mask = ZeroColumnMask.decode(number if number is not None else 0)
        m, n = instruction.shape.m or 128, instruction.shape.n or 256
        names = ("zeros", "used", "shift", "active", "starts", "zero_first")
        fields = [{"name": field, "meaning": getattr(mask, field)} for field in names]
        facts = DescriptorFacts(f"0x{mask.word:016x}", fields, mask.problems(m), columns=mask.columns(m, n))
    else:
        decoded = None if number is None else InstructionDescriptor.decode(number, kind=instruction.kind)
        idesc = decoded or instruction.descriptor()
        fields = [field._asdict() for field in idesc.explain()]
        facts = DescriptorFacts(f"0x{idesc.word:08x}", fields, idesc.problems(instruction))
    answer = DescriptorAnswer(instruction.name, which, trans=False, descriptors=[facts])
    return Answer(answer, lambda: _print(facts, trans=False), NO if facts.problems else DONE)


def _operand(name: str, role: str) -> Operand:
    instruction = get(name)
    operand = instruction.operands.get(role.lower())
    if not (isinstance(operand, Operand) and operand.staged):
        raise InvalidOperand(f"descriptors are for A and B of wgmma and tcgen05, not {quote(role)} of {instruction}")
    return operand


def _of_tile(
    operand: Operand | None, values: dict[str, int], word: str | None, tile: int, *, trans: bool
) -> list[Descriptor]:
    if operand is None:
        raise InvalidOperand("--tile needs --for INSTRUCTION OPERAND")
    others = [f"--{name.replace('_', '-')}" for name in values if name not in {"start", "swizzle"}]
    if word is not None or others:
        raise InvalidOperand(f"--tile takes only --start and --swizzle; got {quote(word) if word else others[0]} too")
    return operand.descriptors(k=tile, swizzle=values.get("swizzle"), trans=trans, start=values.get("start", 0))


def _facts(descriptor: Descriptor, problems: list[Problem], *, trans: bool) -> DescriptorFacts:
    fields = [field._asdict() for field in descriptor.explain()]
    values = {name: getattr(descriptor, name) for name in ("start", "leading", "stride", "swizzle", "base_offset")}
    cute, hints = descriptor.cute(trans=trans), descriptor.hints()
    return DescriptorFacts(f"0x{descriptor.word:016x}", fields, problems, cute, hints, **values)


def _print(facts: DescriptorFacts, *, trans: bool) -> None:
    print_heading(facts.word)
    if "raw" in facts.fields[0]:
        rows = [[each["name"], f"{each['high']}:{each['low']}", each["raw"], each["meaning"]] for each in facts.fields]
        print_table(["field", "bits", "raw", "meaning"], rows)
    else:
        texts = [(each["name"].replace("_", " "), each["meaning"]) for each in facts.fields]
        rows = [[name, " ".join(map(str, text)) if isinstance(text, tuple | list) else text] for name, text in texts]
        print_table(["field", "meaning"], rows)
    if facts.cute is not None:
        echo(f"CuTe, in units of 16 bytes, {'MN' if trans else 'K'}-major: {facts.cute}")
    echo_wrapped((f"hint: {hint}" for hint in facts.hints or ()), indent=6)
    echo_wrapped((f"problem: {problem.text}" for problem in facts.problems), indent=9)
