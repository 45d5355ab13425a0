"""Output of the verbs: text tables, JSON, notes, progress and errors; and the exit statuses.

Text uses a few characters beyond ASCII and replaces them when the stream cannot encode them. Headings are bold on a
terminal, unless NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from warpfrag.errors import IllegalInstruction
from warpfrag.html import table_lines

DONE, NO, ERROR, FAULT = range(4)
INCOMPLETE = FAULT  # checks of a launch found nothing, but could not judge everything
INTERRUPTED = 130  # 128 + SIGINT, as in a shell
BROKEN_PIPE = 141  # 128 + SIGPIPE
STATUSES = {
    DONE: "Success, or the answer is yes.",
    NO: "The answer is no: not legal, nothing found, a difference, a finding.",
    ERROR: "Invalid command or input; one sentence on stderr.",
    FAULT: "Checks found nothing but could not judge everything; or an internal error (WARPFRAG_TRACEBACK=1 shows it).",
    INTERRUPTED: "Interrupted.",
    BROKEN_PIPE: "The output pipe was closed.",
}

SCHEMA = 2
WIDTH = 100
TIMES = "\N{MULTIPLICATION SIGN}"
ASCII = str.maketrans({TIMES: "x", "·": "*", "─": "-", "…": "..."})
UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")
MAX_MESSAGE = 4000  # maximum length of a message; a list of known names takes up to a quarter of it
BAR = 30  # width of a progress bar in characters
MIN_SECONDS = 3  # seconds before the remaining time is estimated


def encodable(text: str, encoding: str | None) -> str:
    """Return the text, converted to plain ASCII if a stream with this encoding cannot write it.

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
    """Raised if the reader of the output has closed the pipe."""


class OutputFailed(Exception):
    """Raised if the output cannot be written, for example to a full disk or a closed stream."""


def printable(text: str) -> str:
    r"""Return the text without control characters, so that user input cannot control the terminal.

    >>> print(printable("red: \x1b[31m"))
    red: \x1b[31m
    """
    return UNUSUAL.sub(lambda match: match[0] if match[0].isprintable() else ascii(match[0])[1:-1], text)


def echo(text: str = "") -> None:
    """Print text on stdout."""
    _write(printable(text))


def _write(text: str) -> None:
    stream = sys.stdout
    if stream is None:  # closed before Python started
        raise OutputFailed("stdout is closed")
    with _output_errors():
        # Line by line, because an unbuffered long write can stop halfway without an error.
        for line in (encodable(text, stream.encoding) + "\n").splitlines(keepends=True):
            stream.write(line)


def flush() -> None:
    """Write the buffered output; raise OutputFailed or OutputClosed if that fails."""
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
    """Print a line to stderr, ignoring write errors."""
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(encodable(printable(text), sys.stderr.encoding) + "\n")
            sys.stderr.flush()


def terminal_width() -> int:
    """Return the number of characters per line: COLUMNS, the terminal's width, or WIDTH.

    `shutil` has a function for this, but importing it takes longer than many look-ups.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):  # no terminal, or closed
        return WIDTH


class ProgressLine:
    """A progress bar on a terminal; otherwise one line per step if `lines` is set."""

    def __init__(self, *, lines: bool = False) -> None:
        """Use stderr, because stdout is for the output."""
        self.is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self.lines = lines
        self.start: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        """Return the progress line itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        self.clear()

    def show(self, done: int, total: int, text: str) -> None:
        """Show that `done` of `total` steps are finished, followed by `text`."""
        if self.is_terminal:
            filled = BAR * done // max(total, 1)
            bar = f"[{'#' * filled}{'.' * (BAR - filled)}] {done}/{total}"
            self._overwrite(f"{bar}{self._time_left(done, total)} {text}")
        elif self.lines:
            echo_error(f"[{done}/{total}] {text}")

    def _time_left(self, done: int, total: int) -> str:
        """Return an estimate of the remaining time after the first seconds, or an empty string."""
        start, first = self.start = self.start or (time.monotonic(), done)
        seconds = time.monotonic() - start
        if seconds < MIN_SECONDS or done == first:
            return ""
        left = seconds / (done - first) * (total - done)
        return f", about {left / 60:.0f} min left," if left >= 90 else f", about {left:.0f} s left,"

    def clear(self) -> None:
        """Remove the progress line, so that other output can be printed."""
        if self.is_terminal:
            self._overwrite("")

    def _overwrite(self, text: str) -> None:
        width = terminal_width() - 1
        line = encodable(printable(text), sys.stderr.encoding)[:width]
        with suppress(OSError):
            sys.stderr.write(f"\r{line.ljust(width)}\r{line}")
            sys.stderr.flush()


def print_heading(text: str) -> None:
    """Print a heading."""
    bold = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    _write(f"\x1b[1m{printable(text)}\x1b[0m" if bold else printable(text))


def echo_wrapped(lines: Iterable[str], *, indent: int = 0) -> None:
    """Print lines, each wrapped."""
    for line in lines:
        echo(wrapped(line, indent=indent))


def print_notes(lines: Iterable[str]) -> None:
    """Print notes on the output above."""
    for number, line in enumerate(lines):
        echo(("" if number else "\n") + wrapped(f"note: {line}", indent=6))


def to_json(value: Any) -> Any:  # noqa: ANN401 (any result)
    """Return a result as JSON types: named tuples and dataclasses as objects, an instruction as its name.

    A method `to_dict` takes precedence; anything else becomes text.

    >>> to_json({"shape": (16, 8), "largest": float("inf")})
    {'shape': [16, 8], 'largest': 'inf'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else repr(value)
    if hasattr(value, "to_dict"):
        return to_json(value.to_dict())
    if hasattr(value, "tolist"):  # NumPy numbers
        return to_json((value if value.dtype.kind in "biu" else value.astype(float)).tolist())
    fields = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if fields is not None and not hasattr(value, "form"):
        value = {name: getattr(value, name) for name in fields}
    if isinstance(value, dict):
        return {str(key): to_json(entry) for key, entry in value.items()}
    return [to_json(entry) for entry in value] if isinstance(value, list | tuple) else str(value)


def print_json(verb: str, facts: object) -> None:
    """Print the facts of an answer as one JSON object."""
    import json

    entries = to_json(facts)
    named = entries if isinstance(entries, dict) else {}
    echo(json.dumps({"schema": SCHEMA, "verb": verb, **named}, indent=1, allow_nan=False))


def print_error(error: Exception, message: str, *, as_json: bool) -> None:
    """Print an error on stderr as one sentence and, with --json, on stdout as an object."""
    message = _bounded(message)
    echo_error(f"warpfrag: {message}")
    if as_json:
        import json

        facts: dict[str, object] = {"type": type(error).__name__, "message": message}
        if isinstance(error, IllegalInstruction):
            facts |= {"reason": _bounded(error.reason), "nearest": error.nearest}
        echo(json.dumps({"schema": SCHEMA, "error": facts}, indent=1))


def _bounded(message: str) -> str:
    """Return a message as one line plus source excerpts; a very long message is shortened in the middle."""
    line = "\n    ".join(" ".join(part.split()) for part in message.split("\n    "))
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE // 2]} ... {line[-MAX_MESSAGE // 2 :]}"


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Container[int] | None = None
) -> None:
    """Print aligned columns."""
    for line in table_lines(header, rows, right=right):
        echo(line)


def shape_text(shape: Iterable[int]) -> str:
    """Return the extents of an array, such as 16x8."""
    return TIMES.join(map(str, shape))


def wrapped(text: str, *, indent: int = 0) -> str:
    """Wrap text to lines of at most WIDTH characters; lines after the first are indented.

    `textwrap` has a function for this, but importing it takes longer than many look-ups.
    """
    lines: list[str] = []
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word if lines else word)
    return "\n".join(lines)
