"""CuTe atoms: the structs of CUTLASS that wrap one instruction, with or without their namespaces and arguments."""

from __future__ import annotations

import re
from functools import cache

from warpfrag.isa.alias_spelling import Named, all_names_of
from warpfrag.isa.rows import forms
from warpfrag.tables import read_table

SHAPE = r"\d+x\d+x\d+"
ATOM = r"(?ia)(?<![\w.])(?:\w+::)*(?:SM\d+_\w+|G?MMA_\d+x\d+x\d+_\w+)(?:\s*<[^<>]*>)?"


def atoms(text: str) -> tuple[Named, ...]:
    """What the first atom in a text wraps: several instructions where it leaves an argument open."""
    match = re.search(ATOM, text)
    if match is None:
        return ()
    name, arguments = _parts(match[0])
    shape = re.search(SHAPE, name)
    known = _known(shape[0] if shape else "").get(name, ())
    types = {_bare(entry) for entry in read_table("names")["cute"]["types"].values()}
    wanted = [entry if entry in types or entry.isdigit() else "" for entry in arguments]
    return tuple(
        entry
        for own, entry in known
        if not own or all(not asked or asked == has for asked, has in zip(wanted, own, strict=False))
    )


@cache
def _known(shape: str) -> dict[str, tuple[tuple[tuple[str, ...], Named], ...]]:
    """The atoms of a shape, or those of matrix moves, which name none: there are thousands in all."""
    by_name: dict[str, list[tuple[tuple[str, ...], Named]]] = {}
    for form in forms():
        if ("x".join(map(str, form.shape)) if form.is_product else "") == shape:
            for entry in all_names_of(form, "cute"):
                name, arguments = _parts(entry.name)
                by_name.setdefault(name, []).append((arguments, entry))
    return {name: tuple(rows) for name, rows in by_name.items()}


def _parts(text: str) -> tuple[str, tuple[str, ...]]:
    """The name and the arguments of an atom, without namespaces."""
    name, _, arguments = _bare(text).partition("<")
    return name, tuple(filter(None, arguments.rstrip(">").split(",")))


def _bare(text: str) -> str:
    return re.sub(r"\w+::|\s", "", text).lower()
