"""`warpfrag check`: compare the installed package with its captured results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from warpfrag.cli.command import json_option, verb
from warpfrag.cli.output import say, say_json
from warpfrag.cli.progress import progress
from warpfrag.isa.rows import Family, forms
from warpfrag.registry import get

if TYPE_CHECKING:
    from warpfrag.captured import Case

LABEL_WIDTH = 58


@verb("warpfrag check                    # all of it, one line per family", "warpfrag check --only mma.sp")
@click.option("--only", metavar="TEXT", default="", help="Only instructions whose name contains this.")
@json_option
def command(only: str, *, as_json: bool) -> int:
    """Run every captured case and compare every code with what the GPU gave; exit code 1 if one differs."""
    from warpfrag.captured import captures

    total = differing = 0
    lines = []
    for capture in captures():
        about = capture.about
        grouped: dict[str, list[Case]] = {}
        for case in capture.cases():
            if only in case.instruction:
                grouped.setdefault(_label(forms()[get(case.instruction).form][0]), []).append(case)
        if grouped and not as_json:
            say(f"{about['device']}, {about['arch']}, driver {about['driver']}")
        with progress("checking", lines=False) as show:
            for number, (label, cases) in enumerate(grouped.items()):
                show(number, len(grouped), label)
                tiles = sum(len(case.d) for case in cases)
                wrong = sum(_differing_tiles(case, about["arch"]) for case in cases)
                total, differing = total + tiles, differing + wrong
                lines.append({"family": label, "arch": about["arch"], "cases": tiles, "differing": wrong})
                if not as_json:
                    say(f"  {label:<{LABEL_WIDTH}} {tiles:>5} cases  {'equal' if not wrong else f'{wrong} DIFFER'}")
    if not total:
        msg = f"no captured instruction contains {only!r}"
        raise click.UsageError(msg)
    if as_json:
        say_json("check", {"families": lines, "cases": total, "differing": differing})
    else:
        say(f"{total} cases, {'every code equal' if not differing else f'{differing} cases differ'}")
    return 1 if differing else 0


def _label(family: Family) -> str:
    """A family as a person would name it."""
    types = [family.d, family.a, family.b or family.a, family.c or family.d]
    words = [
        family.ops[0].removesuffix("::ordered_metadata"),
        str(family.shape),
        ".".join("|".join(axis) for axis in types),
    ]
    return " ".join(word for word in [*words, family.kind, "|".join(filter(None, family.bitop))] if word)


def _differing_tiles(case: Case, arch: str) -> int:
    from warpfrag.execute import execute

    options = {"metadata": case.metadata, "scale_a": case.scale_a, "scale_b": case.scale_b, "selector": case.selector}
    given = {name: words for name, words in options.items() if words is not None}
    found = execute(case.instruction, case.a, case.b, case.c, arch=arch, **given)  # type: ignore[arg-type]
    return int((found != case.d).any(axis=(-1, -2)).sum())
