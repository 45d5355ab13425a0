"""`warpfrag survey` and `warpfrag sweep`: record the kernels that cuBLAS selects, and run many GEMMs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click

from warpfrag.cli.io.arguments import File
from warpfrag.cli.io.output import ProgressLine, echo, echo_error, print_notes, print_table
from warpfrag.cli.io.verbs import Answer, Param, integer, verb
from warpfrag.errors import FileError, NoGpu, NotModelled, SchedulerError, StoreWarning
from warpfrag.sweep import Case, Outcome, SweepPlan

FIGURES = ("largest_ulps", "rms_ulps", "mean_ulps", "rms_relative", "rms_to_magnitude", "rms_to_rms")


class SurveyFacts(NamedTuple):
    """The recorded choices of cuBLAS.

    layers: number of layers in the file
    runs: number of ranges of m in the file
    gpu: name of the GPU
    library: name and version of the library
    file: file that was written
    settings: assumptions about PyTorch
    """

    layers: int
    runs: int
    gpu: str
    library: str
    file: str
    settings: dict[str, Any]


@verb
def survey(layers: File, *, output: File) -> Answer[SurveyFacts]:
    """Record, for every m, the kernel that this machine's cuBLAS selects for a list of layers; nothing is multiplied.

    FILE is a TOML file. Its table [layers] has lines such as qkv = [6144, 4096]: the n and k of a weight. Optional
    keys: types = ["bf16"], layouts = ["nt", "nn"], biases = [false, true], fast_accumulation = [true], m = 16384.

    Options:
        output: The .npz file of choices; layers that it already contains are not queried again.

    For example:
        warpfrag survey layers.toml -o choices.npz        # on a machine with a GPU; resumes if interrupted
        warpfrag predict A.npy B.npy --choices choices.npz   # on any machine
    """
    from warpfrag.hardware.cublas_survey import SurveyPlan
    from warpfrag.hardware.cublas_survey import survey as record

    plan = SurveyPlan.read(layers)
    with ProgressLine() as line:
        table = record(plan, output, report=line.show)
    counts = len(table.layers), len(table.ends)
    facts = SurveyFacts(*counts, table.gpu, table.library, output, dict(table.settings))
    text = f"wrote {output}: {counts[0]} layers, {counts[1]} ranges of m, {table.library} on {table.gpu}"
    return Answer(facts, lambda: echo(text))


class SweepFacts(NamedTuple):
    """The cases of a plan and their results.

    store: the Zarr store
    sha256: hash of the plan file
    computed: number of blocks that this call computed
    cases: every combination; the last key varies fastest
    """

    store: str
    sha256: str
    computed: int
    cases: list[Outcome]


@verb
def sweep(
    file: File,
    *,
    scheduler: str | None = None,
    workers: Annotated[int, Param("N", integer(1, 1024))] | None = None,
    verify: bool = False,
    output: File | None = None,
) -> Answer[SweepFacts]:
    """Compute every GEMM of a TOML file, block by block, and measure its error.

    FILE names instructions, architectures, shapes, data and orders; every combination is a case. Finished blocks are
    written to a Zarr store. If the sweep is interrupted, the same command resumes it. Missing and truncated blocks are
    computed again; with --verify, so are blocks that do not match their checksums.

    Options:
        scheduler (ADDRESS): Run on the workers of the Dask scheduler at this address.
        workers: Number of processes on this machine; default: this process only.
        verify: Read every existing block, and compare it with its checksum.
        output: The Zarr store; default: FILE.zarr.

    For example:
        warpfrag sweep sweep.toml                                   # writes sweep.zarr; the same command resumes
        warpfrag sweep sweep.toml --workers 8 -o results.zarr       # in eight processes
        warpfrag sweep sweep.toml --verify                          # read all blocks, and repair damaged ones
        warpfrag sweep sweep.toml --scheduler tcp://10.0.0.1:8786   # on the workers of a Dask scheduler
    """
    from warpfrag.sweep import sweep as run_sweep

    if scheduler is not None and workers is not None:
        raise click.UsageError("expected --scheduler (workers that are running) or --workers (new processes), got both")
    plan = SweepPlan.read(file)
    store = str(Path(file).with_suffix(".zarr")) if output is None else output
    with ProgressLine(lines=True) as line:
        progress = CaseProgress(line)
        try:
            with warnings.catch_warnings(action="ignore", category=StoreWarning):  # the outcomes list the repairs
                outcomes = run_sweep(
                    plan, store, scheduler=scheduler, workers=workers, verify=verify, progress=progress
                )
        except KeyboardInterrupt:
            line.clear()
            echo_error(f"interrupted{progress.kept(store)}")
            raise
        except (NoGpu, NotModelled, FileError, SchedulerError) as error:
            raise type(error)(f"{error}{progress.kept(store)}") from None

    for outcome in outcomes:
        for chunk in outcome.repaired:
            echo_error(f"warpfrag: {store} was damaged: {chunk}; recomputed")

    def show() -> None:
        _print_outcomes(plan, outcomes)
        summary = f"computed {n} block{'s' * (n > 1)}" if (n := progress.computed) else "nothing to compute"
        echo(f"{summary}; everything is in {store}")

    return Answer(SweepFacts(store, plan.digest, progress.computed, outcomes), show)


def _names(plan: SweepPlan, outcomes: list[Outcome]) -> tuple[list[str], list[str]]:
    """Return all keys of a case, and the keys that vary in this plan."""
    names = [field.name for field in fields(outcomes[0].case)]
    return names, [name for name in names if len(getattr(plan, name)) > 1]


class CaseProgress:
    """The progress of a sweep: a bar on a terminal, otherwise a line for each finished case."""

    def __init__(self, line: ProgressLine) -> None:
        """Show the progress on this line."""
        self.line = line
        self.done = self.total = self.computed = 0

    def __call__(self, done: int, total: int, case: Case, is_done: bool) -> None:  # noqa: FBT001 (sweep's)
        """Count a finished block."""
        self.done, self.total = done, total
        self.computed += 1
        if self.line.is_terminal or is_done:
            self.line.show(done, total, str(case))

    def kept(self, store: str) -> str:
        """Return the end of the message for an interrupted sweep."""
        if not self.total:
            return ""
        return f"; {self.done} of {self.total} blocks are in {store}; run the same command again to resume"


def _print_outcomes(plan: SweepPlan, outcomes: list[Outcome]) -> None:
    """Print the common keys, a line for each case, and the reasons why some could not be computed."""
    names, varying = _names(plan, outcomes)
    common = [name for name in names if name not in varying and name not in {"seed", "backend"}]
    echo(", ".join(outcomes[0].case.texts(*common)))
    header = [name.replace("_", " ") for name in FIGURES]
    rows = [
        [outcome.name, *outcome.case.texts(*varying), *_figures(outcome.figures)]
        for outcome in outcomes
        if outcome.figures is not None
    ]
    print_table(["case", *varying, *header, "compared", "not finite"], rows)
    refusals = [outcome.refusal for outcome in outcomes if outcome.refusal]
    print_notes(
        f"{refusals.count(reason)} of {len(outcomes)} cases cannot be computed: {reason}"
        for reason in dict.fromkeys(refusals)
    )
    echo()


def _figures(figures: dict[str, Any]) -> Iterator[object]:
    for name in FIGURES:
        error = None if figures["errors"] is None else figures["errors"].get(name)
        yield "-" if error is None else f"{error:.4g}"
    yield figures["compared"]
    yield figures["nonfinite"]
