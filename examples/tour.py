"""The main job, shown on one instruction: find it, place its operands, execute it, compare with a real GPU.

`make run` runs this. It writes into out/ and says what it wrote where.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import warpfrag as wf
from warpfrag.catalog.captures import load_cases
from warpfrag.core.expressions import element_formulas
from warpfrag.explorer import build_page

NAME = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
OUT = Path("out")


def main() -> None:
    """Walk through everything once."""
    mma = wf.get(NAME)
    print(f"{mma.name}\n  legal on {', '.join(mma.targets)}")
    names = wf.aliases(mma)
    print(f"  elsewhere: {names['cute']} in CuTe, {names['sass']['sm_90']} on sm_90, {names['nvvm']} in LLVM")
    check("these names lead back to it", all(wf.get(names[where]) is mma for where in ("cute", "nvvm", "mlir")))
    print()

    print("its operands, and where lane 5 of each sits")
    for role in "abcd":
        operand = getattr(mma, role)
        formulas = element_formulas(operand.layout)
        held = [tuple(operand.layout.at(lane=5, reg=reg)) for reg in range(operand.regs)]
        print(f"  {role}: {operand.format} {operand.shape}, {operand.regs} x {operand.ptx_type}")
        print(f"     row = {formulas['row']}, col = {formulas['col']}")
        print(f"     lane 5, slot 0 of each register: {' '.join(map(str, held))}")

    random = np.random.default_rng(0)
    A, B = random.standard_normal((16, 16)).astype(np.float16), random.standard_normal((16, 8)).astype(np.float16)
    C = random.standard_normal((16, 8)).astype(np.float32)
    words = {"a": mma.a.pack(A), "b": mma.b.pack(B), "c": mma.c.pack(C)}
    for role, matrix in (("a", A), ("b", B), ("c", C)):
        back = getattr(mma, role).unpack(words[role], strict=True)
        check(f"unpack(pack({role.upper()})) is {role.upper()}, bit for bit", np.array_equal(back, matrix))

    words["d"] = wf.execute(mma, words["a"], words["b"], words["c"], arch="sm_90")
    D = mma.d.unpack(words["d"])
    check("on matrices it gives the same codes", np.array_equal(mma(A, B, C, arch="sm_90"), D))
    exact = A.astype(np.float64) @ B.astype(np.float64) + C
    print(f"  largest difference from float64 arithmetic: {abs(D - exact).max():.2g} (the tensor core truncates)")

    cases = list(load_cases(mma))
    equal = all(np.array_equal(wf.execute(mma, case.a, case.b, case.c), case.d) for case in cases)
    check(f"{sum(len(case.d) for case in cases)} captured cases: every code equal", equal)
    known = mma.evidence("sm_90")
    print(f"  evidence on sm_90: {known.level}, {known.detail}\n")

    show_motion(mma)
    show_warpgroup()

    OUT.mkdir(exist_ok=True)
    np.savez(OUT / "tour.npz", A=A, B=B, C=C, D=D, **{f"{role}_words": array for role, array in words.items()})
    print(f"wrote {OUT / 'tour.npz'}: the matrices and the registers of all 32 lanes")
    wf.draw(mma).save(OUT / "tour.svg")
    print(f"wrote {OUT / 'tour.svg'}: A, B and D, each cell with its lane and element")
    (OUT / "explorer.html").write_text(build_page(), encoding="utf-8")
    print(f"wrote {OUT / 'explorer.html'}: every instruction, in a browser")


def show_motion(mma: wf.Instruction) -> None:
    """From the result of one product to the A of the next, and from shared memory to A."""
    scores = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    two = mma.d.tiled(col=2)
    plan = wf.relayout(two, mma.a)
    print("does this accumulator fit the A of the next product?")
    print(f"  from D, two tiles side by side: {plan}")
    moved = np.array_equal(plan(two.pack(scores)), mma.a.pack(scores, rounding="rne"))
    check("its registers, rounded to f16 in their lanes, are those of A", moved)

    print("which loads fill A from rows of 128 bytes in shared memory?")
    for swizzle in (0, 128):
        plan = wf.loads(mma.a, wf.Memory(order="row", pitch=128, swizzle=swizzle))[0]
        print(f"  {f'swizzle of {swizzle} bytes' if swizzle else 'no swizzle'}: {plan}")
    print()


def show_warpgroup() -> None:
    """The instruction of four warps: B lies in shared memory, where a descriptor says."""
    wgmma = wf.get("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16")
    random = np.random.default_rng(2)
    A, B = (random.integers(-9, 10, operand.shape).astype(np.float16) for operand in (wgmma.a, wgmma.b))
    tile = wgmma.b.store(B, wf.Descriptor(stride=1024, swizzle=128))
    D = wgmma.d.unpack(wf.execute(wgmma, wgmma.a.pack(A), tile, arch="sm_90"))
    print(f"{wgmma.name}, B by descriptor 0x{tile.descriptor.word:016x}")
    print(f"  B[9, 3] is at byte {wgmma.b.addresses(tile.descriptor)[9, 3]} of shared memory")
    check("D is A times B", np.array_equal(D, A.astype(np.float32) @ B.astype(np.float32)))
    print()


def check(what: str, holds: bool) -> None:  # noqa: FBT001 (it reads as a sentence)
    """Say that something holds, or stop."""
    if not holds:
        sys.exit(f"NOT TRUE: {what}")
    print(f"  ok: {what}")


if __name__ == "__main__":
    main()
