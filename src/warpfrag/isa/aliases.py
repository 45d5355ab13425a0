"""Aliases: the names of an instruction in CuTe, machine code, LLVM and MLIR, in both directions.

`aliases_of` returns the names of an instruction; `meaning` finds the instruction that a name refers to. Names follow
patterns, so the facts are rows (`tables/names.toml`, `tables/machine_code.toml`) and the code is generic:

  alias_names      CuTe atoms, NVVM intrinsics, MLIR operations, and the instructions in pasted source
  tcgen05_names    all names of tcgen05 instructions
  here             machine code (SASS), on each target that was disassembled
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypedDict

from warpfrag.isa.alias_names import ATOM, MLIR_OPERATION, Notation, all_names_of, atoms, fill, mlir_forms, named
from warpfrag.isa.instruction_table import fits, forms
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tcgen05_names import cute_names, mlir_name, nvvm_names, sass_name
from warpfrag.tables import read_table

INTRINSIC = r"(?a)(?<![\w.])llvm\.nvvm\.\w+(?:\.\w+)*"
OPCODE = r"(?ia)(?<![\w.])(?:[HIBDQO]MMA|[HIBQ]GMMA|LDSM|STSM|MOVM)(?:\.\w+)*(?!\w)"
LONGEST = 1 << 13  # the number of characters that are searched for a name
POINTER = r"\.p\d+$"  # the address space in an overloaded LLVM intrinsic
CALLED = {"cute": "CuTe atom", "sass": "machine code (SASS)", "nvvm": "NVVM intrinsic", "mlir": "MLIR operation"}

Users = tuple[tuple[Form, ...], tuple[Form, ...]]
"""The forms that compile to one opcode alone, and the forms that compile to it and other opcodes."""


class Aliases(TypedDict):
    """The names of one instruction in other notations; None if a notation has no name for it.

    `cute` is the CUTLASS struct that wraps it, `sass` the machine code for each target, `nvvm` the LLVM intrinsic,
    `mlir` the operation of the nvvm dialect as text, and `also` has synonyms and atoms built from it.
    """

    cute: str | None
    sass: dict[str, str]
    nvvm: str | None
    mlir: str | None
    also: tuple[str, ...]


class Meaning(NamedTuple):
    """The instructions that a name in another notation refers to.

    forms  the instructions that have this name
    among  instructions whose machine code contains this opcode and others
    how    the relation, if the text names a construct built from the instruction
    """

    notation: str
    name: str
    forms: tuple[Form, ...]
    among: tuple[Form, ...] = ()
    how: str = ""

    @property
    def called(self) -> str:
        """The notation's name, for messages."""
        return CALLED[self.notation]


def aliases_of(form: Form) -> Aliases:
    """Return the names of an instruction in other notations."""
    if isinstance(form, TensorForm):
        atoms, intrinsics = cute_names(form.spelling), nvvm_names(form.spelling)
        machine = sass_name(form.spelling)
        return {
            "cute": next(iter(atoms), None),
            "sass": dict.fromkeys(form.targets, machine) if machine else {},
            "nvvm": next(iter(intrinsics), None),
            "mlir": mlir_name(form.spelling),
            "also": (*atoms[1:], *intrinsics[1:]),
        }
    names = {notation: all_names_of(form, notation) for notation in _NOTATIONS}
    first = {notation: next((entry.name for entry in rows if not entry.how), None) for notation, rows in names.items()}
    rest = (entry.name for rows in names.values() for entry in rows if entry.name not in first.values())
    return {
        "cute": first["cute"],
        "sass": machine_code(form),
        "nvvm": first["nvvm"],
        "mlir": first["mlir"],
        "also": tuple(rest),
    }


_NOTATIONS: tuple[Notation, ...] = ("cute", "nvvm", "mlir")


def meaning(text: str) -> Meaning | None:
    """Return the instructions that a name in another notation refers to, or None if no notation has such names.

    If an unknown name fits a notation, the result has no forms.
    """
    text = text[:LONGEST]
    if match := re.search(INTRINSIC, text):
        name = re.sub(POINTER, "", match[0])
        return Meaning("nvvm", name, tuple(entry.form for entry in named("nvvm").get(name.lower(), ())))
    if match := re.search(MLIR_OPERATION, text):
        return Meaning("mlir", match[0], mlir_forms(text))
    if match := re.search(ATOM, text):
        entries = atoms(text)
        how = entries[0].how if entries else ""
        return Meaning("cute", match[0], tuple(dict.fromkeys(entry.form for entry in entries)), how=how)
    if match := re.search(OPCODE, text):
        alone, among = forms_with_opcode(match[0])
        return Meaning("sass", match[0], alone or among, among if alone else ())
    return None


def near(name: str, notation: str) -> tuple[Form, ...]:
    """Return the instructions whose names are most similar to an unknown name."""
    from difflib import get_close_matches

    if notation == "sass":
        known = {opcode: alone or among for opcode, (alone, among) in users().items()}
    elif notation in ("cute", "nvvm"):
        known = {key: tuple(entry.form for entry in rows) for key, rows in named(notation).items()}
    else:
        return ()
    return tuple(dict.fromkeys(known[key][0] for key in get_close_matches(name.lower()[:120], known, n=3, cutoff=0.7)))


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
    """Return the opcodes in a machine-code sequence."""
    return tuple(re.findall(OPCODE, code))


@lru_cache(maxsize=1024)
def forms_with_opcode(opcode: str) -> Users:
    """Return forms that compile to this opcode alone, and forms that also use others.

    A prefix of an opcode matches too.
    """
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
    """Return the opcodes of the given forms, each with the forms that use it.

    In machine code, a wmma becomes the mma of its shape. If both use an opcode, the mma is therefore the primary user.
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
