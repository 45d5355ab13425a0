"""Time `wf.diagnose` for each family: one mistake, a pair of mistakes, and a result that no mistake explains.

    python benchmarks/diagnose.py

Each figure is the shortest processor time of three runs, in seconds; the limit is two seconds per case.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import warpfrag as wf
from warpfrag.formats.codes import from_codes
from warpfrag.tensorcore.random_operands import random_matrix

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
FAMILIES = {
    "mma.m16n8k16.f32.f16.f16.f32": "sm_90",
    "mma.m16n8k16.f32.bf16.bf16.f32": "sm_80",
    "mma.m16n8k8.f32.tf32.tf32.f32": "sm_90",
    "mma.m16n8k32.s32.s8.s8.s32": "sm_90",
    "mma.m16n8k64.s32.s4.u4.s32": "sm_90",
    "mma.m16n8k32.f32.e4m3.e5m2.f32": "sm_90",
    "mma.m16n8k16.f64.f64.f64.f64": "sm_90",
    "mma.m16n8k256.s32.b1.b1.s32.and.popc": "sm_90",
    "mma.sp.m16n8k32.f32.f16.f16.f32": "sm_90",
    "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0": "sm_120",
    "wmma.mma.row.col.m16n16k16.f32.f32": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc": "sm_90",
    "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16": "sm_90",
    "wgmma.mma_async.sp.sync.aligned.m64n64k64.s32.s8.s8": "sm_90",
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16": "sm_90",
}


def best_of(call: Callable[[], object]) -> float:
    """Return the shortest processor time of several calls, in seconds."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    """Measure each family, and print the times."""
    print(f"{'seconds of processor time':<44} single    pair nothing found")
    worst = 0.0
    for name, arch in FAMILIES.items():
        mma = wf.get(name)
        random = np.random.default_rng(0)
        roles = [role for role in ("a", "b", "c", "scale_a", "scale_b") if role in mma.operands]
        codes = {role: random_matrix(mma, role, random) for role in roles}
        values: dict[str, Any] = {role: from_codes(mma.operands[role].format, codes[role]) for role in roles}
        scales = {role: values[role] for role in roles[3:]}
        A, B, C = (values[role] for role in "abc")
        right = mma.d.pack(mma(A, B, C, **scales, arch=arch))
        swapped = right[..., np.arange(32) ^ 4, :]
        both = swapped[..., ::-1] if mma.d.words == mma.d.regs else np.roll(swapped, 1, axis=-2)
        seen = {
            "single": swapped,
            "pair": np.ascontiguousarray(both),
            "nothing": np.roll(right, 3, axis=-2) ^ np.uint32(1),
        }
        times = [best_of(partial(wf.diagnose, mma, d, A, B, C, **scales, arch=arch)) for d in seen.values()]
        worst = max(worst, *times)
        short = name.replace("sync.aligned.", "")[:42]
        print(f"  {short:<42} {times[0]:7.2f} {times[1]:7.2f} {times[2]:7.2f}", flush=True)
    print(f"slowest {worst:.2f}")


if __name__ == "__main__":
    main()
