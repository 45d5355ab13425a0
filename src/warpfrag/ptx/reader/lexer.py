"""Cut PTX into tokens with their lines: words, directives, numbers, texts, signs, rows of plain lines, and bodies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import PtxError, quote
from warpfrag.ptx.reader.plain_bodies import end_of_body
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
BEFORE_VALUES = {"=", ",", "{"}  # braces behind these hold values


class Token(NamedTuple):
    """One token; `kind` is a group of the pattern, "statements", "body" or "end"."""

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


def tokens(text: str, line: int = 1, *, whole_bodies: bool = False) -> Iterator[Token]:
    """Every token of a text, and the end; with `whole_bodies` a body that is well-formed for sure is one token."""
    at = 0
    plain = PlainLines(text, line)
    written = ""  # the token before
    while at < len(text):
        if written in STATEMENT_ENDS and text[at - 1] == "\n":
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
        at = token.end()
        if kind not in SKIPPED:
            before, written = written, token[kind]
            if whole_bodies and written == "{" and before not in BEFORE_VALUES and (end := end_of_body(text, at - 1)):
                kind, written, at = "body", text[at - 1 : end], end
            yield Token(kind, written, line)
            line += written.count("\n") if kind == "body" else 0
        elif kind != "blank":
            line += token[kind].count("\n")
    yield Token("end", "", line)
