"""What the verbs print: tables of text, JSON, notes, progress, errors; and the exit statuses.

Text uses a few characters beyond ASCII and replaces them where the stream cannot write them. Headings are bold on a
terminal, unless NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from warpfrag.errors import IllegalInstruction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DONE, NO, ERROR, FAULT = range(4)
INCOMPLETE = FAULT  # of a checked launch: nothing is wrong, but not all could be judged
INTERRUPTED = 130  # as a shell reports it: 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE
STATUSES = {
    DONE: "Done, or the answer is yes.",
    NO: "The answer is no: not legal, nothing found, a difference, a mistake not caught.",
    ERROR: "Invalid question or input; one sentence on stderr.",
    FAULT: "Checks report nothing, but could not judge everything; or internal error (WARPFRAG_TRACEBACK=1 shows it).",
    INTERRUPTED: "Interrupted.",
    BROKEN_PIPE: "The output pipe was closed.",
}

SCHEMA = 1
WIDTH = 100
TIMES = "\N{MULTIPLICATION SIGN}"
ASCII = str.maketrans({TIMES: "x", "·": "*", "─": "-", "…": "..."})
UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")
MAX_MESSAGE = 4000  # characters; the lists of what is known are a quarter of that
BAR = 30  # characters of a bar that shows progress


def encodable(text: str, encoding: str | None) -> str:
    """The text, in plain ASCII where a stream of this encoding cannot take it.

    >>> encodable("A · B", "ascii")
    'A * B'
    """
    encoding = encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return text


class OutputClosed(Exception):
    """Nobody reads our output any more."""


class OutputFailed(Exception):
    """The answer cannot be written: a full disk, a stream that is closed."""


def printable(text: str) -> str:
    r"""The text without control characters: what a user typed must not steer the terminal of whoever reads it.

    >>> print(printable("red: \x1b[31m"))
    red: \x1b[31m
    """
    return UNUSUAL.sub(lambda match: match[0] if match[0].isprintable() else ascii(match[0])[1:-1], text)


def echo(text: str = "") -> None:
    """Print a text on stdout."""
    _write(printable(text))


def _write(text: str) -> None:
    stream = sys.stdout
    if stream is None:  # closed before Python started
        msg = "stdout is closed"
        raise OutputFailed(msg)
    with _output_errors():
        # Line by line: where Python does not buffer, one long write that breaks off halfway goes unnoticed.
        for line in (encodable(text, stream.encoding) + "\n").splitlines(keepends=True):
            stream.write(line)


def flush() -> None:
    """Write what is still kept back, so that it is known whether all of the answer was written."""
    with _output_errors():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise OutputFailed(error.strerror or str(error)) from None


def echo_error(text: str) -> None:
    """Print a line on stderr; where that cannot be written either, it is dropped."""
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(encodable(printable(text), sys.stderr.encoding) + "\n")
            sys.stderr.flush()


def terminal_width() -> int:
    """How many characters fit side by side: as COLUMNS says, else as the terminal does, else WIDTH.

    `shutil` has the same, but takes longer to import than many look-ups.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):  # no terminal; closed
        return WIDTH


class ProgressLine:
    """How far long work is: one line on a terminal that is written over; elsewhere, if `lines`, a line per step."""

    def __init__(self, *, lines: bool = False) -> None:
        """Look at stderr: stdout is for the answer."""
        self.is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self.lines = lines

    def __enter__(self) -> Self:
        """Use it in a with statement."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no line behind."""
        self.clear()

    def show(self, done: int, total: int, text: str) -> None:
        """Show that `done` of `total` steps are done, and a text about the current one."""
        if self.is_terminal:
            filled = BAR * done // max(total, 1)
            self._overwrite(f"[{'#' * filled}{'.' * (BAR - filled)}] {done}/{total} {text}")
        elif self.lines:
            echo_error(f"[{done}/{total}] {text}")

    def clear(self) -> None:
        """Take the line away, so that an answer can be printed where it was."""
        if self.is_terminal:
            self._overwrite("")

    def _overwrite(self, text: str) -> None:
        width = terminal_width() - 1
        line = encodable(printable(text), sys.stderr.encoding)[:width]
        with suppress(OSError):
            sys.stderr.write(f"\r{line.ljust(width)}\r{line}")
            sys.stderr.flush()


def print_heading(text: str) -> None:
    """Print a line that stands above others."""
    bold = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    _write(f"\x1b[1m{printable(text)}\x1b[0m" if bold else printable(text))


def print_notes(lines: Iterable[str]) -> None:
    """Print notes on the answer above."""
    for place, line in enumerate(lines):
        echo(("" if place else "\n") + wrapped(f"note: {line}", indent=6))


def print_json(query: str, answer: Mapping[str, object]) -> None:
    """Print an answer as one JSON object."""
    import json

    echo(json.dumps({"schema": SCHEMA, "query": query, **answer}, indent=1, allow_nan=False))


def print_error(error: Exception, message: str, *, as_json: bool) -> None:
    """Print on stderr, in one sentence, why there is no answer; with --json, also as an object on stdout."""
    message = _bounded(message)
    echo_error(f"warpfrag: {message}")
    if as_json:
        import json

        facts: dict[str, object] = {"kind": type(error).__name__, "message": message}
        if isinstance(error, IllegalInstruction):
            facts |= {"reason": _bounded(error.reason), "nearest": error.nearest}
        echo(json.dumps({"schema": SCHEMA, "error": facts}, indent=1))


def _bounded(message: str) -> str:
    """A message on one line, cut in the middle if it repeats pages of what the user gave."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE // 2]} ... {line[-MAX_MESSAGE // 2 :]}"


def table_lines(header: Sequence[str], rows: Iterable[Sequence[object]], *, gap: int = 2) -> list[str]:
    """Lines of aligned columns: numbers to the right, words to the left.

    >>> table_lines(["lane", "bits"], [[5, "15:0"], [12, "31:16"]])
    ['lane  bits', '   5  15:0', '  12  31:16']
    """
    cells = [list(row) for row in rows]
    lines = [list(header), *([str(cell) for cell in row] for row in cells)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    to_right = [all(isinstance(row[column], int) for row in cells) for column in range(len(header))]
    return [
        (" " * gap)
        .join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_right, strict=True)
        )
        .rstrip()
        for line in lines
    ]


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns."""
    for line in table_lines(header, rows):
        echo(line)


def shape_text(shape: Iterable[int]) -> str:
    """The extents of an array, such as 16x8."""
    return TIMES.join(map(str, shape))


def wrapped(text: str, *, indent: int = 0) -> str:
    """A text in lines of at most WIDTH characters; the lines after the first are indented.

    The textwrap of the standard library would do, but importing it costs more than many look-ups.
    """
    lines: list[str] = []
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word if lines else word)
    return "\n".join(lines)


def print_illegal(refusal: IllegalInstruction) -> None:
    """Print that there is no such instruction, why, and the nearest ones."""
    print_heading("no")
    echo(wrapped(refusal.reason))
    for near in refusal.nearest:
        echo(f"  near: {near}")
