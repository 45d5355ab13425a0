"""The jobs of a worker process: compare a kernel as PTX or as machine code, trace one, reduce one, run probes.

A job is a JSON object with the key `do`, and its answer is a JSON object too. Each worker has its own GPU context. A
fault ends the process, and `pool` starts a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.fuzz.coverage import rows_of
from tools.fuzz.driver import DriverError, device
from tools.fuzz.emulation import blank_trace, data_of, emulate
from tools.fuzz.generate import generate
from tools.fuzz.matrix_probe import compare_matrix_probes
from tools.fuzz.probe import compare_probes
from tools.fuzz.record import record
from tools.fuzz.reduce import first_difference, shrink
from tools.sass import captures
from warpfrag.errors import WarpfragError
from warpfrag.machine.launch.options import LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tools.fuzz.kernel import Kernel, Piece
    from warpfrag.machine.launch.options import Engine
    from warpfrag.machine.launch.run import Run

Answer = dict[str, Any]
JUDGE_SECONDS = 60.0
ENGINES: tuple[Engine, ...] = ("reference", "compiled")


def reasons_of(run: Run) -> list[str]:
    """Return the reasons why the results of a run are uncertain."""
    return sorted({*run.inexact_opcodes, *(line.reason for line in run.inexact_lines)})


def run_on_gpu(kernel: Kernel, text: str, *, traced: bool = False) -> list[NDArray[np.uint8]]:
    """Return a kernel's arrays after a run on the GPU."""
    data = data_of(kernel)
    arguments: list[NDArray[np.uint8] | bytes] = [data.given, data.before, data.blob]
    if traced:
        arguments.append(blank_trace(kernel))
    return device().run(text, kernel.grid, kernel.block, arguments)


def compare(seed: int, size: int, *, on_gpu: bool = True, keeps: bool = False) -> Answer:
    """Compare a kernel's output on the PTX machine and on the GPU; include the GPU's output if a byte differs."""
    began = time.process_time()
    kernel = generate(seed, size)
    text = kernel.text()
    data = data_of(kernel)
    answer: Answer = {
        "seed": seed, "target": kernel.target, "rows": sorted(rows_of(kernel)),
        "statements": sum(1 for _ in kernel.statements()), "state": "equal",
    }  # fmt: skip
    try:
        here, run = emulate(text, kernel, data)
        answer |= {
            "certain": not run.uncertain,
            "reasons": reasons_of(run),
            "warp_instructions": run.counts.instructions,
        }
    except WarpfragError as error:
        return answer | {"state": "refused by the machine", "why": str(error)[:300]}
    except Exception as error:  # noqa: BLE001 (any exception of the machine is a finding)
        return answer | {"state": "the machine fails", "why": f"{type(error).__name__}: {error}"[:300]}
    answer["seconds_here"] = time.process_time() - began
    if not on_gpu:
        return answer
    began = time.process_time()
    try:
        there = run_on_gpu(kernel, text)
    except DriverError as error:
        return answer | {"state": "fails on the GPU", "why": str(error)[:300], "fatal": error.is_fatal}
    answer["seconds_there"] = time.process_time() - began
    if any(not np.array_equal(a, b) for a, b in zip(here, there, strict=True)):
        answer |= {"state": "differs", **difference(here[1], there[1])}
    answer |= {"keeps": keeps, "digest": hashlib.sha1(there[1].tobytes(), usedforsecurity=False).hexdigest()[:16]}
    if keeps or answer["state"] == "differs":
        answer["gpu"] = b64encode(zlib.compress(there[1].tobytes(), 9)).decode()
    return answer


def difference(here: NDArray[np.uint8], there: NDArray[np.uint8]) -> Answer:
    """Return the number of bytes that differ, and the first ones: the index, the byte here and the GPU's byte."""
    changed = np.flatnonzero(here != there).tolist()
    return {"bytes": len(changed), "first": [(at, int(here[at]), int(there[at])) for at in changed[:16]]}


def execute(seed: int, size: int) -> Answer:
    """Execute a kernel's cubin here, then twice on the GPU, and compare every byte."""
    began = time.process_time()
    kernel = generate(seed, size)
    text, data = kernel.text(), data_of(kernel)
    try:
        module = captures.assemble(text, captures.arch_of(text))
    except RuntimeError as error:
        return {"seed": seed, "state": "refused by ptxas", "why": str(error)[:300]}
    here = [data.given.copy(), data.before.copy()]
    options = LaunchOptions(limit=captures.LIMIT, threads=1, judge=JUDGE_SECONDS)
    answer: Answer = {"seed": seed}
    try:
        run = module["k"].launch(kernel.grid, kernel.block, [*here, data.blob], options=options)
        answer |= {"exact": run.exact, "reasons": [str(reason) for reason in run.inexact]}
    except WarpfragError as error:
        answer |= {"exact": False, "reasons": [f"{type(error).__name__}: {error}"[:300]], "failed": True}
    answer["seconds_here"] = time.process_time() - began
    arguments: list[NDArray[np.uint8] | bytes] = [data.given, data.before, data.blob]
    first, again = (device().run(module.cubin.data, kernel.grid, kernel.block, arguments) for _ in range(2))
    same, repeats = (all(map(np.array_equal, first, other)) for other in (here, again))
    state = "does not repeat" if not repeats else "fails here" if "failed" in answer else "equal" if same else "differs"
    return answer | {"state": state} | (difference(here[1], first[1]) if state == "differs" else {})


def engines(seed: int, size: int) -> Answer:
    """Run a kernel in both engines of the machine."""
    kernel = generate(seed, size)
    (one, first), (other, second) = (emulate(kernel.text(), kernel, data_of(kernel), engine) for engine in ENGINES)
    agree = all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)) and first.evidence == second.evidence
    return {"seed": seed, "state": "engines agree" if agree else "ENGINES DIFFER"}


def trace(seed: int, size: int) -> Answer:
    """Find the first result of a kernel that differs."""
    kernel = generate(seed, size)
    text = kernel.text(traced=True)
    here, _ = emulate(text, kernel, data_of(kernel), traced=True)
    there = run_on_gpu(kernel, text, traced=True)
    return {"seed": seed, **first_difference(kernel, here[2], there[2])}


def make_small(seed: int, size: int, seconds: float) -> Answer:
    """Reduce a kernel to the parts that the difference depends on."""
    kernel = generate(seed, size)
    data = data_of(kernel)

    def differs(without: frozenset[Piece]) -> bool:
        text = kernel.text(without)
        here, run = emulate(text, kernel, data)
        there = run_on_gpu(kernel, text)
        return not run.uncertain and any(not np.array_equal(a, b) for a, b in zip(here, there, strict=True))

    left = shrink(kernel, differs, seconds)
    return {"seed": seed, "left": left}


JOBS: dict[str, Callable[..., Answer]] = {
    "compare": compare, "engines": engines, "trace": trace, "shrink": make_small, "record": record,
    "execute": execute, "probe": compare_probes, "matrix probe": compare_matrix_probes,
}  # fmt: skip


def serve() -> None:
    """Read jobs from standard input until it ends, and write the answers to standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep other output separate from answers
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = JOBS[job.pop("do")](**job)
        except DriverError as error:
            answer = {**job, "state": "fails on the GPU", "why": str(error)[:300], "fatal": error.is_fatal}
        except Exception as error:  # noqa: BLE001 (one job must not end the run)
            answer = {**job, "state": "the tool fails", "why": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if answer.get("fatal"):
            return


if __name__ == "__main__":
    serve()
