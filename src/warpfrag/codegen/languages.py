"""The languages that code is written in, and the checks on what a caller asks for: a language, a function's name."""

from __future__ import annotations

from typing import Literal, get_args

from warpfrag.errors import InvalidOperand, quote

Language = Literal["cuda", "ptx"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


def check_language(lang: object) -> Language:
    """The language; InvalidOperand where there is none of this name."""
    for language in LANGUAGES:
        if isinstance(lang, str) and lang == language:
            return language
    msg = f"lang is one of {', '.join(LANGUAGES)}, got {quote(lang)}"
    raise InvalidOperand(msg)


def check_function_name(name: object) -> str:
    """The name of a function; InvalidOperand for what is no ASCII identifier."""
    if isinstance(name, str) and name.isascii() and name.isidentifier():
        return name
    msg = f"name is that of a function, such as relayout; got {quote(name)}"
    raise InvalidOperand(msg)
