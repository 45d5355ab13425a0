"""Run the probes of spellings that were not compared yet on a GPU, record what they leave, and compare it later.

`find_spellings` decodes random kernels and captured launches to find the spellings that ptxas writes and the table of
compared spellings lacks. `record_probes` needs a GPU: it runs a probe of each and writes FOLDER/probes.json.xz: for
every kernel its layout, the encodings of its probes and a digest of what each left. `probe_cases` reads it anywhere.
FOLDER/counts.xz has the operand sets of the probes that left the same here.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.fuzz.driver import device
from tools.fuzz.generate import generate
from tools.fuzz.pool import work
from tools.sass import probes
from tools.sass.captures import LIMIT, Case, Launch, Runner, arch_of, assemble, read_cases
from tools.sass.evidence import SpellingCount, SpellingTable, observe
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.compared_spellings import read_compared
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.sass_module import SassKernel, SassModule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FILE, COUNTS = "probes.json.xz", "counts.xz"
EXAMPLES = 3
"""Encodings that are probed of one spelling, with different registers and immediates."""
BATCH = 16
SPELLINGS = 300
"""Spellings whose probes one process plans."""
SECONDS = 60
DIGITS = 16


class RecordedKernel(NamedTuple):
    """The layout of a probe kernel, the encodings of its probes, and a digest of what each left on the GPU."""

    layout: tuple[int, int]
    encodings: tuple[int, ...]
    left: tuple[str, ...]


# --- spellings that ptxas writes


def encodings_of(codes: Iterable[tuple[str, bytes]]) -> list[dict[str, int]]:
    """Return an encoding of each spelling, for each of several kernels (their architecture and code)."""
    kernels = list(codes)
    found: list[dict[str, int]] = [{} for _ in kernels]
    for arch in {arch for arch, _ in kernels}:
        numbers = [number for number, kernel in enumerate(kernels) if kernel[0] == arch]
        for number, code in zip(numbers, disassemble([kernels[number][1] for number in numbers], arch), strict=True):
            found[number] = {inst.spelling: probes.without_guard_and_hints(inst.encoding) for inst in code}
    return found


def code_of(module: SassModule, name: str) -> tuple[str, bytes]:
    """Return the architecture and the machine code of a kernel."""
    function = module.cubin[name]
    return function.arch, function.code.relocated(module.address_of)


def encodings_of_seeds(seeds: Sequence[int], size: int) -> list[dict[str, int]]:
    """Return an encoding of each spelling of each random kernel that ptxas accepts."""
    codes = []
    for seed in seeds:
        text = generate(seed, size).text()
        with suppress(RuntimeError):  # ptxas rejects a few random kernels
            codes.append(code_of(assemble(text, arch_of(text)), "k"))
    return encodings_of(codes)


def encodings_of_captures(folder: Path) -> list[dict[str, int]]:
    """Return an encoding of each spelling of each captured launch of a folder, or of a file of `write_examples`."""
    if folder.is_file():
        return [{spelling: codes[0] for spelling, codes in read_examples(folder).items()}]
    codes: list[tuple[str, bytes]] = []

    def collect(launch: Launch, _: LaunchOptions) -> None:
        if isinstance(launch.kernel, SassKernel):
            codes.append(code_of(launch.kernel.module, launch.kernel.name))

    for case in read_cases(folder):
        with suppress(RuntimeError):  # an operation that is not a launch
            case.run(collect)
    return encodings_of(codes)


class SpellingExamples:
    """Encodings of spellings, and the kernels that need them."""

    def __init__(self) -> None:
        """Create an empty collection."""
        self.examples: dict[str, dict[int, None]] = {}
        self.kernels: Counter[str] = Counter()
        self.missing: list[frozenset[str]] = []
        self.compared = read_compared(probes.ARCH)

    def add(self, kernel: dict[str, int]) -> None:
        """Add the spellings of a kernel."""
        self.missing.append(frozenset(name for name in kernel if not self.is_compared(name)))
        self.kernels.update(self.missing[-1])
        for spelling, encoding in kernel.items():
            known = self.examples.setdefault(spelling, {})
            if len(known) < EXAMPLES:
                known[encoding] = None

    def is_compared(self, spelling: str) -> bool:
        """Return True if a spelling, or its form with registers, was compared."""
        return spelling in self.compared or spelling.replace("RZ", "R") in self.compared

    def report(self) -> str:
        """Return a line about the kernels: how many have only compared spellings, or one that no other kernel has."""
        alone = sum(any(self.kernels[spelling] == 1 for spelling in kernel) for kernel in self.missing)
        return (
            f"{len(self.missing)} kernels; {sum(not kernel for kernel in self.missing)} have compared spellings only;"
            f" {len(self.examples)} spellings, of which {len(self.kernels)} were not compared; {alone} kernels have one"
            " that no other kernel has"
        )

    def uncompared(self) -> dict[str, list[int]]:
        """Return the encodings of each spelling that was not compared."""
        return {name: list(codes) for name, codes in self.examples.items() if not self.is_compared(name)}


def find_spellings(seeds: Sequence[int], size: int, folders: Sequence[Path], workers: int) -> SpellingExamples:
    """Return examples of the spellings of random kernels and captured launches that were not compared."""
    found = SpellingExamples()
    with ProcessPoolExecutor(workers) as pool:
        parts = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
        batches = chain(map(encodings_of_captures, folders), pool.map(encodings_of_seeds, parts, [size] * len(parts)))
        for number, batch in enumerate(batches, 1):
            for kernel in batch:
                found.add(kernel)
            if number % 20 == 0:
                print(found.report(), flush=True)
    return found


def write_examples(examples: dict[str, list[int]], path: Path) -> None:
    """Write encodings of spellings."""
    rows = {spelling: [f"{code:x}" for code in codes] for spelling, codes in sorted(examples.items())}
    path.write_text(json.dumps(rows, indent=0), encoding="utf-8")


def read_examples(path: Path) -> dict[str, list[int]]:
    """Read the encodings that `write_examples` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {spelling: [int(code, 16) for code in codes] for spelling, codes in rows.items()}


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
    ours = data.copy()
    try:
        table = observe(launch_of(kernel, ours, constants), LaunchOptions(limit=LIMIT), SpellingTable())
    except Exception as error:  # noqa: BLE001 (reported; the record is complete without it)
        return answer | {"state": f"the machine fails: {error}"}
    differences = []
    for at, (probe, here, found_there) in enumerate(
        zip(kernel.probes, probes.left_by(kernel, ours), there, strict=True)
    ):
        lanes = np.flatnonzero((here != found_there).any(axis=0))
        if len(lanes):
            table[probe.inst.spelling] = SpellingCount(differs=True)
        for lane in lanes[:3].tolist():
            given = {
                name: f"{data[word // 4, lane, word % 4]:#x}"
                for name in probe.reads
                for word in [probes.input_word(name, at)]
            }
            differences.append(
                f"{probe.inst.text} ({len(lanes)} of {probes.THREADS} threads), thread {lane}: {given} gives"
                f" {[hex(value) for value in found_there[:, lane].tolist()]},"
                f" here {[hex(value) for value in here[:, lane].tolist()]}"
            )
    return answer | {"differences": differences, "counts": table.rows()}


def launch_of(kernel: probes.ProbeKernel, data: NDArray[np.uint32], constants: bytes) -> Launch:
    """Return the launch of a probe kernel on data."""
    grid, block = kernel.layout
    module = SassModule(Cubin(kernel.cubin))
    return Launch(module["k"], grid, block, {"args": [data, constants]}, probes.SHARED_BYTES)


def plan_kernels(examples: dict[str, list[int]]) -> tuple[list[tuple[tuple[int, int], list[str]]], dict[str, str]]:
    """Return the layout and encodings of kernels that probe examples, and the reasons why spellings have no probe."""
    made, reasons = probes_of(examples)
    kernels = probes.kernels_of(made)
    return [(kernel.layout, [f"{probe.inst.encoding:x}" for probe in kernel.probes]) for kernel in kernels], reasons


def record_probes(examples: dict[str, list[int]], folder: Path, workers: int, seconds: float) -> None:
    """Run the probes of examples on the GPU and write the record; a kernel that fails is run again in halves."""
    waiting: list[tuple[tuple[int, int], list[str]]] = []
    reasons: dict[str, str] = {}
    with ProcessPoolExecutor(workers) as pool:
        rows = list(examples.items())
        chunks = [dict(rows[at : at + SPELLINGS]) for at in range(0, len(rows), SPELLINGS)]
        for kernels, without in pool.map(plan_kernels, chunks):
            waiting += kernels
            reasons |= without
    waiting.sort(key=lambda kernel: kernel[0] == probes.ONE_WARP)  # many kernels for few spellings: last
    count = sum(len(codes) for _, codes in waiting)
    print(f"{len(examples)} spellings; {count} probes in {len(waiting)} kernels; {len(reasons)} without a probe")
    for reason, number in Counter(reasons.values()).most_common(20):
        print(f"{number:6} {reason[:150]}", flush=True)
    records: list[RecordedKernel] = []
    table = SpellingTable()
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        jobs = [{"do": "machine probes", "layout": layout, "encodings": codes, "number": number}
                for number, (layout, codes) in enumerate(waiting)]  # fmt: skip
        failed = []
        for answer in work(jobs, workers, seconds_each=SECONDS, seconds=deadline - time.monotonic()):
            layout, codes = waiting[answer["number"]]
            if answer.get("differences"):
                print("\n".join(answer["differences"]), flush=True)
            table.join(SpellingTable.from_rows(answer.get("counts", {})))
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
    table.write(folder / COUNTS)
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
            runner(launch_of(kernel, data, constants), LaunchOptions(limit=LIMIT))
            return [
                (probe.inst.spelling, digest(left).encode(), expected.encode())
                for probe, left, expected in zip(
                    kernel.probes, probes.left_by(kernel, data), recorded.left, strict=True
                )
            ]

        yield Case(f"probes {number}", run, is_by_spelling=True)
