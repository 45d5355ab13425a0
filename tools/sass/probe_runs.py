"""Run the probes of spellings that were not compared yet on a GPU, record what they leave, and compare it later.

`record_probes` needs a GPU. It decodes random kernels to find the spellings that ptxas writes, makes a probe of each
that the table of compared spellings lacks, and writes FOLDER/probes.json.xz: for every kernel its layout, the encodings
of its probes and a digest of what each left. `probe_cases` reads it anywhere.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.fuzz.driver import device
from tools.fuzz.generate import generate
from tools.fuzz.pool import work
from tools.sass import probes
from tools.sass.captures import LIMIT, Case, Launch, Runner, arch_of, assemble
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.compared_spellings import read_compared
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.sass_module import SassModule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FILE = "probes.json.xz"
EXAMPLES = 3
"""Encodings that are probed of one spelling, with different registers and immediates."""
BATCH = 16
SECONDS = 60
DIGITS = 16


class RecordedKernel(NamedTuple):
    """The layout of a probe kernel, the encodings of its probes, and a digest of what each left on the GPU."""

    layout: tuple[int, int]
    encodings: tuple[int, ...]
    left: tuple[str, ...]


# --- spellings that ptxas writes


def spellings_of(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return the spellings of PTX kernels that were not compared, each with an encoding."""
    compared = read_compared(probes.ARCH)
    by_arch: dict[str, list[bytes]] = {}
    for text in texts:
        try:
            module = assemble(text, arch_of(text))
        except RuntimeError:  # ptxas rejects a few random kernels
            continue
        by_arch.setdefault(module.cubin["k"].arch, []).append(module.cubin["k"].code.relocated(module.address_of))
    found: dict[tuple[str, int], None] = {}
    for arch, codes in by_arch.items():
        for inst in chain.from_iterable(disassemble(codes, arch)):
            if inst.spelling not in compared and inst.spelling.replace("RZ", "R") not in compared:
                found[inst.spelling, probes.without_guard_and_hints(inst.encoding)] = None
    return list(found)


def spellings_of_seeds(seeds: Sequence[int], size: int) -> list[tuple[str, int]]:
    """Return the spellings of random kernels that were not compared."""
    return spellings_of([generate(seed, size).text() for seed in seeds])


def examples_of(seeds: Sequence[int], size: int, workers: int) -> dict[str, list[int]]:
    """Return a few encodings of each spelling of random kernels that was not compared."""
    found: dict[str, dict[int, None]] = {}
    with ProcessPoolExecutor(workers) as pool:
        parts = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
        for part in pool.map(spellings_of_seeds, parts, [size] * len(parts)):
            for spelling, encoding in part:
                known = found.setdefault(spelling, {})
                if len(known) < EXAMPLES:
                    known[encoding] = None
    return {spelling: list(encodings) for spelling, encodings in found.items()}


def probes_of(examples: dict[str, list[int]]) -> tuple[list[probes.Probe], dict[str, str]]:
    """Return the probes of all examples, and the reason why a spelling has none."""
    names = [name for name, encodings in examples.items() for _ in encodings]
    found: dict[str, list[probes.Probe]] = {}
    reasons: dict[str, str] = {}
    encodings = [encoding for name in examples for encoding in examples[name]]
    for name, inst in zip(names, probes.usable(encodings) if encodings else (), strict=True):
        try:
            probe = probes.probe_of(inst)
        except probes.NoProbe as error:
            reasons[name] = str(error)
            continue
        if probe.layout != probes.ONE_WARP:
            found.setdefault(name, []).append(probe)
        elif name not in found:
            found[name] = [probes.probe_of(item) for item in probes.decoded(probes.with_immediates(inst))]
    return list(chain.from_iterable(found.values())), {
        name: reason for name, reason in reasons.items() if name not in found
    }


# --- on the GPU


def rebuilt(layout: Sequence[int], encodings: Iterable[int]) -> probes.ProbeKernel:
    """Return the kernel of a record."""
    made = [probes.probe_of(inst) for inst in probes.decoded(list(encodings))]
    grid, block = layout
    return probes.kernel_of(made, (grid, block))


def digest(left: NDArray[np.uint32]) -> str:
    """Return the digest of what a probe left."""
    return hashlib.sha256(left.tobytes()).hexdigest()[:DIGITS]


def run_probes(layout: Sequence[int], encodings: Sequence[str], number: int) -> dict[str, Any]:
    """Run a kernel on the GPU and in the machine; return the digests and what differs. A job of `tools.fuzz.jobs`."""
    kernel = rebuilt(layout, (int(code, 16) for code in encodings))
    data, constants = probes.arguments_of(kernel)
    grid, block = kernel.layout
    (found,) = device().run(
        kernel.cubin, grid, block, [data.view(np.uint8).reshape(-1), constants], shared=probes.SHARED_BYTES
    )
    there = probes.left_by(kernel, found.view(np.uint32).reshape(data.shape))
    answer: dict[str, Any] = {"number": number, "state": "recorded", "left": [digest(item) for item in there]}
    try:
        here = emulated(kernel)
    except Exception as error:  # noqa: BLE001 (reported; the record is complete without it)
        return answer | {"state": f"the machine fails: {error}"}
    differences = []
    for at, (probe, ours, theirs) in enumerate(zip(kernel.probes, here, there, strict=True)):
        lanes = np.flatnonzero((ours != theirs).any(axis=0))
        for lane in lanes[:3].tolist():
            given = {
                name: f"{data[word // 4, lane, word % 4]:#x}"
                for name in probe.reads
                for word in [probes.input_word(name, at)]
            }
            differences.append(
                f"{probe.inst.text} ({len(lanes)} of {probes.THREADS} threads), thread {lane}: {given} gives"
                f" {[hex(value) for value in theirs[:, lane].tolist()]},"
                f" here {[hex(value) for value in ours[:, lane].tolist()]}"
            )
    return answer | {"differences": differences}


def emulated(kernel: probes.ProbeKernel) -> list[NDArray[np.uint32]]:
    """Return what each probe of a kernel leaves here."""
    data, constants = probes.arguments_of(kernel)
    grid, block = kernel.layout
    module = SassModule(Cubin(kernel.cubin))
    module["k"].launch(grid, block, [data, constants], shared=probes.SHARED_BYTES, engine="reference")
    return probes.left_by(kernel, data)


def record_probes(examples: dict[str, list[int]], folder: Path, workers: int, seconds: float) -> None:
    """Run the probes of examples on the GPU and write the record; a kernel that fails is run again in halves."""
    made, reasons = probes_of(examples)
    print(f"{len(examples)} spellings were not compared; {len(made)} probes; {len(reasons)} without a probe")
    for reason, count in Counter(reasons.values()).most_common(20):
        print(f"{count:6} {reason[:150]}")
    waiting = [(kernel.layout, [f"{probe.inst.encoding:x}" for probe in kernel.probes])
               for kernel in probes.kernels_of(made)]  # fmt: skip
    records: list[RecordedKernel] = []
    while waiting:
        jobs = [{"do": "machine probes", "layout": layout, "encodings": codes, "number": number}
                for number, (layout, codes) in enumerate(waiting)]  # fmt: skip
        failed = []
        for answer in work(jobs, workers, seconds_each=SECONDS, seconds=seconds):
            layout, codes = waiting[answer["number"]]
            print("\n".join(answer.get("differences", ())))
            if "left" in answer:
                records.append(RecordedKernel(layout, tuple(int(code, 16) for code in codes), tuple(answer["left"])))
            elif len(codes) > 1:
                middle = len(codes) // 2
                failed += [(layout, codes[:middle]), (layout, codes[middle:])]
            else:
                print(f"fails on the GPU: {probes.decoded([int(codes[0], 16)])[0].text}: {answer.get('why')}")
        waiting = failed
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([[item.layout, [f"{code:x}" for code in item.encodings], item.left] for item in records])
    (folder / FILE).write_bytes(lzma.compress(text.encode()))
    print(f"{sum(len(item.left) for item in records)} probes in {len(records)} kernels recorded")


# --- later


def read_records(folder: Path) -> Iterator[RecordedKernel]:
    """Read the record of a folder."""
    for layout, codes, left in json.loads(lzma.decompress((folder / FILE).read_bytes())):
        yield RecordedKernel(tuple(layout), tuple(int(code, 16) for code in codes), tuple(left))


def probe_cases(folder: Path) -> Iterator[Case]:
    """Return a case for each recorded kernel; its results are the digests of its probes, by spelling."""
    for number, recorded in enumerate(read_records(folder)):

        def run(runner: Runner, recorded: RecordedKernel = recorded) -> list[Any]:
            kernel = rebuilt(recorded.layout, recorded.encodings)
            data, constants = probes.arguments_of(kernel)
            grid, block = kernel.layout
            module = SassModule(Cubin(kernel.cubin))
            arguments = {"args": [data, constants]}
            runner(Launch(module["k"], grid, block, arguments, probes.SHARED_BYTES), LaunchOptions(limit=LIMIT))
            return [
                (probe.inst.spelling, digest(left).encode(), expected.encode())
                for probe, left, expected in zip(
                    kernel.probes, probes.left_by(kernel, data), recorded.left, strict=True
                )
            ]

        yield Case(f"probes {number}", run, is_by_spelling=True)
