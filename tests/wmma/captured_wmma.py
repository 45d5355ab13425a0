"""The captured results of wmma.mma, and fragments for the registers they were computed from."""

from functools import cache

import warpfrag as wf
from warpfrag import wmma
from warpfrag.tensorcore.captures.capture import captures
from warpfrag.wmma.wmma_types import BY_FORMAT, MatrixLayout

BIT_OPERATIONS = {"xor": wmma.experimental.bmmaBitOpXOR, "and": wmma.experimental.bmmaBitOpAND}


@cache
def captured_products():
    """Every captured case of wmma.mma on sm_90, by the name of its instruction: one pass over the files."""
    found = {}
    for capture in captures():
        if capture.about["arch"] == "sm_90":
            for case in capture.cases():
                if case.instruction.startswith("wmma.mma"):
                    found.setdefault(wf.get(case.instruction).name, []).append(case)
    return found


def fragments_for(instruction):
    """Fragments d, a, b, c of the types, sizes and layouts of a wmma.mma."""
    uses = {"d": wmma.accumulator, "a": wmma.matrix_a, "b": wmma.matrix_b, "c": wmma.accumulator}
    layouts = dict(zip("ab", map(MatrixLayout, instruction.layouts), strict=True))
    return [
        wmma.fragment(use, *instruction.shape, BY_FORMAT[getattr(instruction.form, role)], layouts.get(role))
        for role, use in uses.items()
    ]


def multiply(instruction, d, a, b, c):
    """Return the nvcuda::wmma call for this instruction."""
    form = instruction.form
    if form.bitop:
        wmma.experimental.bmma_sync(d, a, b, c, BIT_OPERATIONS[form.bitop])
    else:
        wmma.mma_sync(d, a, b, c, form.satfinite)
