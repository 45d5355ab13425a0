"""Verify: run instructions on the GPU and compare every code with what `wf.execute` predicts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.captured.capture import write_capture
from warpfrag.emit.statement import choices
from warpfrag.errors import InvalidOperand, NotModelled, shown
from warpfrag.hardware.report import SHOWN, Line, Mismatch, Report
from warpfrag.hardware.worker import Worker
from warpfrag.instruction import Instruction
from warpfrag.registry import find, get
from warpfrag.samples import classes, random_words
from warpfrag.vectors import check_product, check_seed, vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike

    from numpy.typing import NDArray

    from warpfrag.captured.capture import Entry
    from warpfrag.choice import Choice


def verify(
    instructions: Iterable[str | Instruction] | str | Instruction | None = None,
    *,
    cases: int = 1000,
    seed: int = 0,
    device: int = 0,
    capture: str | PathLike[str] | None = None,
    progress: Callable[[int, int, Line], None] | None = None,
) -> Report:
    """Compare instructions (all that the GPU can run, unless some are named) with the GPU, code by code.

    `cases` are spread over the classes of operands that make sense for each instruction, for each selector; its test
    vectors come on top, but for those with byte or thread ids other than 0: block-scaled instructions run with ids 0
    only. With `capture`, operands and results are written there in the format of `warpfrag.captured`. NoGpu if there is
    none. A script calls this under `if __name__ == "__main__":`, because kernels run in a process of their own.
    """
    for name, number, least in (("cases", cases, 1), ("device", device, 0)):
        if not isinstance(number, int) or number < least:
            msg = f"{name} is an integer, at least {least}, got {shown(number)}"
            raise InvalidOperand(msg)
    check_seed(seed)
    if capture is not None and not str(capture).endswith(".npz"):
        msg = f"a capture is a file in .npz, got {shown(str(capture))}"
        raise InvalidOperand(msg)
    named = _named(instructions)  # a misspelt name is refused before the GPU is opened
    with Worker(device) as worker:
        about = worker.about
        jobs = _jobs(named, about["target"])
        lines: list[Line] = []
        recorder = Recorder() if capture else None
        for number, (instruction, choice) in enumerate(jobs):
            line = _compare(worker, instruction, choice, cases, seed, recorder)
            lines.append(line)
            if progress:
                progress(number + 1, len(jobs), line)
    if recorder and capture:
        recorder.write(capture, {key: about[key] for key in ("device", "arch", "driver", "assembler")})
    return Report(about["device"], about["arch"], about["driver"], about["assembler"], seed, tuple(lines))


def _named(instructions: Iterable[str | Instruction] | str | Instruction | None) -> list[Instruction] | None:
    """The instructions that were named, or None for all; what computes nothing is refused."""
    if instructions is None:
        return None
    try:
        several = [instructions] if isinstance(instructions, str | Instruction) else list(instructions)
    except TypeError:
        msg = f"expected the name of an instruction, or several, got {shown(instructions)}"
        raise InvalidOperand(msg) from None
    found = [get(instruction) for instruction in several]
    for instruction in found:
        check_product(instruction, "verify runs")
    return found


def _jobs(named: list[Instruction] | None, target: str) -> list[tuple[Instruction, Choice]]:
    """Every kernel to run: each instruction with each of its selectors."""
    if named is None:
        chosen = [found for found in find(target=target) if found.form.is_product]
    else:
        chosen = [get(instruction.name, target=target) for instruction in named]
    return [(instruction, choice) for instruction in chosen for choice in choices(instruction)]


def _compare(
    worker: Worker, instruction: Instruction, choice: Choice, cases: int, seed: int, recorder: Recorder | None
) -> Line:
    """Run one kernel on every class of operands and compare."""
    from warpfrag.execute import execute_registers

    selector = choice.selector if instruction.form.is_sparse else None
    ran = differing = 0
    mismatches: list[Mismatch] = []
    trouble = ""
    for kind, words in _operand_sets(instruction, choice, cases, seed, worker.about["target"]):
        answer = worker.run(instruction.name, choice, words)
        if isinstance(answer, str):
            return Line(instruction.name, selector, ran, differing, tuple(mismatches), answer)
        if recorder:
            recorder.add(instruction, selector, kind, words, answer)
        try:
            predicted = execute_registers(instruction, words, choice, arch=worker.about["target"])
        except NotModelled as error:
            trouble = f"not modelled: {error}"
            continue
        ran += len(answer)
        wrong = np.argwhere(predicted != answer)
        differing += len(np.unique(wrong[:, 0]))
        for case, lane, word in wrong[: SHOWN - len(mismatches)]:
            pair = f"{answer[case, lane, word]:08x}", f"{predicted[case, lane, word]:08x}"
            mismatches.append(Mismatch(kind, int(case), int(lane), int(word), *pair))
    return Line(instruction.name, selector, ran, differing, tuple(mismatches), trouble)


def _operand_sets(
    instruction: Instruction, choice: Choice, cases: int, seed: int, target: str
) -> Iterator[tuple[str, dict[str, NDArray[np.uint32]]]]:
    """Operands to run: `cases` of the random classes together, then the test vectors of this choice."""
    kinds = classes(instruction)
    share = -(-cases // len(kinds))
    for number, kind in enumerate(kinds):
        random = np.random.default_rng([seed, number, choice.selector])
        yield kind, random_words(instruction, kind, share, random, choice.selector)
    try:
        groups = vectors(instruction, arch=target).groups
    except NotModelled:  # there is nothing to expect; the random classes are captured all the same
        return
    for group in groups:
        if group.choice == choice:
            yield f"vectors: {group.name}", group.words


class Recorder:
    """Collects operands and results for a capture file; operands that several kernels share are kept once."""

    def __init__(self) -> None:
        """Start empty."""
        self.arrays: dict[str, NDArray[np.uint32]] = {}
        self.entries: dict[tuple[str, int | None], Entry] = {}

    def add(
        self,
        instruction: Instruction,
        selector: int | None,
        kind: str,
        words: dict[str, NDArray[np.uint32]],
        result: NDArray[np.uint32],
    ) -> None:
        """Keep one class of one kernel."""
        name = instruction.name if selector is None else f"{instruction.name}#{selector}"
        keys = {}
        for role, array in words.items():
            key = f"in/{role}/{hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
            self.arrays.setdefault(key, array)
            keys[role] = key
        keys["d"] = f"out/{name}/{kind}"
        self.arrays[keys["d"]] = result
        entry: Entry = {"instruction": instruction.name, "selector": selector, "classes": {}}
        self.entries.setdefault((instruction.name, selector), entry)["classes"][kind] = keys

    def write(self, path: str | PathLike[str], about: dict[str, str]) -> None:
        """Write the capture file."""
        write_capture(path, {**about, "entries": list(self.entries.values())}, self.arrays)
