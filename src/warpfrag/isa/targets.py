"""Targets: what an assembler calls a GPU, and how people write it."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from warpfrag.errors import IllegalInstruction, shown
from warpfrag.tables import read_table

WRITTEN = re.compile(r"(?:(?:sm|compute)_?)?([1-9][0-9]{1,2}[af]?)", re.IGNORECASE | re.ASCII)


class Target(NamedTuple):
    """What the assembler calls a GPU; the fields are explained at the top of the table."""

    name: str
    generation: int
    arch: str
    features: tuple[str, ...] = ()
    ptxas: str = ""


@cache
def targets() -> dict[str, Target]:
    """Every target, oldest first."""
    rows = read_table("targets")["target"]
    return {name: Target(name, **row | {"features": tuple(row.get("features", ()))}) for name, row in rows.items()}


@cache
def architectures() -> tuple[str, ...]:
    """The names of every arithmetic, oldest first: targets without a suffix, under their last name."""
    return tuple(name for name, target in targets().items() if target.arch == name)


def read_target(text: str, asker: str, role: str = "target") -> Target:
    """The target that a text names: sm_90a may also be written 90a, SM90A or compute_90a.

    IllegalInstruction, on behalf of `asker` and with the names that are near, if there is none.
    """
    found = WRITTEN.fullmatch(text.strip()) if isinstance(text, str) else None
    name = f"sm_{found[1].lower()}" if found else text
    if isinstance(name, str) and name in targets():
        return targets()[name]
    expected = f"expected one of {', '.join(targets())}"
    reason = f"unknown {role} {shown(text)}; {expected}"
    raise IllegalInstruction(asker, reason, lambda: _near(name))


def _near(name: object) -> tuple[str, ...]:
    from difflib import get_close_matches

    return tuple(get_close_matches(name[:20].lower(), targets(), n=3)) if isinstance(name, str) else ()
