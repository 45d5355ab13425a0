"""Cut PTX into tokens: words, directives, numbers, texts and signs, each with its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import PtxError, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Token(NamedTuple):
    """One token; `kind` is a group of the pattern, or "end"."""

    kind: str
    text: str
    line: int

    @property
    def quoted(self) -> str:
        """The token as a message repeats it."""
        return "the end of the file" if self.kind == "end" else quote(self.text)


def tokens(text: str) -> Iterator[Token]:
    """Every token of a text, and the end."""
    line, at = 1, 0
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise PtxError(line, f"expected PTX, got the character {text[at]!r}")
        kind = str(token.lastgroup)
        if kind not in SKIPPED:
            yield Token(kind, token[0], line)
        if kind in {"newline", "comment"}:
            line += token[0].count("\n")
        at = token.end()
    yield Token("end", "", line)
