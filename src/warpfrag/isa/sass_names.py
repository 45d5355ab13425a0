"""Machine code (SASS): the instructions that ptxas generates for each target."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from warpfrag.isa.alias_names import fill
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.rows import fits, forms
from warpfrag.tables import read_table

Users = tuple[tuple["Form", ...], tuple["Form", ...]]
"""The forms that compile to one opcode, and the forms that compile to it and others."""

OPCODE = r"(?ia)(?<![\w.])(?:[HIBDQO]MMA|[HIBQ]GMMA|LDSM|STSM|MOVM)(?:\.\w+)*(?!\w)"


def machine_code(form: Form) -> dict[str, str]:
    """Return the machine code by target: one instruction, a sequence such as `2 x HMMA.16816.F32`, or `emulated`."""
    listed = form.listed
    codes = {
        target: fill(pattern, listed)
        for row in _rows(form.op)
        if fits(row, listed)
        for targets, pattern in row["sass"].items()
        for target in targets.split()
    }
    return {target: codes[target] for target in sorted(codes, key=lambda name: int(re.sub(r"\D", "", name)))}


@cache
def _rows(op: str) -> tuple[dict[str, Any], ...]:
    return tuple(row for row in read_table("machine_code")["rows"] if op in row["op"])


def opcodes(code: str) -> tuple[str, ...]:
    """Return the distinct instructions of a sequence."""
    return tuple(re.findall(OPCODE, code))


@lru_cache(maxsize=1024)
def forms_of(opcode: str) -> Users:
    """Return the forms that compile to this opcode alone, and those that also use others; a prefix matches too."""
    asked = opcode.lower()
    table = read_table("machine_code")["rows"]
    rows = [row for row in table if any(_fits_pattern(asked, pattern) for pattern in row["sass"].values())]
    by_opcode = _users(form for form in forms() if any(form.op in row["op"] and fits(row, form) for row in rows))
    if asked in by_opcode:
        return by_opcode[asked]
    longer = [entry for name, entry in users().items() if name.startswith(f"{asked}.")]
    alone, among = ({form: None for entry in longer for form in entry[part]} for part in (0, 1))
    return tuple(alone), tuple(form for form in among if form not in alone)


def _fits_pattern(opcode: str, pattern: str) -> bool:
    """Return True if a pattern matches an opcode for any form."""
    return any(re.fullmatch(expression, opcode) for expression in _expressions(pattern))


@cache
def _expressions(pattern: str) -> tuple[str, ...]:
    """Convert a pattern to one regular expression per instruction; each field matches any word."""
    pieces = (re.sub(r"^\d+ x ", "", piece) for piece in pattern.lower().split(" + "))
    marked = (piece.replace("{.sat}", "{}").replace("{.rounding}", "{}") for piece in pieces)
    plain = (piece.replace(".", r"\.").replace("{}", r"(?:\.\w+)?") for piece in marked)
    return tuple(re.sub(r"\{\w+\}", r"\\w+", piece) for piece in plain)


@cache
def users() -> dict[str, Users]:
    """Return the forms that use each opcode, by its name in lower case."""
    return _users(forms())


def _users(some: Iterable[Form]) -> dict[str, Users]:
    """Return the opcodes of these forms, each with the forms that use it.

    In machine code, a wmma becomes the mma of its shape. So if both use an opcode, the mma is the primary user.
    """
    alone: dict[str, dict[Form, None]] = {}
    among: dict[str, dict[Form, None]] = {}
    for form in some:
        for code in machine_code(form).values():
            for opcode in opcodes(code):
                (alone if code == opcode else among).setdefault(opcode.lower(), {})[form] = None
    result = {}
    for opcode in alone | among:
        exact, parts = list(alone.get(opcode, ())), list(among.get(opcode, ()))
        plain = [form for form in exact if not form.is_wmma] or exact
        parts = [form for form in (*exact, *parts) if form not in plain]
        result[opcode] = (tuple(plain), tuple(dict.fromkeys(parts)))
    return result
