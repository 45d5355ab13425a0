"""Run instructions on the GPU, and compare every code with the result of `wf.execute`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.codegen.statement import choices
from warpfrag.codegen.tcgen05_code import product
from warpfrag.codegen.vectors import check_multiplies, check_seed, test_vectors
from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.formats.arrays import Words
from warpfrag.hardware import launches
from warpfrag.hardware.gpu_device import Worker
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.captures.capture import CaptureEntry, write_capture
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.random_operands import classes, random_words
from warpfrag.tensorcore.registry import find, get
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import run_images
from warpfrag.tensorcore.wgmma_call import KernelVariant, Variant, WgmmaCases

if TYPE_CHECKING:
    OperandSet = dict[str, Words] | WgmmaCases | launches.TensorLaunch


VARIANTS: Mapping[str, Callable[[Instruction], Iterable[KernelVariant]]] = {
    "warp": choices,
    "warpgroup": launches.verified_variants,
    "block": lambda _: (Immediates(),),
}
"""The function that lists the immediates or variants to run, by the operation's scope."""


def verify(
    instructions: Iterable[str | Instruction] | str | Instruction | None = None,
    *,
    only: str = "",
    cases: int = 1000,
    seed: int = 0,
    device: int = 0,
    capture: str | PathLike[str] | None = None,
    progress: Callable[[int, int, KernelResult], None] | None = None,
) -> Report:
    """Compare instructions (by default, all that this machine's GPU can run) with the GPU, code by code.

    `only` selects the instructions whose names contain this text. For each selector of an instruction, `cases` random
    cases are distributed over its operand classes; its test vectors follow. Block-scaled instructions run only with
    byte and thread ids 0. `hardware.launches` chooses the kernels of wgmma and tcgen05, whose cases are counted in
    16 x 8 tiles; tcgen05 runs only with n = 64 unless `only` is given. Operands and results are written to `capture`,
    in the format of `warpfrag.tensorcore.captures`.

    Raises NoGpu if there is no GPU. A script must call this under `if __name__ == "__main__":`, because kernels run in
    another process.
    """
    for name, number, minimum in (("cases", cases, 1), ("device", device, 0)):
        if not isinstance(number, int) or number < minimum:
            raise InvalidOperand(f"{name}: expected an integer of at least {minimum}, got {quote(number)}")
    check_seed(seed)
    if capture is not None and not str(capture).endswith(".npz"):
        raise InvalidOperand(f"capture: expected the name of an .npz file, got {quote(str(capture))}")
    if not isinstance(only, str):
        raise InvalidOperand(f"only: expected part of an instruction name, got {quote(only)}")
    named = _named(instructions)  # rejects a misspelt name before the GPU is opened
    with Worker(device) as worker:
        about = worker.about
        jobs = _jobs(named, only, about["target"])
        lines: list[KernelResult] = []
        recorder = Recorder() if capture else None
        for number, (instruction, variant) in enumerate(jobs):
            line = _compare(worker, instruction, variant, cases, seed, recorder)
            lines.append(line)
            if progress:
                progress(number + 1, len(jobs), line)
    if recorder and capture:
        recorder.write(capture, {key: about[key] for key in ("device", "arch", "driver", "assembler")})
    return Report(about["device"], about["arch"], about["driver"], about["assembler"], seed, tuple(lines))


def _named(instructions: Iterable[str | Instruction] | str | Instruction | None) -> list[Instruction] | None:
    """Return the named instructions, or None for all; raise InvalidOperand if one does not multiply."""
    if instructions is None:
        return None
    try:
        names = [instructions] if isinstance(instructions, str | Instruction) else list(instructions)
    except TypeError:
        raise InvalidOperand(f"expected one or more instruction names, got {quote(instructions)}") from None
    named = [get(instruction) for instruction in names]
    for instruction in named:
        if isinstance(instruction, TensorMma):
            product(instruction)  # raises an error if the shape or the types are missing
        else:
            check_multiplies(instruction, "verify runs")
    return named


def _jobs(named: list[Instruction] | None, only: str, target: str) -> list[tuple[Instruction, KernelVariant]]:
    """Return every kernel to run: each instruction with each selector or, for wgmma, with some of its variants."""
    if named is None:
        multiplying = [entry for entry in find(arch=target) if entry.form.operation.does == "multiply"]
        chosen = [
            one for one in multiplying if only or one.form.operation.scope != "block" or one.shape.n == launches.WIDTH
        ]
    else:
        chosen = [get(instruction.name, arch=target) for instruction in named]
    chosen = [instruction for instruction in chosen if only in instruction.name]
    if not chosen:
        raise InvalidOperand(f"no instruction that {target} can run contains {quote(only)}")
    return [(entry, variant) for entry in chosen for variant in VARIANTS[entry.form.operation.scope](entry)]


def _compare(
    worker: Worker, instruction: Instruction, variant: KernelVariant, cases: int, seed: int, recorder: Recorder | None
) -> KernelResult:
    """Run a kernel with every class of operands, and compare its results with the predicted ones."""
    target = worker.about["target"]
    ran = differing = 0
    mismatches: list[Mismatch] = []
    skip_reason = ""
    selector = variant.selector if instruction.pattern is not None else None
    description = variant.description if isinstance(variant, Variant) else ""
    for category, operands in _operand_sets(instruction, variant, cases, seed, target):
        answer = worker.run(instruction.name, variant, operands)
        if isinstance(operands, launches.TensorLaunch) and not isinstance(answer, str):
            answer = answer[None]  # add an axis for the cases
        if isinstance(answer, str):
            return KernelResult(instruction.name, selector, ran, differing, tuple(mismatches), answer, description)
        if recorder:
            recorder.add(instruction, variant, category, operands, answer)
        try:
            predicted = _predict(instruction, variant, operands, target)
        except NotModelled as error:
            skip_reason = f"not modelled: {error}"
            continue
        ran += len(answer)
        wrong = np.argwhere(predicted != answer)
        differing += len(np.unique(wrong[:, 0]))
        for index in wrong[: MAX_MISMATCHES - len(mismatches)]:
            case, *warp, lane, word = map(int, index)
            pair = f"{answer[tuple(index)]:08x}", f"{predicted[tuple(index)]:08x}"
            mismatches.append(Mismatch(category, case, lane, word, *pair, *warp))
    return KernelResult(instruction.name, selector, ran, differing, tuple(mismatches), skip_reason, description)


def _predict(instruction: Instruction, variant: KernelVariant, operands: OperandSet, target: str) -> Words:
    if isinstance(operands, WgmmaCases):
        return run_wgmma_cases(instruction, operands, target)
    if isinstance(operands, launches.TensorLaunch) and isinstance(instruction, TensorMma):
        return run_images(instruction.form, operands.operands, target)[None]
    from warpfrag.tensorcore.execute import execute_registers

    if isinstance(operands, launches.TensorLaunch):
        raise InvalidOperand(f"expected a tcgen05.mma, got {instruction}")
    return execute_registers(instruction, operands, None if isinstance(variant, Variant) else variant, arch=target)


def _operand_sets(
    instruction: Instruction, variant: KernelVariant, cases: int, seed: int, target: str
) -> Iterator[tuple[str, OperandSet]]:
    """Yield named sets of operands: `cases` random ones from all classes, then the matching test vectors."""
    if isinstance(variant, Variant):
        yield from launches.wgmma_launches(instruction, variant, -(-cases // launches.warp_tiles(instruction)), seed)
        return
    if isinstance(instruction, TensorMma):
        yield from launches.tensor_launches(instruction, -(-cases // launches.warp_tiles(instruction)), seed, target)
        return
    categories = classes(instruction)
    share = -(-cases // len(categories))
    for number, category in enumerate(categories):
        random = np.random.default_rng([seed, number, variant.selector])
        yield category, random_words(instruction, category, share, random, variant.selector)
    try:
        groups = test_vectors(instruction, arch=target).groups
    except NotModelled:  # unlike random operands, test vectors need expected results
        return
    yield from ((f"vectors: {group.name}", group.words) for group in groups if group.choice == variant)


def _arrays(operands: OperandSet) -> Mapping[str, Words]:
    """Return operands as a capture stores them, with an axis for the cases."""
    if isinstance(operands, launches.TensorLaunch):
        return {role: image[None] for role, image in operands.operands.items()}
    return operands.arrays if isinstance(operands, WgmmaCases) else operands


class Recorder:
    """Collects operands and results for a capture file; operands shared by several kernels are stored once."""

    def __init__(self) -> None:
        """Create a recorder without arrays or entries."""
        self.arrays: dict[str, Words] = {}
        self.entries: dict[tuple[str, KernelVariant], CaptureEntry] = {}

    def add(
        self, instruction: Instruction, variant: KernelVariant, category: str, operands: OperandSet, result: Words
    ) -> None:
        """Add the operands and results of one kernel, for one operand class."""
        sparse = instruction.pattern is not None
        keys = {}
        for role, array in _arrays(operands).items():
            key = f"in/{role}/{hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
            self.arrays.setdefault(key, array)
            keys[role] = key
        selector = f"#{variant.selector}" if sparse else ""
        suffix = variant.suffix(sparse=sparse) if isinstance(variant, Variant) else selector
        keys["d"] = f"out/{instruction.name}{suffix}/{category}"
        self.arrays[keys["d"]] = result
        entry: CaptureEntry = {
            "instruction": instruction.name,
            "selector": variant.selector if sparse else None,
            "classes": {},
        }
        kept = self.entries.setdefault((instruction.name, variant), entry)
        kept["classes"][category] = keys
        if isinstance(operands, WgmmaCases):
            kept.setdefault("calls", {})[category] = operands.call.row

    def write(self, path: str | PathLike[str], about: dict[str, str]) -> None:
        """Write the capture file."""
        write_capture(path, {**about, "entries": list(self.entries.values())}, self.arrays)


MAX_MISMATCHES = 5  # the maximum number of mismatches that are kept per kernel


@dataclass(frozen=True)
class Mismatch:
    """A word that differs: its location and both values."""

    operands: str
    case: int
    lane: int
    word: int
    hardware: str
    warpfrag: str
    warp: int | None = None  # the warp in its warpgroup

    def __str__(self) -> str:
        """Format both values in hexadecimal, on one line."""
        warp = "" if self.warp is None else f"warp {self.warp}, "
        return (
            f"{self.operands} case {self.case}, {warp}lane {self.lane}, word {self.word}: "
            f"hardware {self.hardware}, warpfrag {self.warpfrag}"
        )


@dataclass(frozen=True)
class KernelResult:
    """The result for one kernel: an instruction with a selector or variant."""

    instruction: str
    selector: int | None
    cases: int
    differing: int
    mismatches: tuple[Mismatch, ...] = ()
    skip_reason: str = ""  # an assembler error, a trap, or arithmetic that is not modelled
    variant: str = ""  # wgmma: where A is, and the transposed and negated operands

    @property
    def kernel(self) -> str:
        """The instruction, selector and variant."""
        selector = "" if self.selector is None else f" #{self.selector}"
        return f"{self.instruction}{selector}{f' ({self.variant})' if self.variant else ''}"

    @property
    def equal(self) -> bool:
        """True if all cases were compared and every code was equal."""
        return not self.skip_reason and not self.differing


@dataclass(frozen=True)
class Report:
    """The result of `verify`."""

    device: str
    arch: str
    driver: str
    assembler: str
    seed: int
    lines: tuple[KernelResult, ...] = field(default=())

    @property
    def cases(self) -> int:
        """The number of cases compared."""
        return sum(line.cases for line in self.lines)

    @property
    def differing(self) -> int:
        """The number of cases with a differing word."""
        return sum(line.differing for line in self.lines)

    @property
    def skipped(self) -> tuple[KernelResult, ...]:
        """The kernels with cases that were not compared."""
        return tuple(line for line in self.lines if line.skip_reason)

    @property
    def equal(self) -> bool:
        """True if everything was compared and every code was equal."""
        return bool(self.lines) and all(line.equal for line in self.lines)

    def summary(self) -> str:
        """Return one line with the numbers of kernels, cases and differences."""
        if not self.cases:
            result = "nothing was compared"
        else:
            result = f"{self.differing} cases differ" if self.differing else "all codes equal"
        skip_reason = f"; kernels not compared in full: {len(self.skipped)}" if self.skipped else ""
        return f"{len(self.lines)} kernels, {self.cases:,} cases on {self.device} ({self.arch}): {result}{skip_reason}"
