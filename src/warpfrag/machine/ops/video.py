"""Opcode rows for video instructions.

SIMD instructions compute two halves or four bytes of a register at once (as CUDA's __vabsdiffu4 does). Scalar
instructions take one byte, one half or all of each source, as in `%r1.b2`, and then apply a second operation with c, or
insert their result into a part of c. No GPU since Maxwell executes them directly: ptxas emits sequences of other
instructions, which do not always match the manual. The results here are those of an H200. An instruction whose results
follow no known rule is rejected.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from warpfrag.machine.ir.actions import LaneOp, Refused
from warpfrag.machine.ir.opcode import Attributes, OpcodeRow
from warpfrag.machine.ir.scalar_types import B32, S32, U32, Codes, Type
from warpfrag.machine.ops.opcode_rows import optional, required, row
from warpfrag.machine.semantics.conversions import limits
from warpfrag.machine.semantics.integers import COMPARE

ISA = "PTX ISA, Video Instructions"
SEQUENCE = f"{ISA}: the sequence that ptxas 13.0 emits for sm_90"
CASES = 128  # threads per spelling that were compared with an H200
EITHER = (U32, S32)
OPERATIONS: dict[str, Callable[[Codes, Codes], Codes]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def _parts(codes: Codes, count: int, ptx_type: Type) -> list[Codes]:
    """Return the parts of packed registers as integers, low bits first."""
    bits = 32 // count
    parts = [codes.astype(np.int64) >> bits * part & ((1 << bits) - 1) for part in range(count)]
    return [part - ((part >> (bits - 1)) << bits) for part in parts] if ptx_type.kind == "s" else parts


def _by_parts(attributes: Attributes) -> LaneOp:
    """Return the action that applies an operation to each part of a and b; with .add, it sums the results and c."""
    count = int(attributes.opcode[-1])
    bits = 32 // count
    comparison = attributes.comparison
    operation = COMPARE[comparison] if comparison else OPERATIONS[attributes.opcode[:-1]]
    first, second = attributes.types[-2:]

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        pairs = zip(_parts(a, count, first), _parts(b, count, second), strict=True)
        results = [operation(x, y).astype(np.int64) for x, y in pairs]
        if attributes.sat:
            results = [np.clip(part, *limits(attributes.types[0].kind, bits)) for part in results]
        if attributes.accumulate:
            return (c.astype(np.int64) + sum(results)).astype(np.uint32)
        total = np.zeros(a.shape, np.int64)
        for place, part in enumerate(results):
            total |= (part & ((1 << bits) - 1)) << bits * place
        return total.astype(np.uint32)

    return LaneOp((B32,), (B32, B32, B32), run)


# --- scalar instructions: the operands after a, b and c are constants: the selectors of d, a and b, and the negations


def _selected(codes: Codes, selector: int, ptx_type: Type) -> Codes:
    """Return the selected part of each register, as an integer."""
    start, bits = SELECTORS[selector]
    part = codes.astype(np.int64) >> start & ((1 << bits) - 1)
    return part - ((part >> (bits - 1)) << bits) if ptx_type.kind == "s" else part


def _shifted(a: Codes, b: Codes, *, left: bool, wraps: bool) -> Codes:
    count = b & 31 if wraps else np.minimum(b, 32)
    return a << count if left else a >> count


def _scalar_operation(attributes: Attributes) -> Callable[[Codes, Codes], Codes]:
    if attributes.comparison:
        return COMPARE[attributes.comparison]
    if attributes.opcode in {"vshl", "vshr"}:
        return partial(_shifted, left=attributes.opcode == "vshl", wraps=attributes.wraps)
    return SCALAR_OPERATIONS[attributes.opcode]


def _departs(attributes: Attributes) -> bool:
    """Return True if an H200's results differ from the manual and follow no known rule."""
    is_merged = attributes.operand_count == MERGED_OPERANDS or attributes.operation is not None
    if attributes.operation in {"min", "max"}:
        return attributes.comparison is None
    return attributes.sat and (is_merged or attributes.opcode in {"vabsdiff", "vshl"})


WRAP_ABOVE = {("vadd", "u32", "s32", "u32"), ("vadd", "u32", "u32", "s32"), ("vsub", "u32", "u32", "s32")}
"""Mixed-sign sums for which .sat on an H200 clamps only at 0 and wraps above the range."""


def _scalar(attributes: Attributes) -> LaneOp | Refused:
    """Return the action of a scalar video instruction, whose result is combined with c or inserted into c."""
    if _departs(attributes):
        return Refused(f"{attributes.name} is not modelled: {DEPARTURE}")
    second, operation = attributes.operation, _scalar_operation(attributes)
    kinds = attributes.types[-2:]
    ptx_type = attributes.types[0]  # the second operation of vset uses a's signedness
    wraps = attributes.opcode == "vadd" and set(attributes.types) == {U32}  # .sat has no effect on an H200
    wraps_above = (attributes.opcode, *(scalar_type.name for scalar_type in attributes.types)) in WRAP_ABOVE

    def run(a: Codes, b: Codes, c: Codes, into: int, select_a: int, select_b: int, _signs: int) -> Codes:
        start, bits = SELECTORS[into]
        result = operation(_selected(a, select_a, kinds[0]), _selected(b, select_b, kinds[1])).astype(np.int64)
        if attributes.sat and not wraps:
            lowest, highest = limits(ptx_type.kind, bits)
            result = np.maximum(result, lowest) if wraps_above else np.clip(result, lowest, highest)
        if second:
            result = SECOND_OPERATIONS[second](result, _selected(c, 0, ptx_type))
        elif into:
            mask = (1 << bits) - 1 << start
            result = (result if into == HIGH_HALF else result << start) & mask | c.astype(np.int64) & ~mask
        return result.astype(np.uint32)

    return LaneOp((B32,), SCALAR_SOURCES, run)


def _multiply_add(attributes: Attributes) -> LaneOp | Refused:
    """Return the action of vmad, which computes the low word of a product of two parts plus c."""
    if attributes.sat or attributes.shift_right:
        return Refused(f"{attributes.name} is not modelled: {DEPARTURE}")
    kinds = attributes.types[1:]

    def run(a: Codes, b: Codes, c: Codes, _into: int, select_a: int, select_b: int, signs: int) -> Codes:
        parts = (_selected(a, select_a, kinds[0]), _selected(b, select_b, kinds[1]))
        product = parts[0].astype(np.uint64) * parts[1].astype(np.uint64)
        total = (-product if signs & 3 in {1, 2} else product) + (-c if signs & 4 else c).astype(np.uint64)
        return (total + np.uint64(attributes.increment)).astype(np.uint32)

    return LaneOp((B32,), SCALAR_SOURCES, run)


DEPARTURE = "the code that ptxas emits differs from the PTX manual"
MERGED_OPERANDS = 4
SELECTORS = ((0, 32), (0, 8), (8, 8), (16, 8), (24, 8), (0, 16), (16, 16))
"""The first bit and the width of each register part in `ir.program.SELECTORS`."""
HIGH_HALF = 6  # ptxas inserts the high half of the result into d; the manual specifies the low half
SCALAR_SOURCES = (B32, B32, B32, None, None, None, None)
SCALAR_OPERATIONS = {name: OPERATIONS[name] for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")}
SECOND_OPERATIONS: dict[str, Callable[[Codes, Codes], Codes]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
ORDER = required("eq", "ne", "lt", "le", "gt", "ge")
ROWS: list[OpcodeRow] = [
    opcode_row
    for count in (2, 4)
    for opcode_row in (
        *(row(f"{name}{count}", [EITHER] * 3, _by_parts, ISA, sat=optional("sat")) for name in OPERATIONS),
        *(row(f"{name}{count}", [EITHER] * 3, _by_parts, ISA, accumulate=required("add")) for name in OPERATIONS),
        row(f"vset{count}", [EITHER] * 2, _by_parts, ISA, comparison=ORDER, accumulate=optional("add")),
    )
]
SECOND = optional("add", "min", "max")
ROWS += [
    *(
        row(name, [EITHER] * 3, _scalar, SEQUENCE, level="measured", cases=CASES, sat=optional("sat"), operation=SECOND)
        for name in SCALAR_OPERATIONS
    ),
    *(
        row(
            name, [EITHER, EITHER, (U32,)], _scalar, SEQUENCE, level="measured", cases=CASES,
            sat=optional("sat"), wraps=required("clamp", "wrap"), operation=SECOND,
        )
        for name in ("vshl", "vshr")
    ),
    row("vset", [EITHER] * 2, _scalar, SEQUENCE, level="measured", cases=CASES, comparison=ORDER, operation=SECOND),
    row(
        "vmad", [EITHER] * 3, _multiply_add, SEQUENCE, level="measured", cases=CASES,
        increment=optional("po"), sat=optional("sat"), shift_right=optional("shr7", "shr15"),
    ),
]  # fmt: skip
