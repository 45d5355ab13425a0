"""Measure the cost of recording which thread stored each byte: `python benchmarks/store_overlaps.py`.

Each kernel runs with store tags (`machine.interpreter.store_tags`) and without them, alternately, in one process and in
both engines; the figure is the ratio of the medians. The kernels are those of `ptx.py`, and two that mainly store.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
from run import say

import warpfrag as wf
from ptx import BODY, KERNEL, PTX, SIZE, Matmul
from warpfrag.machine.interpreter.store_tags import StoreTags
from warpfrag.machine.jit import memory_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 7
ONE_THREAD = wf.ptx.LaunchOptions(threads=1)
COPY = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 from, .param .u64 to)
{{
    .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, {size};
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.{type} %r5, [%rd4];
    st.global.{type} [%rd5], %r5;
    ret;
}}"""


@contextmanager
def untagged() -> Iterator[None]:
    """Disable the recording in both engines."""

    def store(_self: StoreTags, _step: int, buffer, offsets, codes, _threads, _cause) -> None:  # noqa: ANN001 (as there)
        size = codes.dtype.itemsize
        cells = buffer if size == 1 else buffer[: len(buffer) // size * size].view(codes.dtype)
        cells[offsets[:, None] // size + np.arange(codes.shape[1])] = codes

    with mock.patch.object(StoreTags, "store", store), mock.patch.object(memory_access, "TAGGED", frozenset()):
        yield


def kernels(engine: str) -> dict[str, Callable[[], Callable[[], object]]]:
    """Return functions that load a kernel again, so that it is compiled again, and return its launch."""
    rounds, blocks = (1000, 32) if engine == "compiled" else (40, 16)

    def plain() -> Callable[[], object]:
        out = np.zeros(blocks * 128, np.uint32)
        kernel = wf.ptx.load(KERNEL.format(body=BODY))["plain"]
        return partial(kernel.launch, blocks, 128, [out, rounds], engine=engine, options=ONE_THREAD)

    def matmul() -> Callable[[], object]:
        work = Matmul()
        size = SIZE if engine == "compiled" else 128
        numbers = [np.int32(number) for number in (size, size, size, SIZE, 1, SIZE, 1, SIZE, 1)]
        args = [work.a, work.b, work.c, *numbers, None, None]
        return partial(
            work.kernel.launch, (size // 64, size // 64), 128, args, shared=16384, engine=engine, options=ONE_THREAD
        )

    def copy(kind: str, size: int) -> Callable[[], object]:
        count = (1024 if engine == "compiled" else 256) * 256
        source, target = np.ones(count * size, np.uint8), np.zeros(count * size, np.uint8)
        kernel = wf.ptx.load(COPY.format(type=kind, size=size))["copy"]
        return partial(kernel.launch, count // 256, 256, [source, target], engine=engine, options=ONE_THREAD)

    return {
        "plain code": plain, "matmul of Triton": matmul,
        "copy of words": partial(copy, "u32", 4), "copy of halves": partial(copy, "u16", 2),
    }  # fmt: skip


def seconds(function: Callable[[], object]) -> float:
    """Return the processor time of a launch."""
    start = time.process_time()
    function()
    return time.process_time() - start


def main(names: list[str]) -> None:
    """Measure every kernel, or the named ones."""
    say(f"  {PTX.name}: time with tags divided by time without")
    for engine in ("compiled", "reference"):
        for name, make in kernels(engine).items():
            if names and name not in names:
                continue
            tagged = make()
            tagged()
            with untagged():
                plain = make()
                plain()
            pairs: list[tuple[float, float]] = []
            for _ in range(ROUNDS):
                own = seconds(tagged)
                with untagged():
                    pairs.append((own, seconds(plain)))
            ratio = median(own for own, _ in pairs) / median(other for _, other in pairs)
            best = min(own for own, _ in pairs) / min(other for _, other in pairs)
            say(f"  {name:18} {engine:9} {ratio:5.2f} times (shortest: {best:.2f}), {pairs[0][0] * 1e3:.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
