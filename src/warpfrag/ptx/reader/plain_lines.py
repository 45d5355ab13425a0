"""Lines as compilers write them, read one at a time: a statement with plain operands, a label, a comment, a .loc.

Almost every line of a large file is one of these, and many lines occur often: what a line says is found once for each
text. What is not covered here, the parser reads token by token: calls, constant expressions, declarations, statements
over several lines. And everything that is wrong, so that it says what.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from warpfrag.ptx.reader import ptx_constants
from warpfrag.ptx.reader.syntax import (
    Address,
    BracedList,
    IntegerLiteral,
    Label,
    OperandSyntax,
    ResultPair,
    Statement,
    SymbolRef,
)

LineContent: TypeAlias = "tuple[str, tuple[OperandSyntax, ...], SymbolRef | None, bool] | str | None"
"""A statement without its line; a label, empty for none; None where the parser has to read it."""

NAME = r"(?:%[\w$]|[$A-Za-z_])[\w$]*+(?:(?:\.|::)\w++)*+"
INTEGER = r"(?:[1-9]\d{0,17}|0)"
END = r"[ \t\r]*+(?://.*+)?+"
STATEMENT = re.compile(
    rf"[ \t]*+(?:@(!?)({NAME})[ \t]++)?+([a-z]\w*+(?:(?:\.|::)\w++)*+)(?:[ \t]++([^;/]*+))?+;{END}", re.ASCII
)
LABEL = re.compile(rf"([$A-Za-z_][\w$]*+):{END}", re.ASCII)
NOTHING = re.compile(rf"[ \t]*+(?:\.loc[ \t][^/]*+)?+{END}", re.ASCII)
BETWEEN_OPERANDS = re.compile(r",(?![^{\[]*[}\]])")  # not within braces or brackets
SYMBOL = re.compile(NAME, re.ASCII)
REGISTER = re.compile(r"%\w++", re.ASCII)
NUMBER = re.compile(rf"-?(?:0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}|0[xX][0-9a-fA-F]{{1,15}}|{INTEGER})", re.ASCII)
ADDRESS = re.compile(rf"\[[ \t]*+({NAME})[ \t]*+(?:\+[ \t]*+(-?(?:[1-9]\d{{0,8}}|0))[ \t]*+)?+\]", re.ASCII)


MAX_KEPT = 1 << 15  # lines, and operands, of which what they say is remembered


def part_of(text: str) -> SymbolRef | IntegerLiteral | OperandSyntax | None:
    """The name or the number that a text spells; only integers have a sign here."""
    if SYMBOL.fullmatch(text):
        return None if text in ptx_constants.NAMED_NUMBERS else SymbolRef(text)
    if not NUMBER.fullmatch(text):
        return None
    if text[1:2] in {"f", "F", "d", "D"}:
        return ptx_constants.literal(text, 0)
    if text[0] != "-":
        return IntegerLiteral(int(text, 0))
    is_integer = text[2:3] not in {"f", "F", "d", "D"}
    return ptx_constants.unary("-", IntegerLiteral(int(text[1:], 0)), 0) if is_integer else None


def operand_of(text: str) -> OperandSyntax | None:
    """The operand that a text spells; None where it is for the parser to judge."""
    if text[:1] == "[":
        address = ADDRESS.fullmatch(text)
        base = part_of(address[1]) if address else None
        return Address(SymbolRef(base.text, int(address[2] or 0))) if address and isinstance(base, SymbolRef) else None
    if text[:1] == "{":
        items = [part_of(item.strip(" \t")) for item in text[1:-1].split(",")]
        operands = tuple(item for item in items if item is not None)
        return BracedList(operands) if text.endswith("}") and len(operands) == len(items) else None
    if "|" in text:
        first, second, *others = (part_of(item) for item in text.split("|"))
        is_pair = isinstance(first, SymbolRef) and isinstance(second, SymbolRef) and not others
        return ResultPair(first, second) if is_pair and first and second else None
    return part_of(text)


class OperandTexts(dict[str, OperandSyntax]):
    """Operands by their texts; a KeyError where the parser has to judge."""

    def __missing__(self, text: str) -> OperandSyntax:
        """Read an operand."""
        written = text.strip(" \t")
        operand = SymbolRef(written) if REGISTER.fullmatch(written) else operand_of(written)
        if operand is None:
            raise KeyError(text)
        if len(self) >= MAX_KEPT:
            self.clear()
        self[text] = operand
        return operand


class LineContents(dict[str, LineContent]):
    """The items of plain lines, by line text."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        super().__init__()
        self.operands = OperandTexts()

    def __missing__(self, text: str) -> LineContent:
        """Read a line."""
        content: LineContent = None
        if statement := STATEMENT.fullmatch(text):
            content = self.statement(*statement.groups())
        elif label := LABEL.fullmatch(text):
            content = label[1]
        elif NOTHING.fullmatch(text):
            content = ""
        if len(self) >= MAX_KEPT:
            self.clear()
        self[text] = content
        return content

    def statement(self, negated: str | None, guard: str | None, opcode: str, written: str | None) -> LineContent:
        """A statement; a call has operands of its own kind."""
        if opcode.startswith("call"):
            return None
        texts: list[str] = []
        if written:
            texts = BETWEEN_OPERANDS.split(written) if "{" in written else written.split(",")
        try:
            operands = tuple(map(self.operands.__getitem__, texts))
        except KeyError:
            return None
        return opcode, operands, SymbolRef(guard) if guard else None, bool(negated)


CONTENTS = LineContents()
"""Of all files: bodies of one file, and files of one compiler, have many lines in common."""


class PlainLines:
    """Reads the plain lines of one text."""

    def __init__(self, text: str, first_line: int) -> None:
        """Nothing is read yet."""
        self.text, self.first_line = text, first_line

    @cached_property
    def lines(self) -> list[str]:
        """The lines."""
        return self.text.split("\n")

    @cached_property
    def starts(self) -> list[int]:
        """The start of each line, after the line feeds before it."""
        return [0, *accumulate(map(len, self.lines))]

    def read(self, first: int) -> tuple[list[Statement | Label], int]:
        """Return the items from a line on, up to one that is not plain, and the number of that line.

        A label before such a line is left to the parser, because a table of targets may follow.
        """
        items: list[Statement | Label] = []
        lines, contents, line, before = self.lines, CONTENTS, first, self.first_line
        while line - before < len(lines) - 1:  # the last one has no line feed
            content = contents[lines[line - before]]
            if content is None:
                break
            if isinstance(content, tuple):
                items.append(Statement(line, *content))
            elif content:
                items.append(Label(line, content))
            line += 1
        if items and isinstance(items[-1], Label):
            line = items.pop().line
        return items, line

    def start_of(self, line: int) -> int:
        """Return the offset of a line in the text."""
        return self.starts[line - self.first_line] + line - self.first_line
