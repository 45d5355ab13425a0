"""`warpfrag sweep`: a study of many products, kept in a Zarr store, that goes on where it stopped."""

from __future__ import annotations

import csv
import warnings
from contextlib import contextmanager
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from warpfrag.cli.support.options import complete_file, file_option, integer, json_option
from warpfrag.cli.support.output import ProgressLine, echo, echo_error, print_json, print_notes, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, NoGpu, StoreWarning, UnusableFile
from warpfrag.files import check_writable, write_atomically
from warpfrag.viz.plots import bar_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.sweep import Case, Outcome, Study

FIGURES = ("largest_ulps", "rms_ulps", "mean_ulps", "rms_relative", "rms_to_magnitude", "rms_to_rms")
PLOTTED = "rms_to_rms"


@verb(
    "warpfrag sweep study.toml                                   # writes study.zarr; the same command resumes",
    "warpfrag sweep study.toml --workers 8 -o results.zarr       # on eight processes of this machine",
    "warpfrag sweep study.toml --csv study.csv --plot study.svg  # tables and figures of its results",
    "warpfrag sweep study.toml --verify                          # reads all blocks, and repairs damaged ones",
    "warpfrag sweep study.toml --scheduler tcp://10.0.0.1:8786   # on the workers of a Dask scheduler",
)
@click.argument("file", metavar="FILE.toml", shell_complete=complete_file)
@click.option("--scheduler", metavar="ADDRESS", help="Run on the workers of the Dask scheduler at this address.")
@click.option(
    "--workers", metavar="N", type=integer(1, 1024), help="Number of processes on this machine; default: only this one."
)
@click.option("--verify", is_flag=True, help="Read every existing block, and compare it with its checksum.")
@file_option("-o", "--output", help_text="The Zarr store; without it, FILE.zarr.")
@file_option("--csv", "csv_file", help_text="Write every case and figure to this file, as CSV.")
@file_option("--plot", help_text="Write a figure of the errors of all cases to this file, as SVG.")
@json_option
def command(
    file: str,
    *,
    scheduler: str | None,
    workers: int | None,
    verify: bool,
    output: str | None,
    csv_file: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Compute every product that FILE.toml asks for, block by block, and compare it with the exact one.

    The file names instructions, architectures, shapes, data and orders; every combination is a case. Blocks are written
    to a Zarr store as they are done. If it is interrupted, the same command resumes it. Blocks that
    are missing or truncated are computed again; with --verify also those that were changed.
    """
    from warpfrag.sweep import Study, UnusableScheduler, sweep

    if scheduler is not None and workers is not None:
        msg = "give --scheduler, whose workers already run, or --workers, which are started; not both"
        raise click.UsageError(msg)
    study = Study.read(file)
    for path in (csv_file, plot):
        if path is not None:
            check_writable(path)
    store = str(Path(file).with_suffix(".zarr")) if output is None else output
    with ProgressLine(lines=True) as progress:
        case_progress = _CaseProgress(progress)
        try:
            with _warnings_told(progress):
                outcomes = sweep(
                    study, store, scheduler=scheduler, workers=workers, verify=verify, progress=case_progress
                )
        except KeyboardInterrupt:
            progress.clear()
            echo_error(f"interrupted{case_progress.kept(store)}")
            raise
        except (NoGpu, UnusableFile, UnusableScheduler) as error:
            msg = f"{error}{case_progress.kept(store)}"
            raise type(error)(msg) from None
    if csv_file is not None:
        write_atomically(csv_file, _csv(outcomes).encode())
    if plot is not None:
        write_atomically(plot, _plot(study, outcomes).encode())
    if as_json:
        facts = {"store": store, "sha256": study.digest, "computed": case_progress.computed}
        print_json("sweep", {**facts, "cases": [outcome.to_dict() for outcome in outcomes]})
        return
    _print_outcomes(study, outcomes)
    summary = f"computed {case_progress.computed} blocks" if case_progress.computed else "nothing was left to compute"
    echo(f"{summary}; everything is in {store}")
    for written in filter(None, (csv_file, plot)):
        echo(f"wrote {written}")


def _csv(outcomes: list[Outcome]) -> str:
    """A line for each case: what it is, and its figures; empty where it could not be computed."""
    from warpfrag.blas.error_report import Summary

    names = [field.name for field in fields(outcomes[0].case)]
    figures = [field.name for field in fields(Summary)]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["case", *names, *figures, "compared", "nonfinite", "refusal"])
    for outcome in outcomes:
        facts = outcome.figures or {}
        errors = facts.get("errors") or {}
        counts = [facts.get(name, "") for name in ("compared", "nonfinite")]
        cells = [repr(errors[name]) if errors.get(name) is not None else "" for name in figures]
        writer.writerow([outcome.name, *outcome.case.words(*names), *cells, *counts, outcome.refusal or ""])
    return text.getvalue()


def _plot(study: Study, outcomes: list[Outcome]) -> str:
    """A bar for each case that was computed: its root mean square error, relative to that of the results."""
    names = [field.name for field in fields(outcomes[0].case)]
    varying = [name for name in names if len(getattr(study, name)) > 1]
    bars = [
        (f"{outcome.name}: {', '.join(outcome.case.words(*varying))}".rstrip(": "), outcome.figures["errors"][PLOTTED])
        for outcome in outcomes
        if outcome.figures is not None and outcome.figures["errors"] is not None
    ]
    if not bars:
        msg = "no case of this study has errors to plot"
        raise InvalidOperand(msg)
    return bar_page("Root mean square error / root mean square of the results", bars)


@contextmanager
def _warnings_told(progress: ProgressLine) -> Iterator[None]:
    """What a sweep has to say of its store, as the command says things: at once, in a line."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def tell(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, StoreWarning):
                show(message, category, filename, lineno, file, line)
                return
            progress.clear()
            echo_error(f"warpfrag: {message}")

        warnings.simplefilter("always", StoreWarning)
        warnings.showwarning = tell
        yield


class _CaseProgress:
    """Progress as a person sees it: a bar on a terminal, elsewhere a line for each case that is done."""

    def __init__(self, progress: ProgressLine) -> None:
        self.progress = progress
        self.done = self.total = self.computed = 0

    def __call__(self, done: int, total: int, case: Case, is_done: bool) -> None:  # noqa: FBT001 (sweep's)
        self.done, self.total = done, total
        self.computed += 1
        if self.progress.is_terminal or is_done:
            self.progress.show(done, total, str(case))

    def kept(self, store: str) -> str:
        """How far a sweep that stopped has come, as the end of a sentence."""
        if not self.total:
            return ""
        return f"; {self.done} of {self.total} blocks are in {store}, and the same command resumes there"


def _print_outcomes(study: Study, outcomes: list[Outcome]) -> None:
    """What all cases have in common, then a line for each; why some could not be computed."""
    names = [field.name for field in fields(outcomes[0].case)]
    varying = [name for name in names if len(getattr(study, name)) > 1]
    common = [name for name in names if name not in varying and name not in {"seed", "backend"}]
    echo(", ".join(outcomes[0].case.words(*common)))
    header = [name.replace("_", " ") for name in FIGURES]
    done = [outcome for outcome in outcomes if outcome.figures is not None]
    rows = [[outcome.name, *outcome.case.words(*varying), *_figures(outcome)] for outcome in done]
    print_table(["case", *varying, *header, "compared", "not finite"], rows)
    refused = dict.fromkeys(outcome.refusal for outcome in outcomes if outcome.refusal)
    print_notes(
        f"{sum(outcome.refusal == why for outcome in outcomes)} of {len(outcomes)} cases cannot be computed: {why}"
        for why in refused
    )
    echo()


def _figures(outcome: Outcome) -> Iterator[object]:
    figures = outcome.figures or {}
    for name in FIGURES:
        error = None if figures["errors"] is None else figures["errors"].get(name)
        yield "-" if error is None else f"{error:.4g}"
    yield figures["compared"]
    yield figures["nonfinite"]
