"""Exceptional outputs of a step, computed from codes by the scalar rule: those that the vector loops do not cover.

They have an infinity or a NaN in the step, products further than 62 binades below what their groups allow, or
a common exponent near the ends of f32's range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.tensorcore.encodings import MIN_COMMON_EXPONENT
from warpfrag.tensorcore.kernels.constants import Constants
from warpfrag.tensorcore.kernels.jit import Flag, Float, Int, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f32, f32_of_bits
from warpfrag.tensorcore.kernels.prepare import BLOCK, MAX_EXPONENT, MIN_SPECIAL_SUM, PITCH, SourceOperands
from warpfrag.tensorcore.kernels.scalar import Dot, fused_step
from warpfrag.tensorcore.kernels.strip import (
    BIAS,
    MAX_COMMON_EXPONENT,
    MAX_RELATIVE_SUM,
    MAX_UNRELIABLE_SUM,
    Scratch,
    Strip,
    biased_exponent,
    group_of,
    group_size,
)
from warpfrag.tensorcore.kernels.vector import STRIP, ElementPointer


@inner
def truncate_c(value: Float, fraction_bits: Int) -> Float:
    """Return C after a step that keeps it: truncated to the kept bits; -0 becomes +0."""
    mask = np.int32(-(1 << max(23 - fraction_bits, 0)))
    kept = f32_of_bits(np.int32(bits_of_f32(np.float32(value)) & mask)) + np.float32(0.0)
    return value if np.isnan(value) else np.float64(kept)


@inner
def keeps_c(c: Float, max_relative: Int, pair: Int) -> Flag:
    """Return True if a step keeps C: its products are all 0, or C is infinite or NaN and no product is.

    `max_relative` is the largest sum of relative exponents, `pair` the sum of the group maxima they are relative to.
    """
    return (pair < MIN_SPECIAL_SUM) & ((max_relative < np.int8(0)) | (biased_exponent(c) == np.int32(2047)))


@inner
def is_exceptional(c: Float, max_relative: Int, pair: Int) -> Flag:
    """Return True if the vector loops do not cover an output: its step does not keep C and an exponent is too far."""
    exponent_c = np.int32(biased_exponent(c) - np.int32(BIAS))
    reach = max(np.int32(pair + np.int32(np.int32(max_relative) - np.int32(MAX_RELATIVE_SUM))), exponent_c)
    out_of_range = (
        (pair >= MIN_SPECIAL_SUM)
        | (max_relative <= MAX_UNRELIABLE_SUM)
        | (reach < MIN_COMMON_EXPONENT)
        | (reach > MAX_COMMON_EXPONENT)
    )
    return out_of_range & (not keeps_c(c, max_relative, pair))


class ExceptionalRow(NamedTuple):
    """An exceptional row of a strip: its index, and the position of its outputs."""

    index: Int  # among the rows of A
    step: Int
    start: Int  # column of its first output
    width: Int
    own: Int  # its index in the scratch
    at_partials: Int
    at_group: Int


@inner
def redo_exceptional_row(
    partials: ElementPointer,
    saved: ElementPointer,
    max_exponents: ElementPointer,
    a_largest: Int,
    b_groups: ElementPointer,
    source: SourceOperands,
    constants: Constants,
    row: ExceptionalRow,
) -> None:
    """Repeat the step, by the scalar rule, for the outputs of a row that the vector loops do not cover."""
    any_exceptional = np.uint32(0)
    for j in range(row.width):  # no branch: most exceptional rows have outputs that keep C, and nothing else
        c, max_relative = saved[row.own + j], max_exponents[row.own + j]
        pair = np.int32(a_largest + b_groups[row.at_group + j])
        kept = truncate_c(c, constants.fraction_bits)
        partials[row.at_partials + j] = kept if keeps_c(c, max_relative, pair) else partials[row.at_partials + j]
        any_exceptional |= np.uint32(is_exceptional(c, max_relative, pair))
    if any_exceptional == np.uint32(0):
        return
    first = row.step * constants.products
    last = first + constants.products
    instruction = row.step // constants.steps
    places = source.order[first:last]
    rows = source.rows[row.index, first:last] if source.rows.shape[0] > 0 else places
    for j in range(row.width):
        c = saved[row.own + j]
        if is_exceptional(c, max_exponents[row.own + j], np.int32(a_largest + b_groups[row.at_group + j])):
            column = row.start + np.int64(j)
            scale = np.int64(0)
            if source.scale_a.size > 0:
                scale = np.int64(source.scale_a[row.index, instruction]) + np.int64(source.scale_b[instruction, column])
            dot = Dot(a=source.a[row.index], b=source.b[:, column], places=places, rows=rows, scale=scale)
            partials[row.at_partials + j] = fused_step(c, dot, constants)


@inner
def redo_exceptional_rows(
    partials: ElementPointer,
    scratch: Scratch[ElementPointer],
    a_groups: ElementPointer,
    b_groups: ElementPointer,
    source: SourceOperands,
    constants: Constants,
    strip: Strip,
) -> None:
    """Repeat the step for the exceptional rows of a strip."""
    start = strip.geometry.first_column
    width = np.uintp(min(BLOCK, source.b.shape[1] - start))
    for row in range(min(np.uintp(STRIP), strip.geometry.last_row + np.uintp(1) - strip.row)):
        if scratch.exceptional[row]:
            own, index = row * PITCH, strip.row + row
            again = ExceptionalRow(
                index=index,
                step=strip.step,
                start=start,
                width=width,
                own=own,
                at_partials=strip.at_partials + own,
                at_group=strip.at_group,
            )
            largest = a_groups[group_of(strip, row) * group_size(strip) + MAX_EXPONENT]
            redo_exceptional_row(
                partials, scratch.saved, scratch.max_exponents, largest, b_groups, source, constants, again
            )
