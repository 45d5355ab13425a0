"""Count false diagnoses of `wf.diagnose`: results that are right, or that no mistake explains.

    python benchmarks/unexplained.py 2000 [SEED]

A third of the results are right. In the others, some elements are replaced by random other ones, some elements are
exchanged, all elements are in random order, or some elements have random bits flipped. Every mistake that is named for
one of these results is a false diagnosis: it is printed, and the exit status is 1.
"""

import sys

import numpy as np

import warpfrag as wf
from warpfrag.formats.codes import from_codes
from warpfrag.tensorcore.random_operands import random_matrix

FAMILIES = {
    "mma.m16n8k16.f32.f16.f16.f32": "sm_90",
    "mma.m16n8k16.f16.f16.f16.f16": "sm_80",
    "mma.m16n8k16.f32.bf16.bf16.f32": "sm_80",
    "mma.m16n8k8.f32.tf32.tf32.f32": "sm_90",
    "mma.m16n8k32.s32.s8.s8.s32": "sm_90",
    "mma.m16n8k64.s32.s4.u4.s32": "sm_90",
    "mma.m16n8k32.f32.e4m3.e5m2.f32": "sm_90",
    "mma.m16n8k256.s32.b1.b1.s32.and.popc": "sm_90",
}


def spoiled(right: np.ndarray, random: np.random.Generator, how: int) -> np.ndarray:
    """Return the codes of a result with one of four errors."""
    codes = right.copy().reshape(-1)
    some = random.choice(codes.size, random.integers(2, codes.size // 2), replace=False)
    if how == 0:
        codes[some] = random.permutation(codes)[: some.size]
    elif how == 1:
        codes[some] = np.roll(codes[some], 1)
    elif how == 2:
        codes = random.permutation(codes)
    else:
        codes[some] ^= random.integers(1 << 8, 1 << 12, some.size).astype(codes.dtype)
    return codes.reshape(right.shape)


def main() -> int:
    """Diagnose right results, and wrong ones without a known mistake, and count the false diagnoses."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    random = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 2026)
    named = right = unchanged = 0
    for number in range(count):
        name, arch = [*FAMILIES.items()][number % len(FAMILIES)]
        mma = wf.get(name)
        codes = {role: random_matrix(mma, role, random) for role in "abc"}
        A, B, C = (from_codes(mma.operands[role].format, codes[role]) for role in "abc")
        D = mma(A, B, C, arch=arch)
        expected = mma.d.codes(D)
        is_right = number % 3 == 0
        seen = expected if is_right else spoiled(expected, random, number % 4)
        found = wf.diagnose(mma, from_codes(mma.d.format, seen), A, B, C, arch=arch)
        same = np.array_equal(seen, expected)
        right += same
        unchanged += same and not is_right
        if found or found.correct != same:
            named += 1
            print(f"{number}: {name}: {found}")
        if number % 100 == 99:
            print(f"{number + 1} results, {right} of them right: {named} answers are wrong", flush=True)
    return int(named > 0)


if __name__ == "__main__":
    sys.exit(main())
