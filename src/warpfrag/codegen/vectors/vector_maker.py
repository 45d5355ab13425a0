"""Operands for test vectors: matrices of codes, and the registers that hold them.

What an instruction does not read (metadata for other selectors, scales for other ids) is filled with other legal
values, so that a wrong selector or id shows. A seed stands for the same vectors in every version, so the draws here
keep their order and distribution; `catalog.random_operands`, which fills registers place by place, has others.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.codegen.vectors.vector_group import VectorGroup, run
from warpfrag.formats.codes import code_dtype, to_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.formats.number_formats import Format
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction

RANDOM_CASES = 8


class VectorMaker:
    """Makes operands of one instruction from one seed, and groups of test vectors of them.

    `few` is the number of cases of a random group. `is_large`: one case has so many elements that few cases will do.
    """

    few = RANDOM_CASES
    is_large = False

    def __init__(self, instruction: Instruction, arch: str, seed: int = 1) -> None:
        """The same seed gives the same operands."""
        self.instruction = instruction
        self.arch = arch
        self.random = np.random.default_rng(seed)

    def zeros(self, role: str, cases: int) -> NDArray[Any]:
        """Codes of zero."""
        operand = self.instruction.operands[role]
        return np.zeros((cases, *operand.shape), code_dtype(operand.format))

    def exact(self, role: str, values: NDArray[Any]) -> NDArray[Any]:
        """Codes of values that the format holds exactly; of a sparse A the values are the full matrix."""
        return to_codes(self.instruction.operands[role].format, values)

    def finite(self, role: str, cases: int) -> NDArray[Any]:
        """Codes of finite numbers, every one as likely; for C, numbers about as large as the products' sums."""
        operand = self.instruction.operands[role]
        shape = (cases, *operand.shape)
        if role == "c":
            return self.accumulators(cases, 0, 6)
        codes = self.random.choice(finite_codes(operand.format), shape)
        if operand.format.unused:  # bits that the hardware drops: let them say something
            codes |= self.random.integers(0, 1 << operand.format.unused, shape, np.uint64)
        return codes.astype(code_dtype(operand.format))

    def accumulators(self, cases: int, low: int, high: int) -> NDArray[Any]:
        """Codes of C: floats with exponents in a range and any fraction, or integers of at most 2 ** high."""
        operand = self.instruction.operands["c"]
        shape = (cases, *operand.shape)
        if not operand.format.is_float:
            return self.exact("c", self.random.integers(-(1 << high), 1 << high, shape).astype(np.int32))
        exponent = self.random.integers(low, high + 1, shape)
        values = np.ldexp(self.random.uniform(1, 2, shape), exponent) * self.random.choice([-1.0, 1.0], shape)
        codes: NDArray[Any] = operand.codes(values, rounding="rne")
        return codes

    def fields(self, cases: int) -> NDArray[Any]:
        """Legal metadata codes, of every kind that the instruction takes."""
        pattern = self.instruction.pattern
        legal = sorted(pattern.columns) if pattern else [0]
        return self.random.choice(np.array(legal, np.uint8), (cases, *self.instruction.metadata.shape))

    def stored(self, codes: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The same operands; those of a sparse A are its stored half, and metadata codes say of which columns."""
        if "metadata" in self.instruction.operands:
            codes["metadata"] = self.fields(len(codes["b"]))
        return codes

    def scales(self, role: str, cases: int, *, unit: bool = False) -> NDArray[Any]:
        """Codes of scale factors: all 1, or within a few powers of two of it."""
        operand = self.instruction.operands[role]
        if unit:
            return np.full((cases, *operand.shape), operand.format.encode(1.0), np.uint8)
        return self.random.choice(codes_near_unity(operand.format), (cases, *operand.shape))

    def group(self, name: str, catches: str, codes: dict[str, NDArray[Any]], choice: Immediates) -> VectorGroup:
        """Pack matrices of codes and run them. A sparse A is full without metadata codes, else stored."""
        words = self.pack(codes, choice)
        return VectorGroup(name, catches, words, run(self.instruction, words, choice, self.arch), choice)

    def pack(self, codes: dict[str, NDArray[Any]], choice: Immediates) -> dict[str, NDArray[np.uint32]]:
        """Registers of matrices of codes; what is missing of metadata and scales is made up."""
        instruction = self.instruction
        codes = self._compressed(codes)
        cases = len(codes["b"])
        matrices = (instruction.a, instruction.b, instruction.c)
        words = {operand.role: operand.pack(codes[operand.role], raw=True) for operand in matrices}
        for role in instruction.operands.selected_layouts:
            if role == "metadata":
                words[role] = self._metadata_words(codes[role], **choice.of(role))
            else:
                scales = codes[role] if role in codes else self.scales(role, cases, unit=True)
                words[role] = self._scale_words(role, scales, **choice.of(role))
        return words

    def _compressed(self, codes: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Codes with metadata, where the instruction takes any: without it, a sparse A is full and is compressed."""
        if "metadata" in codes or "metadata" not in self.instruction.operands:
            return codes
        stored, metadata = self.instruction.compress(codes["a"], raw=True)
        return {**codes, "a": stored, "metadata": metadata}

    def _metadata_words(self, fields: NDArray[Any], selector: int) -> NDArray[np.uint32]:
        metadata = self.instruction.metadata
        parts = [
            metadata.pack(fields if number == selector else self.fields(len(fields)), selector=number)
            for number in metadata.selectors
        ]
        return reduce(or_, parts)

    def _scale_words(self, role: str, scales: NDArray[Any], byte_id: int, thread_id: int) -> NDArray[np.uint32]:
        operand: Any = self.instruction.operands[role]
        parts = []
        for thread in operand.thread_ids:
            for byte in operand.byte_ids:
                mine = (byte, thread) == (byte_id, thread_id)
                part = scales if mine else self.scales(role, len(scales))
                parts.append(operand.pack(part, byte_id=byte, thread_id=thread, raw=True))
        return reduce(or_, parts)


@cache
def finite_codes(number_format: Format) -> NDArray[Any]:
    """Codes of finite numbers: all of a narrow format; of a wide one many, whose sums do not overflow."""
    if number_format.bits <= 8:
        return np.array([code for code in range(number_format.codes) if _is_finite(number_format, code)], np.uint64)
    sample = np.random.default_rng(0)
    values = np.ldexp(sample.uniform(-2, 2, 4096), sample.integers(-5, 6, 4096))
    return to_codes(number_format, values, rounding="rne").astype(np.uint64)


@cache
def codes_near_unity(number_format: Format) -> NDArray[Any]:
    """Codes of numbers within three powers of two of 1."""
    near = [code for code in finite_codes(number_format).tolist() if 2.0**-3 <= number_format.decode(code) <= 2.0**3]
    return np.array(near, np.uint8)


def _is_finite(number_format: Format, code: int) -> bool:
    value = number_format.decode(code)
    return bool(np.isfinite(value))
