"""Compare emitted relayouts and access plans on a GPU with Python, and time bank conflicts.

    python -m tools.plans [REPORT.md]

The tool needs nvcc. It compiles a sample of relayouts that contains every operation and runs it on random registers,
and runs every category of access plan on random memory. Then it times loads of one operand from shared memory with
different layouts: more passes must take more cycles.
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
TARGET = "sm_90"  # supports every plan of the sample
ORDERS: tuple[Literal["row", "col"], ...] = ("row", "col")


def sample_plans(most_tiles: int = 2) -> list[Relayout]:
    """Return the first relayout for each combination of formats, threads and operations."""
    sample: dict[object, Relayout] = {}
    for some, most in ((fragments(), most_tiles), (warpgroup_fragments(), MAX_TILES)):
        for source, target in product(some, repeat=2):
            pair = tiled_alike(source, target, most)
            if pair is not None:
                plan = relayout(*pair)
                names = tuple(type(op).__name__ for op in plan.operations)
                sample.setdefault((source.threads, source.format.bits, target.format.name, *names), plan)
    fp8, wgmma = get("mma.m16n8k32.f32.e4m3.e4m3.f32"), get("wgmma.mma_async.m64n64k32.f32.e4m3.e4m3")
    trips = [relayout(fp8.d.tiled(col=4), fp8.a), relayout(fp8.d.tiled(col=4), fp8.a, permute="col")]
    return [*trips, relayout(wgmma.d, wgmma.a.tiled(col=2), permute="col"), *sample.values()]


def relayout_unit(plans: list[Relayout]) -> str:
    """Return a translation unit with a kernel for each plan, which loads and stores the registers in memory."""
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
    """Run every plan on random registers; yield a report line for each plan that differs, and the counts."""
    plans = sample_plans()
    module = gpu.load_binary(compile_cuda(relayout_unit(plans), gpu.target, 0, folder))
    random = np.random.default_rng(11)
    wrong = 0
    for number, plan in enumerate(plans):
        threads = plan.source.threads
        words = random.integers(0, 1 << 32, (CASES, *threads, plan.source.words), np.uint32)
        # registers of a fragment with copies or padding must contain a matrix
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


def sample_accesses() -> list[AccessPlan]:
    """Return access plans that differ in instructions, swizzle or the start of the memory."""
    mma, integers = get("mma.m16n8k16.f32.f16.f16.f32"), get("mma.m16n8k32.s32.s8.s8.s32")
    operands = [mma.a, mma.b, mma.b.tiled(col=2), mma.d, integers.a, integers.b, get("mma.m16n8k16.f64.f64.f64.f64").a]
    half, narrow = get("wgmma.mma_async.m64n32k16.f16.f16.f16"), get("wgmma.mma_async.m64n16k32.s32.s8.s8")
    operands += [half.a, half.d, narrow.a, narrow.d]
    sample: dict[object, AccessPlan] = {}
    for operand, order in product(operands, ORDERS):
        tight = max(16, operand.layout.outs["col" if order == "row" else "row"] * operand.spec.container // 8)
        memories = [Memory(order, tight), Memory(order, tight + 16)]
        memories += [Memory(order, -(-tight // swizzle) * swizzle, swizzle, start=64) for swizzle in (32, 64, 128)]
        for memory in memories:
            for plan in (*loads(operand, memory), *stores(operand, memory)):
                if TARGET in plan.targets:
                    sample.setdefault((operand.threads, plan.name, memory.swizzle, memory.start), plan)
    return list(sample.values())


def access_unit(plans: list[AccessPlan]) -> str:
    """Return a translation unit with a kernel for each plan: memory to registers, or registers to memory."""
    parts = ["#include <cstdint>"]
    for number, plan in enumerate(plans):
        words, is_load = plan.operand.words, plan.direction == "load"
        given = (
            f"uint32_t (*d)[{words}], const uint32_t* a" if is_load else f"uint32_t* d, const uint32_t (*a)[{words}]"
        )
        before, after = ("a[i]", "") if is_load else ("0", "d[i] = memory[i]")
        call = f"plan{number}({'d' if is_load else 'a'}[threadIdx.x], base);"
        parts += [
            plan.emit("cuda", name=f"plan{number}"),
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


def check_accesses(gpu: Gpu, folder: Path) -> Iterator[str]:
    """Run every plan on random bytes; yield a report line for each plan that differs, and the counts."""
    plans = [plan for plan in sample_accesses() if gpu.target in plan.targets]
    module = gpu.load_binary(compile_cuda(access_unit(plans), gpu.target, 2, folder))
    random = np.random.default_rng(12)
    wrong = 0
    for number, plan in enumerate(plans):
        shared = random.integers(0, 1 << 32, SHARED_WORDS, np.uint32)
        threads = plan.operand.threads
        words, warps = random.integers(0, 1 << 32, (*threads, plan.operand.words), np.uint32), math.prod(threads[:-1])
        if plan.direction == "load":
            expected = plan.load(shared.view(np.uint8))
            found = gpu.run_blocks(module, f"kernel{number}", 1, [np.zeros_like(words), shared], warps)
        else:
            expected = plan.store(words, np.zeros(4 * SHARED_WORDS, np.uint8)).view(np.uint32)
            found = gpu.run_blocks(module, f"kernel{number}", 1, [np.zeros_like(shared), words], warps)
        if not np.array_equal(found, expected):
            wrong += 1
            yield f"* DIFFERS: {plan}, {plan.memory.description}"
    yield f"* {len(plans)} access plans, as emitted: {len(plans) - wrong} equal in every bit"


def timed_accesses() -> list[AccessPlan]:
    """Return f16 loads and stores that differ only in pitch and swizzle."""
    mma = get("mma.m16n8k16.f32.f16.f16.f32")
    half = get("mma.m16n8k16.f16.f16.f16.f16")
    memories = [Memory("row", 128), Memory("row", 128, 32), Memory("row", 128, 64), Memory("row", 128, 128)]
    memories += [Memory("row", 144), Memory("row", 160), Memory("row", 192)]
    found = [plan for memory in memories for plan in loads(mma.a, memory)[:2]]
    found += [plan for pitch in (32, 40, 48, 64, 128) for plan in loads(mma.d, Memory("row", pitch))[:2]]
    return found + [plan for memory in memories for plan in stores(half.d, memory)[:1]]


def timing_unit(plans: list[AccessPlan]) -> str:
    """Return a kernel for the first access of each plan that counts the cycles of its repetitions."""
    parts = ["#include <cstdint>"]
    for number, plan in enumerate(plans):
        access = plan.accesses[0]
        registers = ", ".join(f"%{word}" for word in range(len(access.words)))
        address = f"%{len(access.words)}"
        listed = f"{{{registers}}}" if len(access.words) > 1 or "matrix" in access.instruction else registers
        operands = f"{listed}, [{address}]" if plan.direction == "load" else f"[{address}], {listed}"
        kinds = ", ".join(
            f'"{"=r" if plan.direction == "load" else "r"}"(r[{word}])' for word in range(len(access.words))
        )
        ends = f': {kinds} : "r"(address)' if plan.direction == "load" else f': : {kinds}, "r"(address)'
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
            # each load depends on the previous one: its result, always 0, is added to the address
            *(["            address += r[0] >> 31;"] if plan.direction == "load" else []),
            "        }",
            # storing the last address waits for all loads and keeps the compiler from removing them
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
    """Yield the lines of a table with the predicted passes and measured cycles, by instruction."""
    plans = timed_accesses()
    module = gpu.load_binary(compile_cuda(timing_unit(plans), gpu.target, 1, folder))
    measured = []
    for number, plan in enumerate(plans):
        given = np.array([address or 0 for address in plan.accesses[0].addresses], np.uint32)
        found = gpu.run_blocks(module, f"kernel{number}", 1, [np.zeros(32, np.uint32), given])
        measured.append(
            (plan.accesses[0].instruction, plan.accesses[0].passes, int(found.max()) / REPEATS, plan.memory)
        )
    yield "| instruction | pitch | swizzle | passes | conflicts predicted | cycles each |"
    yield "|---|---:|---:|---:|---:|---:|"
    for (name, passes, cycles, memory), plan in sorted(zip(measured, plans, strict=True), key=lambda pair: pair[0][:2]):
        row = (
            f"| `{name}` | {memory.pitch} | {memory.swizzle} | {passes} | {plan.accesses[0].conflicts} | {cycles:.1f} |"
        )
        yield row
    exceptions = [
        (one, other)
        for one, other in product(measured, repeat=2)
        if one[0] == other[0] and one[1] < other[1] and one[2] >= other[2]
    ]
    yield f"* more passes always take more cycles: {f'no, {len(exceptions)} exceptions' if exceptions else 'yes'}"


def report() -> tuple[list[str], bool]:
    """Return the lines of the report, and True if everything was as predicted."""
    gpu = open_gpu()
    lines = [f"{gpu.name}, {gpu.target}, driver {gpu.driver}", ""]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        lines += [*check_relayouts(gpu, path), *check_accesses(gpu, path), "", *time_loads(gpu, path)]
    return lines, not any("DIFFERS" in line or "exceptions" in line for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare and time all plans, and report the results; the exit status is 0 if everything is as predicted."""
    parser = make_parser("plans", __doc__)
    parser.add_argument("report", nargs="?", type=Path, metavar="REPORT.md", help="write a report to this file")
    arguments = parser.parse_args(argv)
    try:
        lines, good = report()
    except WarpfragError as error:
        parser.error(str(error))
    print("\n".join(lines))
    if arguments.report:
        write_atomically(arguments.report, "# Relayouts and access plans on hardware\n\n" + "\n".join(lines) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
