"""The log of a program's launches, as JSON lines, and an HTML report."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from warpfrag import html
from warpfrag.device.error_codes import ErrorCode

MAX_ROWS = 2000  # the maximum number of rows in the table of a report
COMPLETE = b'{"complete": true }\n'
INCOMPLETE = b'{"complete": false}\n'
"""The first line of a log if a launch could not be stored.

It is as long as COMPLETE, which it overwrites, so that it can be written even if the disk is full.
"""
INTERRUPTED = "interrupted"  # a file next to the log, which every Ctrl-C touches
UNJUDGED = "not judged: "


@dataclass
class LaunchRecord:
    """A launch: its shape, its time, the evidence for its result, and its findings."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...] | None = None
    shared: int = 0
    seconds: float = 0.0
    instructions: int = 0
    exact: bool = False
    reasons: list[str] = field(default_factory=list)
    basis: str = ""
    verdict: str | None = None
    unjudged: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: int = 0
    message: str = ""

    @property
    def title(self) -> str:
        """The kernel and its shape, for messages."""
        return f"{self.kernel} with grid {self.grid} and block {self.block}"


class LaunchLog:
    """A file with one JSON object per line; several servers append to the same file."""

    def __init__(self, path: str) -> None:
        """Open the log; with an empty path, everything is discarded."""
        self.path = path
        self.descriptor = -1
        self.notes: set[str] = set()
        if path:  # the lock is released when this process ends; `wait_for_servers` waits for that
            import fcntl  # missing on Windows, where logs are only read

            with suppress(OSError):
                fcntl.flock(self.open(), fcntl.LOCK_SH)

    def open(self) -> int:
        """Return a descriptor for the file; raise OSError if it cannot be opened."""
        if self.descriptor < 0:
            self.descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return self.descriptor

    def _write(self, entry: dict[str, Any]) -> None:
        if not self.path:
            return
        line = (json.dumps({"process": os.getpid(), **entry}) + "\n").encode()
        problem, written = "the disk is full", 0
        try:
            written = os.write(self.open(), line)
        except OSError as error:
            problem = error.strerror or str(error)
        if written < len(line):  # the program continues even if its launches cannot be stored
            sys.stderr.write(f"warpfrag gpu: launches are no longer recorded: {self.path}: {problem}\n")
            with suppress(OSError), Path(self.path).open("r+b") as file:
                file.write(INCOMPLETE)
            self.path = ""

    def launch(self, record: LaunchRecord) -> None:
        """Store a launch."""
        self._write({"launch": asdict(record)})

    def note(self, function: str) -> None:
        """Store the name of an unsupported entry point once."""
        if function not in self.notes:
            self.notes.add(function)
            self._write({"unsupported": function})


def read_log(path: Path) -> dict[str, Any]:
    """Return the launches and the unsupported entry points in a log; a truncated line is ignored."""
    entries = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError):
            entries.append(json.loads(line))
    launches = [entry["launch"] for entry in entries if "launch" in entry]
    return {
        "launches": launches,
        "failed": sum(1 for each in launches if each["error"] not in {0, ErrorCode.NOT_SUPPORTED}),
        "findings": sum(len(each["findings"]) for each in launches),
        "exact": sum(1 for each in launches if each["exact"]),
        "unexecuted": sum(1 for each in launches if each["error"] == ErrorCode.NOT_SUPPORTED),
        "categories": Counter(text.partition(":")[0] for each in launches for text in each["findings"]),
        "checked": sum(1 for each in launches if each["verdict"] and each["error"] != ErrorCode.NOT_SUPPORTED),
        "incomplete": sum(1 for each in launches if each["verdict"] == "incomplete"),
        "complete": {"complete": False} not in entries,
        "seconds": sum(each["seconds"] for each in launches),
        "unsupported": sorted({entry["unsupported"] for entry in entries if "unsupported" in entry}),
    }


def findings_of(log: dict[str, Any]) -> list[str]:
    """Return the findings (or the error) of every launch, and the events that the checks could not judge."""
    return [
        f"{launch['kernel']}: {text}"
        for launch in log["launches"]
        for text in (
            *(launch["findings"] or [launch["message"]] * bool(launch["error"])),
            *(f"{UNJUDGED}{text}" for text in launch["unjudged"]),
        )
    ]


def unjudged_of(findings: Iterable[str]) -> list[str]:
    """Return each distinct line about events that the checks could not judge, with its number of launches."""
    counts = Counter(text for text in findings if f": {UNJUDGED}" in text)
    return [text + (f" ({count} launches)" if count > 1 else "") for text, count in counts.items()]


def summary_of(log: dict[str, Any]) -> str:
    """Return a one-line summary of all launches."""
    count = len(log["launches"])
    if not count:
        return "no kernel was launched, so nothing was checked; two common causes: the program was linked without \
-cudart shared, or PyTorch is a CPU build (torch.version.cuda is None)"
    parts = [f"{count} launch{'es' * (count != 1)}", f"{log['seconds']:.1f} s in kernels", f"{log['exact']} exact"]
    findings = f"{log['findings']} finding{'s' * (log['findings'] != 1)}"
    if log["findings"]:
        findings += f" ({', '.join(f'{number} {name}' for name, number in log['categories'].most_common())})"
    parts += [f"{log['failed']} failed"] * bool(log["failed"])
    parts += [f"{log['unexecuted']} could not be executed"] * bool(log["unexecuted"])
    parts += [f"{log['checked']} checked"] * bool(log["checked"])
    parts += [f"{log['incomplete']} not fully judged"] * bool(log["incomplete"])
    parts += [findings] * bool(log["findings"] or log["checked"])
    parts += ["later launches were not recorded"] * (not log["complete"])
    return ", ".join(parts)


def report_of(log: dict[str, Any], command: str) -> str:
    """Return an HTML page that lists every launch."""
    heads = ("launch", "kernel", "grid", "block", "shared", "time", "result", "findings")
    rows = []
    for number, each in enumerate(log["launches"][:MAX_ROWS]):
        result = "exact" if each["exact"] else "; ".join(each["reasons"])
        if each["error"]:
            result = f"error {each['error']}: {each['message']}"
        rows.append((
            str(number), each["kernel"], str(tuple(each["grid"])), str(tuple(each["block"])), str(each["shared"]),
            f"{1e3 * each['seconds']:.1f} ms", result, "\n".join(each["findings"]),
        ))  # fmt: skip
    more = len(log["launches"]) - len(rows)
    parts = [f"<h1>Launches of {html.escape(command)}</h1>", f"<p>{html.escape(summary_of(log))}</p>"]
    parts += [html.table(heads, rows)]
    parts += [f"<p>{more} more launches are not listed.</p>"] if more > 0 else []
    if log["unsupported"]:
        names = ", ".join(log["unsupported"])
        parts += [f"<p>Unsupported entry points: {html.escape(names)}.</p>"]
    return f'<!doctype html><meta charset="utf-8"><title>warpfrag gpu</title>\n{html.card(*parts)}\n'
