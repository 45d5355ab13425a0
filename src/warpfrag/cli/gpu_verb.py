"""`warpfrag gpu`: run a CUDA program on a virtual GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Annotated, Literal, NamedTuple

import click

from warpfrag.cli.io.arguments import File, Seconds
from warpfrag.cli.io.output import INCOMPLETE, NO, echo, echo_error, print_table
from warpfrag.cli.io.verbs import Answer, Param, verb
from warpfrag.device.gpu_attributes import profile_names, read_profile
from warpfrag.device.launch_log import findings_of, report_of, summary_of, unjudged_of
from warpfrag.device.virtual_gpu import GpuOptions, run_program
from warpfrag.errors import quote
from warpfrag.files import check_writable, write_atomically

SIZE = re.compile(r"(\d{1,13})([KMGT]?)(?:i?B)?", re.IGNORECASE)
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def read_size(text: str) -> int:
    """Return a number of bytes, written as 1000000, 512M or 16G."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"expected a number of bytes such as 512M or 16G, got {quote(text)}")
    return int(match[1]) << UNITS[match[2].upper()]


def read_checks(text: str) -> tuple[str, ...]:
    """Parse the names of checks, separated by commas."""
    return tuple(name.strip() for name in text.split(","))


class ProfileRow(NamedTuple):
    """A GPU profile: its name, the GPU's name, architecture and memory, and the source of its attributes."""

    profile: str
    name: str
    arch: str
    memory: int
    source: str


class GpuFacts(NamedTuple):
    """The launches of a program or, with --list, the profiles.

    status: exit status of the program; null with --list
    launches: one object per launch: kernel, grid, block, seconds, exact, reasons, findings, error and message
    unsupported: unsupported entry points that the program called
    """

    status: int | None
    launches: list[dict[str, object]]
    unsupported: list[str]
    profiles: list[ProfileRow]


@verb
def gpu(
    program: tuple[str, ...] = (),
    *,
    list_: bool = False,
    profile: str = "H200",
    memory: Annotated[int, Param("SIZE", read_size)] | None = None,
    check: Annotated[tuple[str, ...], Param("NAMES", read_checks)] | None = None,
    check_incomplete: Literal["fail", "warn", "accept"] = "fail",
    report: File | None = None,
    record_only: bool = False,
    fast: bool = False,
    launch_seconds: Seconds | None = None,
) -> Answer[GpuFacts]:
    """Run an unmodified CUDA program on a virtual GPU, without a GPU or a driver.

    The program loads stand-ins for libcuda and libcudart, and every kernel is executed as machine code.
    If the program fails, its exit status is returned. Otherwise, the exit status is 1 if a launch failed, a check found
    a mistake or the launches could not be recorded, and 3 if the checks could not judge everything or a launch could
    not be executed.

    Options:
        list_: List the GPUs that --profile takes.
        profile (NAME): The GPU that the program sees.
        memory: The size of device memory, such as 16G.
        check: The mistakes to search for in every launch: memory, races, uninitialised, barriers, async or all.
        check_incomplete: If the checks cannot judge a launch completely: exit with status 3 (fail), print a message
            (warn), or ignore it (accept).
        report: Write an HTML page with the grid, time, exactness and findings of every launch.
        record_only: Record the launches without executing them.
        fast: Do not judge whether the results of launches are exact.
        launch_seconds: Stop a launch after this many seconds, and report the line it had reached.

    For example:
        warpfrag gpu -- python train.py
        warpfrag gpu --check races,memory --report report.html -- ./a.out 1024
        warpfrag gpu --list
    """
    if list_:
        rows = [
            ProfileRow(name, each.name, each.arch, each.total_memory, each.source)
            for name, each in ((name, read_profile(name)) for name in profile_names())
        ]
        table = [[*row[:3], f"{row.memory / 2**30:.1f} GiB", row.source] for row in rows]
        return Answer(GpuFacts(None, [], [], rows), lambda: print_table(list(ProfileRow._fields), table))
    if not program:
        raise click.UsageError("expected a program: warpfrag gpu -- python train.py")
    if report is not None:
        check_writable(report)
    as_json = click.get_current_context().params.get("as_json")
    options = GpuOptions(profile, memory, check or (), record_only, fast, launch_seconds)
    status, log = run_program(program, options, output=sys.stderr.fileno() if as_json else None)
    if report is not None:
        write_atomically(report, report_of(log, subprocess.list2cmdline(program)).encode())
    facts = GpuFacts(status, log["launches"], log["unsupported"], [])

    def show() -> None:
        for text in unjudged_of(findings_of(log)) if check_incomplete != "accept" else ():
            echo_error(f"warpfrag gpu: {text}")
        echo_error(f"warpfrag gpu: {summary_of(log)}")
        if report is not None:
            echo(f"wrote {report}")

    is_unjudged = log["incomplete"] and check_incomplete == "fail"
    checked = INCOMPLETE if is_unjudged or log["unexecuted"] or (check and not log["launches"]) else 0
    is_wrong = log["findings"] or log["failed"] or not log["complete"]
    return Answer(facts, show, status or (NO if is_wrong else checked))
