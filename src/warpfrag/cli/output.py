"""What the verbs print: tables of text, JSON, notes, errors.

Text uses a few characters beyond ASCII and replaces them where the stream cannot write them. Headings are bold on a
terminal, unless NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SCHEMA = 1
WIDTH = 100
TERMINAL = (WIDTH, 24)  # the size of one that does not say; only its width matters
TIMES = "\N{MULTIPLICATION SIGN}"
ASCII = str.maketrans({TIMES: "x", "·": "*", "─": "-", "…": "..."})


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


def say(text: str = "", *, stream: TextIO | None = None) -> None:
    """Print a text."""
    stream = stream or sys.stdout
    if stream is None:  # closed before Python started
        raise OutputClosed
    try:
        # Line by line: where Python does not buffer, one long write that breaks off halfway goes unnoticed.
        for line in (encodable(text, stream.encoding) + "\n").splitlines(keepends=True):
            stream.write(line)
    except BrokenPipeError:
        raise OutputClosed from None


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn a file that cannot be written into one sentence."""
    try:
        yield
    except OSError as error:
        msg = f"cannot write {str(path)!r}: {error.strerror or error}"
        raise click.ClickException(msg) from None


def heading(text: str) -> None:
    """Print a line that stands above others."""
    bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    say(f"\x1b[1m{text}\x1b[0m" if bold else text)


def notes(lines: Iterable[str]) -> None:
    """Print what the reader should know about the answer above."""
    for place, line in enumerate(lines):
        say(("" if place else "\n") + wrapped(f"note: {line}", indent=6))


def say_json(query: str, answer: Mapping[str, Any]) -> None:
    """Print an answer as one JSON object."""
    import json

    say(json.dumps({"schema": SCHEMA, "query": query, **answer}, indent=1, allow_nan=False))


def refuse(error: Exception, message: str, *, as_json: bool) -> None:
    """Say on stderr, in one sentence, why there is no answer; with --json, also as an object on stdout."""
    message = " ".join(message.split())
    say(f"warpfrag: {message}", stream=sys.stderr)
    if as_json:
        import json

        facts = {"kind": type(error).__name__, "message": message}
        for fact in ("reason", "nearest"):
            if hasattr(error, fact):
                facts[fact] = getattr(error, fact)
        say(json.dumps({"schema": SCHEMA, "error": facts}, indent=1))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, gap: int = 2) -> list[str]:
    """Lines of aligned columns: numbers to the right, words to the left.

    >>> table(["lane", "bits"], [[5, "15:0"], [12, "31:16"]])
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


def say_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns."""
    for line in table(header, rows):
        say(line)


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
