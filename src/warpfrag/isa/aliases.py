"""Aliases: the names of an instruction in CuTe, machine code, LLVM and MLIR, in both directions.

`aliases_of` returns the names of an instruction; `meaning` finds the instruction that a name refers to. Names follow
patterns, so the facts are rows (`tables/names.toml`, `tables/machine_code.toml`) and the code is generic:

  alias_names      CuTe atoms, NVVM intrinsics, MLIR operations, and the instructions in pasted source
  sass_names       machine code, on each target that was disassembled
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from warpfrag.isa.alias_names import Notation
from warpfrag.isa.qualifiers import Form

INTRINSIC = r"(?a)(?<![\w.])llvm\.nvvm\.\w+(?:\.\w+)*"
LONGEST = 1 << 13  # number of characters searched for a name
POINTER = r"\.p\d+$"  # the address space in an overloaded LLVM intrinsic
CALLED = {
    "cute": "CuTe atom",
    "sass": "machine code (SASS)",
    "nvvm": "NVVM intrinsic",
    "mlir": "MLIR operation",
}


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


@dataclass(frozen=True)
class Meaning:
    """The instructions that a name in another notation refers to.

    forms  the instructions that have this name
    among  instructions that consist of it and others
    how    the relation, if the text names a construct built from the instruction
    """

    notation: str
    name: str
    forms: tuple[Form, ...]
    among: tuple[Form, ...] = ()
    how: str = ""

    @property
    def called(self) -> str:
        """The name of the notation, for messages."""
        return CALLED[self.notation]


def aliases_of(form: Form) -> Aliases:
    """Return the names of an instruction in other notations."""
    from warpfrag.isa import sass_names as sass
    from warpfrag.isa.alias_names import all_names_of

    names = {notation: all_names_of(form, notation) for notation in _NOTATIONS}
    first = {notation: next((entry.name for entry in rows if not entry.how), None) for notation, rows in names.items()}
    rest = (entry.name for rows in names.values() for entry in rows if entry.name not in first.values())
    return {
        "cute": first["cute"],
        "sass": sass.machine_code(form),
        "nvvm": first["nvvm"],
        "mlir": first["mlir"],
        "also": tuple(rest),
    }


_NOTATIONS: tuple[Notation, ...] = ("cute", "nvvm", "mlir")


def meaning(text: str) -> Meaning | None:
    """Return the instructions that a name in another notation refers to, or None if the text is not such a name.

    A name that fits a notation but is unknown has no forms.
    """
    from warpfrag.isa import sass_names as sass
    from warpfrag.isa.alias_names import ATOM, MLIR_OPERATION, atoms, mlir_forms, named

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
    if match := re.search(sass.OPCODE, text):
        alone, among = sass.forms_of(match[0])
        return Meaning("sass", match[0], alone or among, among if alone else ())
    return None


def near(name: str, notation: str) -> tuple[Form, ...]:
    """Return the instructions whose names are most similar to an unknown name."""
    from difflib import get_close_matches

    from warpfrag.isa import sass_names as sass
    from warpfrag.isa.alias_names import named

    if notation == "sass":
        known = {opcode: alone or among for opcode, (alone, among) in sass.users().items()}
    elif notation in ("cute", "nvvm"):
        known = {key: tuple(entry.form for entry in rows) for key, rows in named(notation).items()}
    else:
        return ()
    return tuple(dict.fromkeys(known[key][0] for key in get_close_matches(name.lower()[:120], known, n=3, cutoff=0.7)))
