"""Cut PTX into tokens, each with its line: words, directives, numbers, texts, signs, and rows of plain lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import PtxError, quote
from warpfrag.ptx.reader.plain_lines import PlainLines
from warpfrag.ptx.reader.syntax import Label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.ptx.reader.syntax import Statement

TOKEN = re.compile(
    r"""[ \t\r\f\v]*+(?:(?P<blank>//[^\n]*|^\#[^\n]*|\Z)
    |(?P<newline>\n)
    |(?P<comment>/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n]|\\.)*")
    |(?P<number>0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?(?![\w$])|0[bB][01]+U?(?![\w$])
        |(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?(?![\w$])|\d+U?(?![\w$]))
    |(?P<word>(?:%[\w$]|[$A-Za-z_])[\w$]*(?:(?:\.|::)\w+)*)
    |(?P<directive>\.\w+(?:::\w+)*)
    |(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!=<>(){}\[\],;:@?]))""",
    re.VERBOSE | re.MULTILINE | re.DOTALL | re.ASCII,
)
BLANKS = " \t\r\f\v"
SKIPPED = {"blank", "comment", "newline"}
STATEMENT_ENDS = {";", "{", "}"}


class Token(NamedTuple):
    """One token; `kind` is a group of the pattern, "statements" or "end"."""

    kind: str
    text: str
    line: int
    statements: tuple[Statement | Label, ...] = ()

    @property
    def quoted(self) -> str:
        """The token as a message repeats it: of statements the first of their tokens."""
        if self.statements:
            first = self.statements[0]
            return quote(first.name if isinstance(first, Label) else "@" if first.guard else first.opcode)
        return "the end of the file" if self.kind == "end" else quote(self.text)


def tokens(text: str) -> Iterator[Token]:
    """Every token of a text, and the end."""
    line, at = 1, 0
    plain = PlainLines(text)
    may_begin = False  # whether a statement may begin here: behind another, or a brace, and at the start of a line
    while at < len(text):
        if may_begin and text[at - 1] == "\n":
            statements, next_line = plain.read(line)
            if statements:
                yield Token("statements", "", statements[0].line, tuple(statements))
            line, at = next_line, plain.start_of(next_line)
            if at == len(text):
                break
        token = TOKEN.match(text, at)
        if token is None:
            raise PtxError(line, f"expected PTX, got the character {text[at:].lstrip(BLANKS)[0]!r}")
        kind = str(token.lastgroup)
        if kind not in SKIPPED:
            written = token[kind]
            may_begin = written in STATEMENT_ENDS
            yield Token(kind, written, line)
        elif kind != "blank":
            line += token[kind].count("\n")
        at = token.end()
    yield Token("end", "", line)
