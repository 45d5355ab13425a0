"""Split PTX into tokens: words, directives, numbers, strings, punctuation and bodies."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from warpfrag.errors import PtxError, quote


def separated(pattern: str, closing: str) -> str:
    """Return a pattern for a comma-separated list that ends with the punctuation character `closing`."""
    return rf"(?:{pattern}\s*+(?:,\s*+(?!{closing})|(?={closing})))++{closing}"


WORD = r"(?:%[\w$]|[$A-Za-z_])[\w$]*+(?:(?:\.|::)\w++)*+"
NAME = rf"(?!WARP_SZ){WORD}"  # WARP_SZ is a number
INTEGER = r"(?:[1-9]\d{0,18}+|0)U?(?![\w$.])"
NUMBER = (
    rf"-?(?:{INTEGER}|(?:0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}|0[xX][0-9a-fA-F]{{1,16}}+U?|\d\.\d)(?![\w$.]))"
)
OFFSET = rf"\s*+\+\s*+-?{INTEGER}"
BRACED = rf"\{{\s*+{separated(f'(?:{NAME}|{NUMBER})', '}')}"
ADDRESS = rf"\[\s*+(?!\{{){separated(f'(?:{NAME}(?:{OFFSET})?+|{BRACED})', ']')}"
ARGUMENTS = rf"\(\s*+(?:\)|{separated(NAME, '[)]')})"
OPERAND = rf"(?:{NAME}(?:{OFFSET}|\|{NAME})?+|{NUMBER}|WARP_SZ(?![\w$.:])|{BRACED}|{ADDRESS}|{ARGUMENTS}|!{NAME})"
STATEMENT = rf"(?:@!?{WORD}\s++)?+[a-z]\w*+(?:(?:\.|::)\w++)*+\s*+(?:;|(?<=\s){separated(OPERAND, ';')})"
TARGETS = rf"\s*+\.(?:branch|call)targets\s++{separated(WORD, ';')}"
PROTOTYPE = rf"\s*+\.callprototype\s(?:[\s,()\[\]]++|\.?{WORD}|{INTEGER})*+;"
LABEL = rf"[$A-Za-z_][\w$]*+\s*+:(?!:)(?:{TARGETS}|{PROTOTYPE})?+"
ALIGN = r"\.align\s++(?:1|2|4|8|16|32|64|128|256|512|1024)\s++"
TYPE = r"(?:\.v[24]\s++)?+\.(?:pred|[bfsu]\d++|[bfsu]\d++x\d|bf16|bf16x2)\s++"
REGISTER = rf"{WORD}(?:<[1-9]\d{{0,5}}+>)?+"
ARRAY = rf"{WORD}(?:\[[1-9]\d{{0,8}}+\])?+"
REGISTERS = rf"\.reg\s*+{TYPE}{separated(REGISTER, ';')}"
MEMORY = rf"\.(?:param|shared|local)\s*+(?:{ALIGN})?+{TYPE}{separated(ARRAY, ';')}"
LOCATION = rf"\.loc(?=[ \t])(?:[ \t,+]++|{WORD}|{INTEGER})*+(?=[ \t\r]*+(?://[^\n]*+)?+\n)"
PRAGMA = r'\.pragma\s++"[^"\\\n]*+"\s*+;'
ITEMS = re.compile(rf"(?:\s++|//[^\n]*+|{STATEMENT}|{LABEL}|{LOCATION}|{REGISTERS}|{MEMORY}|{PRAGMA})*+", re.ASCII)
MAX_NESTED = 16  # maximum nesting depth of scopes in a body


def end_of_body(text: str, at: int) -> int:
    """Return the end of the body whose opening brace is at `at`, or 0 if it must be parsed immediately.

    A body that matches the pattern has no errors, so its statements can be parsed later. A library file has hundreds of
    kernels, and usually only one of them is launched.
    """
    depth = 0
    while at < len(text) and text[at] in "{}" and depth <= MAX_NESTED:
        depth += 1 if text[at] == "{" else -1
        if not depth:
            return at + 1
        items = ITEMS.match(text, at + 1)
        at = items.end() if items else at + 1
    return 0


TOKEN = re.compile(
    r"""[ \t\r\f\v]*+(?:(?P<blank>//[^\n]*|^\#[^\n]*|\Z)
    |(?P<newline>\n)
    |(?P<comment>/\*.*?\*/)|(?P<unclosed>/\*)
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
BEFORE_VALUES = {"=", ",", "{"}  # a brace after one of these encloses values


class Token(NamedTuple):
    """One token; `kind` is the name of a pattern group, "body" or "end"."""

    kind: str
    text: str
    line: int

    @property
    def quoted(self) -> str:
        """The token's text, quoted for messages."""
        return "the end of the file" if self.kind == "end" else quote(self.text)


def tokens(text: str, line: int = 1, *, whole_bodies: bool = False) -> Iterator[Token]:
    """Yield the tokens of PTX source, then an end token; with `whole_bodies`, a well-formed body is one token."""
    at = 0
    written = ""  # the text of the previous token
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise PtxError(line, f"expected PTX, got the character {text[at:].lstrip(BLANKS)[0]!r}")
        kind = str(token.lastgroup)
        if kind == "unclosed":
            raise PtxError(line, "the comment that starts here is not terminated: expected */")
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
