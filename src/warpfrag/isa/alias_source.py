r"""Pasted source: the instructions in a piece of CUDA C++ or PTX.

    >>> statements('asm volatile("mma.sync.aligned.m16n8k16.row.col"\n  ".f32.f16.f16.f32 {%0,%1,%2,%3}, ..." : ...')
    ('mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32',)

Comments go; the pieces of a string are joined as a compiler joins them. Where something other than space stands between
two pieces, most likely a macro, its text is unknown: `?` replaces it, and the name is rejected.
"""

from __future__ import annotations

import re
from functools import cache

from warpfrag.isa.ops import OPS
from warpfrag.tables import read_table

LONGEST_WORD = 40  # characters in which a first word ends
MAX_SOURCE = 1 << 14  # characters; a statement has hundreds
COMMENT = r"//[^\n]*|/\*[\s\S]*?(?:\*/|$)"
LITERAL = rf'R"\w*\(([\s\S]*?)\)\w*"|"((?:[^"\\]|\\[\s\S])*)(?:"|$)|{COMMENT}'
ESCAPE = r"\\(?:[nrtfv]|\r?\n)"  # a newline ends a comment, so all become one
OPERANDS = r"[:(){}\[\]]"


def is_plain(text: str) -> bool:
    """Return True if a text is an instruction name, perhaps with operands, rather than source code."""
    start = text[:LONGEST_WORD].lstrip().lstrip('"').lstrip()
    return text.count('"') <= 2 and start.split(".", 1)[0].rstrip().lower() in _operations()


@cache
def _operations() -> frozenset[str]:
    return frozenset(op.split(".")[0] for op in OPS)


@cache
def _instruction() -> re.Pattern[str]:
    """An instruction that PTX has and that people ask for: ours, and those that are out of scope."""
    beyond = [name.split(".")[0] for row in read_table("scope")["out"] for name in row["names"] if row.get("ptx")]
    first = "|".join(sorted({*_operations(), *beyond}))
    return re.compile(rf"(?<![\w.%$])(?:{first})(?:\.[\w:?]+)+", re.IGNORECASE | re.ASCII)


def names_in(text: str) -> tuple[str, ...]:
    """The text itself where it is the name of an instruction, else the instructions of a piece of source."""
    return (text,) if is_plain(text) else statements(text)


def statements(text: str) -> tuple[str, ...]:
    """The instructions of a text, each once, without operands."""
    text = text[:MAX_SOURCE]
    names: list[str] = []
    if '"' in text:
        names = _instruction().findall(re.sub(COMMENT, " ", re.sub(ESCAPE, "\n", _joined(text))))
    names = names or _instruction().findall(re.sub(COMMENT, " ", text))
    return tuple(dict.fromkeys(name.rstrip(".:") for name in names))


def _joined(text: str) -> str:
    """The string literals of a text, joined where only space and comments are between them."""
    pieces: list[str] = []
    end = 0
    for literal in re.finditer(LITERAL, text):
        raw, plain = literal.groups()
        if raw is None and plain is None:  # a comment
            text = text[: literal.start()] + " " * len(literal[0]) + text[literal.end() :]
            continue
        between = text[end : literal.start()].replace("\\\n", "")
        if pieces and between.strip():
            pieces.append(" " if re.search(OPERANDS, between) else "?")
        pieces.append(plain if raw is None else raw)
        end = literal.end()
    return "".join(pieces)
