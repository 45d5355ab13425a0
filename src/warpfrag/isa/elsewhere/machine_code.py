"""Machine code (SASS): what an assembler makes of an instruction, on each target that somebody disassembled."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from warpfrag.isa.elsewhere.spelling import fill
from warpfrag.isa.rows import fits, forms
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from warpfrag.isa.words import Form

OPCODE = re.compile(r"(?<![\w.])(?:[HIBDQO]MMA|LDSM|STSM|MOVM)(?:\.\w+)*(?!\w)", re.IGNORECASE | re.ASCII)


def machine_code(form: Form) -> dict[str, str]:
    """What a form becomes on each target: one instruction, a sequence such as `2 x HMMA.16816.F32`, or `emulated`."""
    listed = form.listed
    found = {
        target: fill(pattern, listed)
        for row in _rows(form.op)
        if fits(row, listed)
        for targets, pattern in row["sass"].items()
        for target in targets.split()
    }
    return {target: found[target] for target in sorted(found, key=_order)}


@cache
def _rows(op: str) -> tuple[dict[str, Any], ...]:
    return tuple(row for row in read_table("machine_code")["rows"] if op in row["op"])


def _order(target: str) -> int:
    return int(re.sub(r"\D", "", target))


def opcodes(code: str) -> tuple[str, ...]:
    """The different instructions of a sequence."""
    return tuple(OPCODE.findall(code))


def forms_of(opcode: str) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    """The forms that are this one instruction, and those made of several; of all that begin so if it is none."""
    asked = opcode.lower()
    if asked in users():
        return users()[asked]
    longer = [entry for name, entry in users().items() if name.startswith(f"{asked}.")]
    alone, among = ({form: None for entry in longer for form in entry[part]} for part in (0, 1))
    return tuple(alone), tuple(form for form in among if form not in alone)


@cache
def users() -> dict[str, tuple[tuple[Form, ...], tuple[Form, ...]]]:
    """Every opcode, in lower case: the forms that are this one instruction, and those that are made of several.

    To the machine a wmma is the mma of its shape, so where an opcode is both, the mma comes first and the wmma is
    among those made of it.
    """
    alone: dict[str, dict[Form, None]] = {}
    among: dict[str, dict[Form, None]] = {}
    for form in forms():
        for code in machine_code(form).values():
            for opcode in opcodes(code):
                (alone if code == opcode else among).setdefault(opcode.lower(), {})[form] = None
    found = {}
    for opcode in alone | among:
        exact, parts = list(alone.get(opcode, ())), list(among.get(opcode, ()))
        plain = [form for form in exact if not form.is_wmma] or exact
        parts = [form for form in (*exact, *parts) if form not in plain]
        found[opcode] = (tuple(plain), tuple(dict.fromkeys(parts)))
    return found
