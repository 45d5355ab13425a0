"""Statements as compilers write them, read by one pattern each: an opcode, plain operands, a semicolon, one line.

Almost every line of a large file is such a statement. What the pattern does not cover, the parser reads token by token:
calls, constant expressions, statements over several lines. And everything that is wrong, so that it says what.
"""

from __future__ import annotations

import re
from functools import lru_cache

from warpfrag.ptx.reader import constants
from warpfrag.ptx.reader.syntax import (
    Address,
    BracedList,
    IntegerLiteral,
    OperandSyntax,
    Statement,
    SymbolRef,
)

NAME = r"(?:%[\w$]|[$A-Za-z_])[\w$]*+(?:(?:\.|::)\w++)*+"
NUMBER = r"-?(?:0[fFdD][0-9a-fA-F]++|0[xX][0-9a-fA-F]{1,15}|[1-9]\d{0,17}|0)(?![\w.$])"
PART = rf"(?:{NAME}|{NUMBER})"
OPERAND = rf"(?:{NAME}|{NUMBER}|\[{NAME}(?:\+-?\d{{1,9}})?+\]|\{{{PART}(?:,[ \t]*+{PART})*+\}})"
STATEMENT = re.compile(
    rf"[ \t]*+(?:@(!?)({NAME})[ \t]++)?+((?:(?!call\b)[a-z]\w*+(?:(?:\.|::)\w++)++|bra))[ \t]++"
    rf"({OPERAND}(?:,[ \t]*+{OPERAND})*+);[ \t\r]*+\n",
    re.ASCII,
)
EACH_OPERAND = re.compile(r"\{[^}]*+\}|\[[^\]]*+\]|[^,\s]++")
FLOAT_DIGITS = {"f": 8, "d": 16}


@lru_cache(1 << 14)
def operand_of(text: str) -> OperandSyntax | None:
    """The operand that a text spells which the pattern covers; None where it is for the parser to judge."""
    first = text[0]
    if first == "{":
        items = [operand_of(item.strip()) for item in text[1:-1].split(",")]
        operands = tuple(item for item in items if item is not None)
        return BracedList(operands) if len(operands) == len(items) else None
    if first == "[":
        name, _, offset = text[1:-1].partition("+")
        base = operand_of(name)
        return Address(SymbolRef(name, int(offset or 0))) if isinstance(base, SymbolRef) else None
    if first == "-" or first.isdigit():
        return number_of(text)
    return None if text in constants.NAMED_NUMBERS else SymbolRef(text)


def number_of(text: str) -> OperandSyntax | None:
    """A number; only integers have a sign here."""
    if text[1:2] in {"f", "F", "d", "D"}:
        is_whole = len(text) == 2 + FLOAT_DIGITS[text[1].lower()]
        return constants.literal(text, 0) if is_whole else None
    value = IntegerLiteral(int(text.lstrip("-"), 0))
    return constants.unary("-", value, 0) if text[0] == "-" else value


class PlainStatements:
    """Reads the plain statements of one text; lists of operands repeat, and each is made once."""

    def __init__(self, text: str) -> None:
        """Nothing is read yet."""
        self.text = text
        self.operands: dict[str, tuple[OperandSyntax, ...]] = {}

    def read(self, at: int, line: int) -> tuple[list[Statement], int]:
        """The statements that fill the lines from a place on, and where the next line begins."""
        match, split, text, read_before = STATEMENT.match, EACH_OPERAND.findall, self.text, self.operands
        statements: list[Statement] = []
        while (matched := match(text, at)) is not None:
            negated, guard, opcode, written = matched.groups()
            operands = read_before.get(written)
            if operands is None:
                made = [operand_of(operand) for operand in split(written)]
                operands = tuple(operand for operand in made if operand is not None)
                if len(operands) < len(made):
                    break
                read_before[written] = operands
            symbol = SymbolRef(guard) if guard else None
            statements.append(Statement(line, opcode, operands, symbol, bool(negated)))
            at = matched.end()
            line += 1
        return statements, at
