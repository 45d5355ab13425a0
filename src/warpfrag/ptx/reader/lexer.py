"""Cut PTX into tokens, each with its line: words, directives, numbers, texts, signs, and rows of plain statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import PtxError, quote
from warpfrag.ptx.reader.plain_statements import PlainStatements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.ptx.reader.syntax import Statement

TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\f\v]+|//[^\n]*|^\#[^\n]*)
    |(?P<newline>\n)
    |(?P<comment>/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n]|\\.)*")
    |(?P<number>0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?(?![\w$])|0[bB][01]+U?(?![\w$])
        |(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?(?![\w$])|\d+U?(?![\w$]))
    |(?P<word>(?:%[\w$]|[$A-Za-z_])[\w$]*(?:(?:\.|::)\w+)*)
    |(?P<directive>\.\w+(?:::\w+)*)
    |(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!=<>(){}\[\],;:@?])""",
    re.VERBOSE | re.MULTILINE | re.DOTALL | re.ASCII,
)
SKIPPED = {"blank", "comment", "newline"}
STATEMENT_ENDS = {";", "{", "}"}
LABEL = re.compile(r"([$A-Za-z_][\w$]*):[ \t\r]*\n", re.ASCII)
"""A line with a label and nothing else."""


class Token(NamedTuple):
    """One token; `kind` is a group of the pattern, "statements" or "end"."""

    kind: str
    text: str
    line: int
    statements: tuple[Statement, ...] = ()

    @property
    def quoted(self) -> str:
        """The token as a message repeats it: of statements the first of their tokens."""
        if self.statements:
            return quote("@" if self.statements[0].guard else self.statements[0].opcode)
        return "the end of the file" if self.kind == "end" else quote(self.text)


def tokens(text: str) -> Iterator[Token]:
    """Every token of a text, and the end."""
    line, at = 1, 0
    plain = PlainStatements(text)
    may_begin = False  # whether a statement may begin here: behind another, or a brace, and at the start of a line
    while at < len(text):
        if may_begin and text[at - 1] == "\n":
            statements, at = plain.read(at, line)
            if statements:
                yield Token("statements", "", line, tuple(statements))
                line += len(statements)
                continue
        token = TOKEN.match(text, at)
        if token is None:
            raise PtxError(line, f"expected PTX, got the character {text[at]!r}")
        kind = str(token.lastgroup)
        if kind not in SKIPPED:
            may_begin = token[0] in STATEMENT_ENDS
            yield Token(kind, token[0], line)
        elif kind != "blank":
            line += token[0].count("\n")
        at = token.end()
        label = LABEL.match(text, at) if may_begin and kind == "newline" else None
        if label is not None:
            yield Token("word", label[1], line)
            yield Token("sign", ":", line)
            at = label.end() - 1
    yield Token("end", "", line)
