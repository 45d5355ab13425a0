"""Probe uncompared spellings on a GPU, record the results, and compare them later.

`find_spellings` decodes random kernels and captured launches to find the spellings that ptxas writes and that the table
of compared spellings lacks. `record_probes` needs a GPU: it runs a probe of each and writes FOLDER/probes.json.xz,
which has the layout of every kernel, the encodings of its probes and digests of their results. `probe_cases` reads the
file on any machine.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.fuzz.driver import DriverError, device
from tools.fuzz.generate import generate
from tools.sass import probe_kernels, probes
from tools.sass.captures import LIMIT, Case, Launch, Runner, arch_of, assemble, read_cases
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.compared_spellings import is_compared, read_compared
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.sass_module import SassKernel, SassModule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FILE = "probes.json.xz"
EXAMPLES = 3
"""The number of encodings that are probed per spelling, with different registers and immediates."""
BATCH = 16
SPELLINGS = 2000
"""The number of spellings whose probes one process plans."""
REJECTED_FORMS = 3
"""If the GPU rejects this number of operand forms of an opcode with its modifiers, the other forms are skipped."""
SECONDS = 20
"""The time limit of a kernel in seconds."""
DIGITS = 16


class RecordedKernel(NamedTuple):
    """The layout of a probe kernel, the encodings of its probes, and a digest of each probe's results on the GPU."""

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
    """Return an encoding of each spelling in each random kernel that ptxas accepts."""
    codes = []
    for seed in seeds:
        text = generate(seed, size).text()
        with suppress(RuntimeError):  # ptxas rejects a few random kernels
            codes.append(code_of(assemble(text, arch_of(text)), "k"))
    return encodings_of(codes)


def encodings_of_captures(folder: Path) -> list[dict[str, int]]:
    """Return an encoding of each spelling in a folder of captured launches or in a file from `write_examples`."""
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
    """Encodings of spellings, and the kernels that contain them."""

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
        return is_compared(spelling, self.compared)

    def report(self) -> str:
        """Return a line with the number of kernels that have only compared spellings, or a unique spelling."""
        alone = sum(any(self.kernels[spelling] == 1 for spelling in kernel) for kernel in self.missing)
        return (
            f"{len(self.missing)} kernels; {sum(not kernel for kernel in self.missing)} have only compared spellings;"
            f" {len(self.examples)} spellings, of which {len(self.kernels)} were not compared; {alone} kernels have one"
            " that no other kernel has"
        )

    def uncompared(self) -> dict[str, list[int]]:
        """Return the encodings of each spelling that was not compared."""
        return {name: list(codes) for name, codes in self.examples.items() if not self.is_compared(name)}


def find_spellings(seeds: Sequence[int], size: int, folders: Sequence[Path], workers: int) -> SpellingExamples:
    """Return examples of uncompared spellings in random kernels and captured launches."""
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
    rows = {spelling: [f"{code:x}" for code in codes] for spelling, codes in examples.items()}
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
    used = probes.usable(encodings) if encodings else []
    for name, encoding, inst in zip(names, encodings, used, strict=True):
        try:
            probe = probes.probe_of(inst)._replace(original=probes.without_guard_and_hints(encoding))
        except probes.NoProbe as error:
            reasons[name] = str(error)
            continue
        if probe.layout != probes.ONE_WARP or name not in found:
            found.setdefault(name, []).append(probe)
    return list(chain.from_iterable(found.values())), {
        name: reason for name, reason in reasons.items() if name not in found
    }


# --- on the GPU


def head_of(probe: probes.Probe) -> str:
    """Return the opcode of a probe with its modifiers."""
    return probe.inst.spelling.partition(" ")[0]


class ProbeGroup(NamedTuple):
    """Probes that run in one kernel, or in several if they do not fit."""

    layout: tuple[int, int]
    probes: tuple[probes.Probe, ...]

    def without(self, rejected: Counter[str]) -> ProbeGroup:
        """Return the group without the opcodes and modifiers that the GPU rejected with several operand forms."""
        return ProbeGroup(
            self.layout, tuple(probe for probe in self.probes if rejected[head_of(probe)] < REJECTED_FORMS)
        )

    def halves(self) -> list[ProbeGroup]:
        """Return the groups to run if this one fails on the GPU.

        A single probe is run again with its original encoding, which has zero registers. A group that varies only an
        immediate has one spelling, so it is not divided.
        """
        first = self.probes[0]
        if len(self.probes) == 1 and first.original not in {0, first.inst.encoding}:
            with suppress(probes.NoProbe):
                again = probes.probe_of(probes.decoded([first.original])[0])
                return [ProbeGroup(again.layout, (again,))]
        if self.layout == probes.ONE_WARP or len(self.probes) == 1:
            return []
        middle = len(self.probes) // 2
        return [ProbeGroup(self.layout, self.probes[:middle]), ProbeGroup(self.layout, self.probes[middle:])]


def digest(left: NDArray[np.uint32]) -> str:
    """Return the digest of a probe's results."""
    return hashlib.sha256(left.tobytes()).hexdigest()[:DIGITS]


def run_probes(kernel: probes.ProbeKernel) -> list[str]:
    """Run a kernel on the GPU and return the digests of its probes' results."""
    data, constants = probe_kernels.arguments_of(kernel)
    grid, block = kernel.layout
    (found,) = device().run(
        kernel.cubin, grid, block, [data.view(np.uint8).reshape(-1), constants], shared=probes.SHARED_BYTES
    )
    return [digest(item) for item in probe_kernels.left_by(kernel, found.view(np.uint32).reshape(data.shape))]


def serve_probes(pipe: Connection) -> None:
    """Run kernels from a pipe on the GPU; end after a fault, which loses the context."""
    while True:
        try:
            pipe.send(run_probes(pipe.recv()))
        except DriverError as error:
            pipe.send(str(error))
            return


class ProbeProcess:
    """A process with its own GPU context; after a fault, a new process replaces it."""

    def __init__(self) -> None:
        """Start the process as a fork, because importing takes longer than running a kernel."""
        context = get_context("fork")
        self.pipe, end = context.Pipe()
        self.process = context.Process(target=serve_probes, args=(end,), daemon=True)
        self.process.start()
        end.close()
        self.group: ProbeGroup | None = None
        self.kernel: probes.ProbeKernel | None = None
        self.until = 0.0

    def start(self, group: ProbeGroup) -> None:
        """Run the first probes of a group that fit a kernel."""
        self.group, self.kernel = group, probe_kernels.kernel_of(group.probes, group.layout)
        self.until = time.monotonic() + SECONDS
        self.pipe.send(self.kernel)

    def answer(self) -> list[str] | str:
        """Return the digests, or the reason why the kernel failed."""
        try:
            answer: list[str] | str = self.pipe.recv() if self.pipe.poll() else "no answer"
        except (EOFError, OSError):
            answer = "its process ended"
        if isinstance(answer, str):
            self.end()
        return answer

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def plan_groups(examples: dict[str, list[int]]) -> tuple[list[ProbeGroup], dict[str, str]]:
    """Return the groups of probes of examples, and the reasons why spellings have no probe.

    A probe that reads only immediates is its own group.
    """
    made, reasons = probes_of(examples)
    groups: dict[tuple[int, int], list[probes.Probe]] = {}
    for probe in made:
        if probe.layout != probes.ONE_WARP:
            groups.setdefault(probe.layout, []).append(probe)
    alone = [ProbeGroup(probe.layout, (probe,)) for probe in made if probe.layout == probes.ONE_WARP]
    return [*(ProbeGroup(layout, tuple(group)) for layout, group in groups.items()), *alone], reasons


def launch_of(kernel: probes.ProbeKernel, data: NDArray[np.uint32], constants: bytes) -> Launch:
    """Return the launch of a probe kernel on data."""
    grid, block = kernel.layout
    module = SassModule(Cubin(kernel.cubin))
    return Launch(module["k"], grid, block, {"args": [data, constants]}, probes.SHARED_BYTES)


def record_probes(examples: dict[str, list[int]], folder: Path, workers: int, seconds: float) -> None:
    """Run the probes of examples on the GPU and write the record; a group that fails is run again in halves."""
    waiting: list[ProbeGroup] = []
    reasons: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    with ProcessPoolExecutor(workers) as pool:
        rows = list(examples.items())
        chunks = [dict(rows[at : at + SPELLINGS]) for at in range(0, len(rows), SPELLINGS)]
        for groups, without in pool.map(plan_groups, chunks):
            waiting += groups
            reasons |= without
    count = sum(len(group.probes) for group in waiting)
    left = deadline - time.monotonic()
    print(f"{len(examples)} spellings; {count} probes; {len(reasons)} without a probe; {left:.0f} seconds left")
    for reason, number in Counter(reasons.values()).most_common(20):
        print(f"{number:6} {reason[:150]}", flush=True)
    records = list(run_groups(waiting, workers, deadline))
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([[item.layout, [f"{code:x}" for code in item.encodings], item.left] for item in records])
    (folder / FILE).write_bytes(lzma.compress(text.encode(), preset=1))
    print(f"{sum(len(item.left) for item in records)} probes in {len(records)} kernels recorded")


def run_groups(groups: Iterable[ProbeGroup], workers: int, deadline: float) -> Iterator[RecordedKernel]:
    """Run groups of probes on the GPU until the deadline; yield the records of the kernels that ran."""
    probe_kernels.template()  # once, before processes are forked
    probe_kernels.given_data()
    rejected: Counter[str] = Counter()
    waiting = deque(groups)
    busy: list[ProbeProcess] = []
    idle: list[ProbeProcess] = []
    while (waiting or busy) and time.monotonic() < deadline:
        while waiting and len(busy) < workers:
            process = idle.pop() if idle else ProbeProcess()
            chosen = waiting.popleft().without(rejected)
            if not chosen.probes:
                idle.append(process)
                continue
            if chosen.layout == probes.ONE_WARP and len(chosen.probes) == 1:
                chosen = ProbeGroup(chosen.layout, probe_kernels.with_immediates(chosen.probes[0]))
            process.start(chosen)
            busy.append(process)
        ready = wait([process.pipe for process in busy], timeout=1)
        for process in [item for item in busy if item.pipe in ready or time.monotonic() > item.until]:
            busy.remove(process)
            answer, group, kernel = process.answer(), process.group, process.kernel
            if group is None or kernel is None:
                continue
            done = len(kernel.probes)
            if isinstance(answer, str):
                failed = ProbeGroup(group.layout, group.probes[:done])
                halves = failed.halves()
                waiting.extendleft(halves)
                if not halves:
                    rejected[head_of(group.probes[0])] += 1
                    print(f"fails on the GPU: {group.probes[0].inst.text}: {answer}", flush=True)
            else:
                idle.append(process)
                yield RecordedKernel(group.layout, tuple(probe.inst.encoding for probe in kernel.probes), tuple(answer))
            if done < len(group.probes) and not (isinstance(answer, str) and group.layout == probes.ONE_WARP):
                waiting.appendleft(ProbeGroup(group.layout, group.probes[done:]))
    if waiting or busy:
        print(f"{sum(len(group.probes) for group in waiting)} probes did not run in time")
    for process in (*busy, *idle):
        process.end()


# --- comparing, on any machine


def rebuilt(layout: Sequence[int], encodings: Iterable[int]) -> probes.ProbeKernel:
    """Build the kernel of a record again."""
    made = [probes.probe_of(inst) for inst in probes.decoded(list(encodings))]
    grid, block = layout
    return probe_kernels.kernel_of(made, (grid, block))


def read_records(folder: Path) -> Iterator[RecordedKernel]:
    """Read the record of a folder."""
    for layout, codes, left in json.loads(lzma.decompress((folder / FILE).read_bytes())):
        yield RecordedKernel(tuple(layout), tuple(int(code, 16) for code in codes), tuple(left))


def probe_cases(folder: Path) -> Iterator[Case]:
    """Yield a case for each recorded kernel; its results are the digests of its probes, by spelling."""
    for number, recorded in enumerate(read_records(folder)):

        def run(runner: Runner, recorded: RecordedKernel = recorded) -> list[Any]:
            kernel = rebuilt(recorded.layout, recorded.encodings)
            data, constants = probe_kernels.arguments_of(kernel)
            runner(launch_of(kernel, data, constants), LaunchOptions(limit=LIMIT))
            return [
                (probe.inst.spelling, digest(left).encode(), expected.encode())
                for probe, left, expected in zip(
                    kernel.probes, probe_kernels.left_by(kernel, data), recorded.left, strict=True
                )
            ]

        yield Case(f"probes {number}", run, is_by_spelling=True)
