"""Fragments in motion on a real GPU: emitted relayouts against what Python gives, and bank conflicts in cycles.

    python -m tools.motion [REPORT.md]

It needs nvcc. Every plan of a sample that has each kind of step is compiled and run on random registers, and every kind
of way to load and store on random memory. Then loads of one operand from differently laid out shared memory are timed:
more passes must take more cycles.
"""

from __future__ import annotations

import math
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from tools.arguments import make_parser
from tools.tiles import compile_cuda
from warpfrag.errors import WarpfragError
from warpfrag.files import write_atomically
from warpfrag.hardware.gpu_device import Gpu, open_gpu
from warpfrag.plans.loads import loads, stores
from warpfrag.plans.relayout import MAX_TILES, Relayout, fragments, relayout, tiled_alike, warpgroup_fragments
from warpfrag.smem.shared_memory import Memory
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.plans.access_plan import AccessPlan

CASES = 8
REPEATS = 64
SHARED_WORDS = 2048
TARGET = "sm_90"  # what every way of the sample runs on
ORDERS: tuple[Literal["row", "col"], ...] = ("row", "col")


def sample_plans(most_tiles: int = 2) -> list[Relayout]:
    """A plan of every kind: formats, containers and steps, the first of each."""
    kinds: dict[object, Relayout] = {}
    for some, most in ((fragments(), most_tiles), (warpgroup_fragments(), MAX_TILES)):
        for source, target in product(some, repeat=2):
            pair = tiled_alike(source, target, most)
            if pair is not None:
                plan = relayout(*pair)
                steps = tuple(type(step).__name__ for step in plan.operations)
                kinds.setdefault((source.threads, source.format.bits, target.format.name, *steps), plan)
    fp8, wgmma = get("mma.m16n8k32.f32.e4m3.e4m3.f32"), get("wgmma.mma_async.m64n64k32.f32.e4m3.e4m3")
    trips = [relayout(fp8.d.tiled(col=4), fp8.a), relayout(fp8.d.tiled(col=4), fp8.a, permute="col")]
    return [*trips, relayout(wgmma.d, wgmma.a.tiled(col=2), permute="col"), *kinds.values()]


def relayout_unit(plans: list[Relayout]) -> str:
    """A translation unit with a kernel for each plan: from registers in memory to registers in memory."""
    parts = ["#include <cstdint>"]
    for number, plan in enumerate(plans):
        given = f"uint32_t (*d)[{plan.target.words}], const uint32_t (*a)[{plan.source.words}]"
        parts += [
            plan.emit("cuda", name=f"plan{number}"),
            f'extern "C" __global__ void kernel{number}({given}) {{',
            "    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;",
            f"    plan{number}(a[thread], d[thread]);",
            "}",
        ]
    return "\n".join(parts)


def check_relayouts(gpu: Gpu, folder: Path) -> Iterator[str]:
    """Every plan on random registers of all bit patterns: the lines of a report, one for each that differs."""
    plans = sample_plans()
    module = gpu.load_binary(compile_cuda(relayout_unit(plans), gpu.target, 0, folder))
    random = np.random.default_rng(11)
    wrong = 0
    for number, plan in enumerate(plans):
        threads = plan.source.threads
        words = random.integers(0, 1 << 32, (CASES, *threads, plan.source.words), np.uint32)
        # the registers of a fragment with copies or padding hold a matrix: make them so
        words = plan.source.pack(plan.source.unpack(words, raw=True), raw=True)
        blank = np.zeros((CASES, *threads, plan.target.words), np.uint32)
        found = gpu.run_blocks(module, f"kernel{number}", CASES, [blank, words], math.prod(threads[:-1]))
        if not np.array_equal(found, plan(words)):
            wrong += 1
            at = tuple(int(index) for index in np.argwhere(found != plan(words))[0])
            pair = f"{int(found[at]):08x} on the GPU, {int(plan(words)[at]):08x} here"
            yield f"* DIFFERS: {plan.source} -> {plan.target}, case, lane, word {at}: {pair}"
    of_four = sum(len(plan.source.threads) > 1 for plan in plans)
    yield (
        f"* {len(plans)} plans, {of_four} of them of four warps, on {CASES} sets of registers each:"
        f" {len(plans) - wrong} equal in every bit"
    )


def sample_ways() -> list[AccessPlan]:
    """A way of every kind: by its instructions, its swizzle and where the memory starts."""
    mma, integers = get("mma.m16n8k16.f32.f16.f16.f32"), get("mma.m16n8k32.s32.s8.s8.s32")
    operands = [mma.a, mma.b, mma.b.tiled(col=2), mma.d, integers.a, integers.b, get("mma.m16n8k16.f64.f64.f64.f64").a]
    half, narrow = get("wgmma.mma_async.m64n32k16.f16.f16.f16"), get("wgmma.mma_async.m64n16k32.s32.s8.s8")
    operands += [half.a, half.d, narrow.a, narrow.d]
    kinds: dict[object, AccessPlan] = {}
    for operand, order in product(operands, ORDERS):
        tight = max(16, operand.layout.outs["col" if order == "row" else "row"] * operand.spec.container // 8)
        memories = [Memory(order, tight), Memory(order, tight + 16)]
        memories += [Memory(order, -(-tight // swizzle) * swizzle, swizzle, start=64) for swizzle in (32, 64, 128)]
        for memory in memories:
            for way in (*loads(operand, memory), *stores(operand, memory)):
                if TARGET in way.targets:
                    kinds.setdefault((operand.threads, way.name, memory.swizzle, memory.start), way)
    return list(kinds.values())


def ways_unit(ways: list[AccessPlan]) -> str:
    """A translation unit with a kernel for each way: a memory to registers, or registers to a memory."""
    parts = ["#include <cstdint>"]
    for number, way in enumerate(ways):
        words, is_load = way.operand.words, way.direction == "load"
        given = (
            f"uint32_t (*d)[{words}], const uint32_t* a" if is_load else f"uint32_t* d, const uint32_t (*a)[{words}]"
        )
        before, after = ("a[i]", "") if is_load else ("0", "d[i] = memory[i]")
        call = f"way{number}({'d' if is_load else 'a'}[threadIdx.x], base);"
        parts += [
            way.emit("cuda", name=f"way{number}"),
            f'extern "C" __global__ void kernel{number}({given}) {{',
            f"    __shared__ __align__(1024) uint32_t memory[{SHARED_WORDS}];",
            f"    for (int i = threadIdx.x; i < {SHARED_WORDS}; i += blockDim.x) memory[i] = {before};",
            "    __syncthreads();",
            "    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));",
            f"    {call}",
            "    __syncthreads();",
            *([f"    for (int i = threadIdx.x; i < {SHARED_WORDS}; i += blockDim.x) {after};"] if after else []),
            "}",
        ]
    return "\n".join(parts)


def check_ways(gpu: Gpu, folder: Path) -> Iterator[str]:
    """Every way on random bytes: the lines of a report, one for each that differs."""
    ways = [way for way in sample_ways() if gpu.target in way.targets]
    module = gpu.load_binary(compile_cuda(ways_unit(ways), gpu.target, 2, folder))
    random = np.random.default_rng(12)
    wrong = 0
    for number, way in enumerate(ways):
        shared = random.integers(0, 1 << 32, SHARED_WORDS, np.uint32)
        threads = way.operand.threads
        words, warps = random.integers(0, 1 << 32, (*threads, way.operand.words), np.uint32), math.prod(threads[:-1])
        if way.direction == "load":
            expected = way.load(shared.view(np.uint8))
            found = gpu.run_blocks(module, f"kernel{number}", 1, [np.zeros_like(words), shared], warps)
        else:
            expected = way.store(words, np.zeros(4 * SHARED_WORDS, np.uint8)).view(np.uint32)
            found = gpu.run_blocks(module, f"kernel{number}", 1, [np.zeros_like(shared), words], warps)
        if not np.array_equal(found, expected):
            wrong += 1
            yield f"* DIFFERS: {way}, {way.memory.description}"
    yield f"* {len(ways)} ways to load and store, as emitted: {len(ways) - wrong} equal in every bit"


def timed_ways() -> list[AccessPlan]:
    """Loads and stores of f16 operands from memories that differ in pitch and swizzle only."""
    mma = get("mma.m16n8k16.f32.f16.f16.f32")
    half = get("mma.m16n8k16.f16.f16.f16.f16")
    memories = [Memory("row", 128), Memory("row", 128, 32), Memory("row", 128, 64), Memory("row", 128, 128)]
    memories += [Memory("row", 144), Memory("row", 160), Memory("row", 192)]
    found = [way for memory in memories for way in loads(mma.a, memory)[:2]]
    found += [way for pitch in (32, 40, 48, 64, 128) for way in loads(mma.d, Memory("row", pitch))[:2]]
    return found + [way for memory in memories for way in stores(half.d, memory)[:1]]


def timing_unit(ways: list[AccessPlan]) -> str:
    """A kernel for the first access of each way: how many cycles so many of it take a warp."""
    parts = ["#include <cstdint>"]
    for number, way in enumerate(ways):
        access = way.accesses[0]
        registers = ", ".join(f"%{word}" for word in range(len(access.words)))
        address = f"%{len(access.words)}"
        listed = f"{{{registers}}}" if len(access.words) > 1 or "matrix" in access.instruction else registers
        operands = f"{listed}, [{address}]" if way.direction == "load" else f"[{address}], {listed}"
        kinds = ", ".join(
            f'"{"=r" if way.direction == "load" else "r"}"(r[{word}])' for word in range(len(access.words))
        )
        ends = f': {kinds} : "r"(address)' if way.direction == "load" else f': : {kinds}, "r"(address)'
        parts += [
            f'extern "C" __global__ void kernel{number}(uint32_t* d, const uint32_t* a) {{',
            "    __shared__ __align__(1024) uint32_t memory[8192];",
            "    for (int i = threadIdx.x; i < 8192; i += 32) memory[i] = i;",
            "    uint32_t r[4] = {1, 2, 3, 4};",
            "    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) + a[threadIdx.x];",
            "    __syncwarp();",
            "    uint32_t best = 0xffffffff;",
            "    for (int again = 0; again < 8; ++again) {",
            "        const uint32_t start = clock();",
            "        #pragma unroll",
            f"        for (int i = 0; i < {REPEATS}; ++i) {{",
            f'            asm volatile("{access.instruction} {operands};" {ends} : "memory");',
            # a load must wait for the one before it: what it found is added to its address, and is always 0
            *(["            address += r[0] >> 31;"] if way.direction == "load" else []),
            "        }",
            # storing the last address waits for all loads, and keeps them from being left out
            "        *(volatile uint32_t*)&memory[8191] = address;",
            "        __syncthreads();",
            "        const uint32_t cycles = clock() - start;",
            "        best = cycles < best ? cycles : best;",
            "    }",
            "    d[threadIdx.x] = best;",
            "}",
        ]
    return "\n".join(parts)


def time_loads(gpu: Gpu, folder: Path) -> Iterator[str]:
    """A table of predicted passes and measured cycles, by instruction."""
    ways = timed_ways()
    module = gpu.load_binary(compile_cuda(timing_unit(ways), gpu.target, 1, folder))
    measured = []
    for number, way in enumerate(ways):
        given = np.array([address or 0 for address in way.accesses[0].addresses], np.uint32)
        found = gpu.run_blocks(module, f"kernel{number}", 1, [np.zeros(32, np.uint32), given])
        measured.append((way.accesses[0].instruction, way.accesses[0].passes, int(found.max()) / REPEATS, way.memory))
    yield "| instruction | pitch | swizzle | passes | conflicts predicted | cycles each |"
    yield "|---|---:|---:|---:|---:|---:|"
    for (name, passes, cycles, memory), way in sorted(zip(measured, ways, strict=True), key=lambda pair: pair[0][:2]):
        row = (
            f"| `{name}` | {memory.pitch} | {memory.swizzle} | {passes} | {way.accesses[0].conflicts} | {cycles:.1f} |"
        )
        yield row
    astray = [
        (one, other)
        for one, other in product(measured, repeat=2)
        if one[0] == other[0] and one[1] < other[1] and one[2] >= other[2]
    ]
    yield f"* the order of cycles is that of passes: {'yes' if not astray else f'no, {len(astray)} pairs are astray'}"


def report() -> tuple[list[str], bool]:
    """All lines, and whether everything was as predicted."""
    gpu = open_gpu()
    lines = [f"{gpu.name}, {gpu.target}, driver {gpu.driver}", ""]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        lines += [*check_relayouts(gpu, path), *check_ways(gpu, path), "", *time_loads(gpu, path)]
    return lines, not any("DIFFERS" in line or "astray" in line for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, time, print and write a report; the exit status says whether all is as predicted."""
    parser = make_parser("motion", __doc__)
    parser.add_argument("report", nargs="?", type=Path, metavar="REPORT.md", help="write a report to this file")
    arguments = parser.parse_args(argv)
    try:
        lines, good = report()
    except WarpfragError as error:
        parser.error(str(error))
    print("\n".join(lines))
    if arguments.report:
        write_atomically(arguments.report, "# Fragments in motion on hardware\n\n" + "\n".join(lines) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
