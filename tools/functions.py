"""Compare every approximate function of the PTX machine with a GPU, for all inputs.

    python -m tools.functions [REPORT.md] [--only PREFIX]

A function of f16, bf16, f32 or the upper word of an f64 has 2**16 or 2**32 inputs. The GPU runs the instruction on each
of them, and all cores of the host run the machine's row on the same inputs; 2**32 inputs take half a minute on 16
cores.
"""

from __future__ import annotations

import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np

from tools.arguments import report_parser
from tools.opcodes import Case, cases
from warpfrag.files import write_atomically
from warpfrag.hardware.gpu_device import Gpu, open_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

AT_ONCE = 1 << 22  # inputs per launch
CHUNK = 1 << 14  # inputs that a core computes at once, so that intermediate results stay in its cache
WAITING = 64  # the maximum number of launches whose results have not been compared


@dataclass
class Outcome:
    """The result of one instruction."""

    name: str
    inputs: int
    different: int = 0
    example: str = ""


def functions(prefix: str = "") -> Iterator[Case]:
    """Return the measured rows with one source, including f64 rows that read only the upper word."""
    for case in cases(prefix):
        if case.row.level == "measured" and len(case.action.sources) == 1:
            kind = case.action.sources[0]
            if kind is not None and kind.parts == 1 and (kind.bits < 64 or ".ftz." in case.name):
                yield case


def width(case: Case) -> int:
    """Return the width of the operand in bits."""
    kind = case.action.sources[0]
    return 0 if kind is None else kind.bits


def kernel(case: Case, target: str) -> str:
    """Return a module with one entry `k(out, first)`; each thread's number is the instruction's input."""
    bits = width(case)
    given = {16: "cvt.u16.u32 %a, %n;", 32: "mov.b32 %a, %n;", 64: "mov.b64 %a, {%zero, %n};"}[bits]
    size = max(32, bits) // 8
    kept = "cvt.u32.u16 %wide, %d;" if bits == 16 else ""
    return f"""
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 first)
{{
  .reg .b64 %out, %first, %at;
  .reg .b32 %n, %block, %thread, %zero, %wide;
  .reg .b{bits} %a, %d;
  ld.param.u64 %out, [out];
  ld.param.u64 %first, [first];
  ld.global.u32 %n, [%first];
  mov.u32 %zero, 0;
  mov.u32 %block, %ctaid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %thread, %block, 32, %thread;
  add.u32 %n, %n, %thread;
  mad.wide.u32 %at, %thread, {size}, %out;
  {given}
  {case.name} %d, %a;
  {kept}
  st.global.b{8 * size} [%at], {"%wide" if bits == 16 else "%d"};
  ret;
}}
"""


def differences(name: str, first: int, found: NDArray[np.uint32]) -> tuple[int, str]:
    """Return the number of GPU results that differ from the row, starting at input `first`, and the first of them."""
    case = next(case for case in functions(name.split(".", maxsplit=1)[0]) if case.name == name)
    bits = width(case)
    count, example = 0, ""
    actual = found.view(np.uint64) if bits == 64 else found
    for start in range(0, len(actual), CHUNK):
        given = np.arange(first + start, first + min(start + CHUNK, len(actual)), dtype=np.uint64)
        codes = given << np.uint64(32) if bits == 64 else given.astype(f"u{bits // 8}")
        expected = np.asarray(case.action.function(codes)).astype(actual.dtype)
        wrong = np.nonzero(expected != actual[start : start + CHUNK])[0]
        if len(wrong) and not example:
            at = int(wrong[0])
            example = f"{int(codes[at]):x} -> gpu {int(actual[start + at]):x} here {int(expected[at]):x}"
        count += len(wrong)
    return count, example


def compare(gpu: Gpu, case: Case, pool: Executor, total: int | None = None) -> Outcome:
    """Compare an instruction for all inputs, or for the first `total`."""
    bits = width(case)
    outcome = Outcome(case.name, total or 1 << min(bits, 32))
    module = gpu.load(kernel(case, gpu.target))
    waiting: list[Future[tuple[int, str]]] = []

    def note(pending: Future[tuple[int, str]]) -> None:
        different, example = pending.result()
        outcome.different += different
        outcome.example = outcome.example or example

    for first in range(0, outcome.inputs, AT_ONCE):
        count = min(AT_ONCE, outcome.inputs - first)
        blank = np.zeros(count * max(1, bits // 32), np.uint32)
        found = gpu.run_blocks(module, "k", count // 32, [blank, np.array([first], np.uint32)])
        waiting.append(pool.submit(differences, case.name, first, found))
        if len(waiting) > WAITING:
            note(waiting.pop(0))
    for pending in waiting:
        note(pending)
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all functions, and print and write a report; the exit status is 1 if anything differs."""
    arguments = report_parser("functions", __doc__, "only functions that start with this text").parse_args(argv)
    gpu = open_gpu()
    lines = [
        f"{gpu.name}, driver {gpu.driver}",
        "",
        "| instruction | inputs | different | |",
        "| --- | ---: | ---: | --- |",
    ]
    different = 0
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # a fork would inherit the GPU's context
        for case in functions(arguments.only):
            try:
                one = compare(gpu, case, pool)
            except Exception as error:  # noqa: BLE001 (cuda-core raises various types if assembly fails)
                print(f"{case.name}: {str(error).splitlines()[0][:200]}", flush=True)
                continue
            different += one.different
            lines.append(f"| `{one.name}` | {one.inputs:,} | {one.different:,} | {one.example} |")
            print(lines[-1], flush=True)
    if arguments.report:
        write_atomically(arguments.report, "\n".join([*lines, ""]).encode())
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
