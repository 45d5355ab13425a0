"""Targets: the assembler's names for GPUs, and the other names that users write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from warpfrag.errors import IllegalInstruction, quote
from warpfrag.tables import read_table

OPTIONAL = ("jetson", "rtx")  # first words that users may omit
FAMILIES = ("Volta", "Turing", "Ampere", "Ada", "Ada Lovelace", "Hopper", "Blackwell")
WELL_KNOWN = re.compile(r"H200|RTX \d090")
"""GPUs that are listed in addition to the first one of their architecture."""
LONGEST = 80  # the longest GPU name
WRITTEN = re.compile(r"(?:(?:sm|compute)_?)?([1-9][0-9]{1,2}[af]?)", re.IGNORECASE | re.ASCII)


class Target(NamedTuple):
    """An assembler target; the head of the table explains the fields."""

    name: str
    generation: int
    arch: str
    features: tuple[str, ...] = ()
    ptxas: str = ""


@cache
def targets() -> dict[str, Target]:
    """Return every target, oldest first."""
    rows = read_table("targets")["target"]
    return {name: Target(name, **row | {"features": tuple(row.get("features", ()))}) for name, row in rows.items()}


@cache
def architectures() -> tuple[str, ...]:
    """Return the architectures that have their own arithmetic, oldest first: targets without a suffix."""
    return tuple(name for name, target in targets().items() if target.arch == name)


@cache
def gpus() -> dict[str, str]:
    """Return every GPU name with the target that supports all of the GPU's instructions."""
    return {name: target for target, names in read_table("gpus")["gpu"].items() for name in names}


def gpu_called(text: str) -> str | None:
    """Return the GPU that a text names: the longest name in the table that the text starts with.

    >>> gpu_called("NVIDIA GeForce RTX 4090 Laptop GPU"), gpu_called("h100-sxm"), gpu_called("orin")
    ('RTX 4090', 'H100', 'Jetson Orin')
    """
    words = _gpu_words(text)
    spelled = {name: _gpu_words(name) for name in gpus()}
    short = {name: own[1:] for name, own in spelled.items() if own[0] in OPTIONAL}
    fitting = [name for names in (spelled, short) for name, own in names.items() if words[: len(own)] == own]
    return max(fitting, key=len, default=None)


def gpu_names(archs: Iterable[str], *, well_known: bool = False) -> str:
    """Return the first GPU of each architecture, or the architecture if it has none; `well_known` adds more GPUs.

    >>> gpu_names(["sm_80", "sm_90"]), gpu_names(["sm_89", "sm_90"], well_known=True)
    ('A100, H100', 'L4, RTX 4090, H100, H200')
    """
    known: dict[str, list[str]] = {}
    for name, target in gpus().items():
        own = known.setdefault(targets()[target].arch, [])
        if name not in FAMILIES and (not own or (well_known and WELL_KNOWN.fullmatch(name))):
            own.append(name)
    return ", ".join(name for arch in archs for name in known.get(arch) or [arch])


def _gpu_words(text: str) -> list[str]:
    words = re.sub(r"\b([rg]tx)(?=\d)", r"\1 ", text.lower().replace("-", " ")).split()
    return [word for word in words if word not in {"nvidia", "geforce", "tesla"}]


def read_target(text: str, asker: str | Callable[[], str]) -> Target:
    """Return the target that a text names: sm_90a may also be written 90a, SM90A or compute_90a, or as the GPU H100.

    Raises IllegalInstruction, with similar names, if there is none; messages name the instruction `asker`.
    """
    match = WRITTEN.fullmatch(text.strip()) if isinstance(text, str) else None
    name = f"sm_{match[1].lower()}" if match else text
    if isinstance(name, str) and name in targets():
        return targets()[name]
    if isinstance(text, str) and not match and (gpu := gpu_called(text[:LONGEST])):
        return targets()[gpus()[gpu]]
    # for a GPU name, a list of targets would not help
    is_gpu = isinstance(text, str) and not text.strip().lower().startswith("sm")
    expected = "an architecture such as sm_90" if is_gpu else f"one of {', '.join(targets())}"
    reason = f"unknown arch {quote(text)}; expected {expected}, or a GPU such as H100 (docs/reference/tables.md)"
    if isinstance(text, str) and text.endswith((".npy", ".npz", ".txt")):
        reason = f"expected an architecture, got the file {quote(text)}; pass a matrix as an option, such as --a FILE"
    raise IllegalInstruction(asker if isinstance(asker, str) else asker(), reason, lambda: _near(name))


def _near(name: object) -> tuple[str, ...]:
    from difflib import get_close_matches

    if not isinstance(name, str):
        return ()
    known = {entry.lower(): entry for entry in (*targets(), *gpus())}
    return tuple(known[entry] for entry in get_close_matches(name[:20].lower(), known, n=3))
