"""`warpfrag check`: compare the installed package with its captured results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.options import json_option
from warpfrag.cli.support.output import NO, ProgressLine, echo, print_json
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import WarpfragError, quote
from warpfrag.isa.legality import nearest
from warpfrag.isa.rows import Family, families_of
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.captures import CapturedCase, TensorCase, WgmmaCase

LABEL_WIDTH = 58
MAPS = "wgmma addresses in shared memory, by descriptor"


@verb("warpfrag check                    # all of it, one line per family", "warpfrag check --only mma.sp")
@click.option("--only", metavar="TEXT", default="", help="Only instructions of this name, or whose name contains this.")
@json_option
def command(only: str, *, as_json: bool) -> int:
    """Run every captured case and compare every code with the GPU's result; exit status 1 if one differs."""
    from warpfrag.tensorcore.captures import captures

    total = differing = 0
    lines = []
    for capture in captures():
        about = capture.about
        grouped: dict[str, list[CapturedCase | WgmmaCase | TensorCase]] = {}
        for case in capture.cases(_named(only, capture.instructions)):
            grouped.setdefault(_label(families_of(get(case.instruction).form)[0]), []).append(case)
        if grouped and not as_json:
            echo(f"{about['device']}, {about['arch']}, driver {about['driver']}")
        with ProgressLine() as progress:
            for number, (label, cases) in enumerate(grouped.items()):
                progress.show(number, len(grouped), label)
                tiles = sum(len(case.d) for case in cases)
                wrong = sum(_differing_tiles(case, about["arch"]) for case in cases)
                total, differing = total + tiles, differing + wrong
                lines.append({"family": label, "arch": about["arch"], "cases": tiles, "differing": wrong})
                progress.clear()
                if not as_json:
                    echo(f"  {label:<{LABEL_WIDTH}} {tiles:>5} cases  {'equal' if not wrong else f'{wrong} DIFFER'}")
    maps, wrong = _address_maps(only)
    if maps:
        total, differing = total + maps, differing + wrong
        lines.append({"family": MAPS, "arch": "sm_90", "cases": maps, "differing": wrong})
        if not as_json:
            echo(f"  {MAPS:<{LABEL_WIDTH}} {maps:>5} maps   {'equal' if not wrong else f'{wrong} DIFFER'}")
    if not total:
        near = "; ".join(nearest(only))
        msg = f"no captured instruction contains {quote(only)}" + (f"; legal names near it: {near}" if near else "")
        raise click.UsageError(msg)
    if as_json:
        print_json("check", {"families": lines, "cases": total, "differing": differing})
    else:
        echo(f"{total} cases, {'every code equal' if not differing else f'{differing} cases differ'}")
    return NO if differing else 0


def _named(text: str, known: dict[str, Form]) -> set[str]:
    """The names that a text means: that of one instruction, else those that contain it, else its words in order."""
    try:
        meant = get(text).form
    except WarpfragError:
        containing = {name for name in known if text in name}
        return containing or {name for name in known if _in_order(text.split("."), name.split("."))}
    return {name for name, form in known.items() if form == meant}


def _in_order(words: list[str], others: list[str]) -> bool:
    left = iter(others)
    return all(word in left for word in words)


def _label(family: Family) -> str:
    """A family as a person would name it; one of wgmma stands for every width."""
    op, is_wgmma = family.ops[0], family.ops[0].startswith("wgmma")
    types = ".".join("|".join(family.choices(role)) for role in ("dab" if is_wgmma else "dabc"))
    shape, kind, bitop = ("|".join(map(str, family.choices(name))) for name in ("shape", "kind", "bitop"))
    if is_wgmma:
        shape = re.sub(r"n\d+k", "nNk", shape).partition("|")[0]
    return " ".join(filter(None, [op.removesuffix("::ordered_metadata"), shape, types, kind, bitop]))


def _address_maps(only: str) -> tuple[int, int]:
    """How many address maps there are of the instructions that a text means, and how many differ."""
    import numpy as np

    from warpfrag.tensorcore.captures.address_captures import MEMORY, address_maps

    maps = address_maps().maps
    named = _named(only, {captured.instruction: get(captured.instruction).form for captured in maps})
    chosen = [captured for captured in maps if captured.instruction in named]
    wrong = 0
    for captured in chosen:
        instruction = get(captured.instruction)
        addresses = (instruction.a if captured.operand == "a" else instruction.b).addresses(
            captured.descriptor, captured.trans
        )
        wrong += not np.array_equal(np.where(addresses < MEMORY, addresses, 0), captured.addresses)
    return len(chosen), wrong


def _differing_tiles(case: CapturedCase | WgmmaCase | TensorCase, arch: str) -> int:
    from warpfrag.tensorcore.captures import TensorCase, WgmmaCase
    from warpfrag.tensorcore.execute import execute

    if isinstance(case, WgmmaCase):
        from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases

        return int((run_wgmma_cases(case.instruction, case.call, arch) != case.d).any(axis=(-1, -2, -3)).sum())
    if isinstance(case, TensorCase):
        return _differing_images(case, arch)
    result = execute(
        case.instruction,
        case.a,
        case.b,
        case.c,
        metadata=case.metadata,
        selector=case.selector,
        scale_a=case.scale_a,
        scale_b=case.scale_b,
        arch=arch,
    )
    return int((result != case.d).any(axis=(-1, -2)).sum())


def _differing_images(case: TensorCase, arch: str) -> int:
    import numpy as np

    from warpfrag.isa.tcgen05_forms import TensorForm
    from warpfrag.tensorcore.tensor_images import run_images

    form = get(case.instruction).form
    if not isinstance(form, TensorForm):
        return len(case.d)
    images = ({"a": case.a[at], "b": case.b[at], "c": case.c[at]} for at in range(len(case.d)))
    return sum(not np.array_equal(run_images(form, image, arch), case.d[at]) for at, image in enumerate(images))
