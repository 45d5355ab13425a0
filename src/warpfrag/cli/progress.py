"""Progress of long work: a bar on a terminal, a line per step elsewhere, always on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from warpfrag.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress(title: str, *, lines: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A function (done, total, text) that shows how far the work is.

    A terminal gets a bar. Otherwise `lines` says whether each step is worth a line in a log.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, text: say(f"[{done}/{total}] {text}", stream=sys.stderr) if lines else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
