"""Random operands for an instruction, as registers or matrices, in the classes of `formats.random_codes`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.codes import code_dtype
from warpfrag.formats.random_codes import FLOAT_CLASSES, INTEGER_CLASSES, random_codes
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase


def classes(instruction: Instruction) -> tuple[str, ...]:
    """Return the operand classes that apply to an instruction."""
    return FLOAT_CLASSES if instruction.a.format.is_float else INTEGER_CLASSES


def random_words(
    instruction: Instruction, kind: str, cases: int, random: np.random.Generator, selector: int = 0
) -> dict[str, NDArray[np.uint32]]:
    """Return random registers: a, b, c as uint32[cases, 32, words]; metadata and scales as uint32[cases, 32].

    `kind` is one of the classes. Each slot is drawn separately, so copies of one element differ, and padding bits are
    random too. B of wgmma is in shared memory: see `random_bytes`.
    """
    roles = [role for role in "abc" if getattr(instruction, role).storage != "shared"]
    words = {role: _words(getattr(instruction, role), kind, cases, random) for role in roles}
    if instruction.pattern is not None:
        # Both mma.sp and mma.sp::ordered_metadata accept ascending codes, so in most classes both get the same
        # registers. Only mma.sp accepts descending codes, which occur in one class of floats and one of integers: if
        # only these classes differ from a GPU, descending codes are the likely cause.
        legal = list(instruction.pattern.columns if kind in {"finite", "extreme"} else instruction.pattern.rising)
        codes = random.choice(legal, (cases, *instruction.metadata.shape)).astype(np.uint8)
        unread = random.integers(0, 1 << 32, (cases, *instruction.metadata.threads), dtype=np.uint32)
        read = instruction.metadata.pack(np.full(instruction.metadata.shape, 15), selector=selector)
        words["metadata"] = (unread & ~read) | instruction.metadata.pack(codes, selector=selector)
    for role in ("scale_a", "scale_b"):
        operand = getattr(instruction, role)
        if operand is not None:
            around_unity = operand.format.encode(1.0) + random.integers(-6, 7, (cases, 32, 4))
            drawn = random.integers(0, operand.format.codes, (cases, 32, 4)) if kind == "bits" else around_unity
            words[role] = np.ascontiguousarray(drawn.astype(np.uint8)).view(np.uint32)[..., 0]
    return words


def _words(operand: OperandBase, kind: str, cases: int, random: np.random.Generator) -> NDArray[np.uint32]:
    """Return registers with a random code of this class in every slot."""
    row, threads = operand.spec, operand.threads
    if kind == "bits":
        return random.integers(0, 1 << 32, (cases, *threads, operand.words), dtype=np.uint32)
    codes = random_codes(row.format, kind, (cases, *threads, operand.regs, operand.slots), random)
    registers = np.zeros(codes.shape[:-1], np.uint64)
    for slot in range(operand.slots):
        registers |= codes[..., slot] << np.uint64(slot * row.container + row.low)
    wide = np.ascontiguousarray(registers)
    if row.register_bits > 32:
        return wide.view(np.uint32).reshape(cases, *threads, operand.words)
    return wide.astype(np.uint32)


def random_matrix(instruction: Instruction, role: str, random: np.random.Generator) -> NDArray[Any]:
    """Return random codes of class `plain` for one matrix; a sparse A is given in full, pruned."""
    operand = getattr(instruction, role)
    codes = random_codes(operand.format, "plain", operand.shape, random).astype(code_dtype(operand.format))
    if role != "a" or instruction.pattern is None:
        return codes
    fields = random.choice(list(instruction.pattern.rising), instruction.metadata.shape).astype(np.uint8)
    return instruction.expand(codes, fields, raw=True)
