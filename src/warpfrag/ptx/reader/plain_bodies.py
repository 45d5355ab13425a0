"""Bodies of functions that are well-formed for sure, found by a pattern: their statements are read when asked for.

A file of a library has hundreds of kernels, and of these one is launched. What the pattern covers, the parser takes
without an error, so that reading it may wait; it is a part of the grammar on purpose. Any other body the parser reads
at once, and so it does with everything that is wrong.
"""

from __future__ import annotations

import re


def separated(item: str, closing: str) -> str:
    """One or more of an item, with commas between, up to a sign."""
    return rf"(?:{item}\s*+(?:,\s*+(?!{closing})|(?={closing})))++{closing}"


WORD = r"(?:%[\w$]|[$A-Za-z_])[\w$]*+(?:(?:\.|::)\w++)*+"
NAME = rf"(?!WARP_SZ){WORD}"  # that is a number
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
MAX_NESTED = 16  # scopes in a body


def end_of_body(text: str, at: int) -> int:
    """Where a body ends that begins with the brace at a place; 0 where the parser has to judge."""
    depth = 0
    while at < len(text) and text[at] in "{}" and depth <= MAX_NESTED:
        depth += 1 if text[at] == "{" else -1
        if not depth:
            return at + 1
        items = ITEMS.match(text, at + 1)
        at = items.end() if items else at + 1
    return 0
