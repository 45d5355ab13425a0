"""Pasted text, cut into words whose places are kept, so that an error can point at what is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Collection

WORD = re.compile(r"(?P<space>\s+)|\d+|[A-Za-z_#]\w*(?:(?:::|\.)\w+)*|->|.", re.ASCII | re.DOTALL)
MAX_TEXT = 20_000  # characters: the largest thread-value layout has a few hundred
MAX_DIGITS = 9
MAX_DEPTH = 20
QUOTED_BEFORE = 24  # characters before a fault that an error repeats


class ScannedWord(NamedTuple):
    """A word of a text and where it starts; the empty one stands at the end."""

    text: str
    at: int


class Scanner:
    """The words of a text, one after the other."""

    def __init__(self, notation: str, text: object) -> None:
        """Cut a text into words, refused where it is none or too long to be a layout."""
        if not isinstance(text, str):
            msg = f"{notation}: expected a text, got {quote(text)}"
            raise InvalidOperand(msg)
        self.notation = notation
        self.text = text
        if len(text) > MAX_TEXT:
            msg = f"{notation}: a layout is a text of at most {MAX_TEXT} characters, got {len(text)}"
            raise InvalidOperand(msg)
        self._words = [ScannedWord(match[0], match.start()) for match in WORD.finditer(text) if not match["space"]]
        self._words.append(ScannedWord("", len(text)))
        self._next = 0

    @property
    def word(self) -> str:
        """The word that comes; nothing at the end."""
        return self._words[self._next].text

    def take(self) -> str:
        """The word that comes, which is then behind us."""
        word = self.word
        self._next += bool(word)
        return word

    def skip(self, *words: str) -> bool:
        """Whether these words come; if they do, they are behind us."""
        comes = [word.text for word in self._words[self._next : self._next + len(words)]]
        if comes != [*words]:
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Go past these words, refused where others come."""
        for word in words:
            if not self.skip(word):
                self.refuse(f"expected {word!r}")

    def number(self, prefix: str = "") -> int:
        """The number that comes; a prefix may stand before it."""
        digits = self.word.removeprefix(prefix)
        if not (digits.isascii() and digits.isdigit()):
            self.refuse("expected a number")
        if len(digits) > MAX_DIGITS:
            self.refuse(f"expected a number of at most {MAX_DIGITS} digits")
        self.take()
        return int(digits)

    def choice(self, words: Collection[str]) -> str:
        """The word that comes, refused where it is none of these."""
        if self.word not in words:
            self.refuse(f"expected one of {', '.join(words)}")
        return self.take()

    def end(self) -> None:
        """Refuse anything more."""
        if self.word:
            self.refuse("expected the end")

    def refuse(self, fault: str) -> NoReturn:
        """Say what is wrong with the word that comes, and where it stands."""
        at = self._words[self._next].at
        before = self.text[max(0, at - QUOTED_BEFORE) : at]
        behind = f" behind {quote(before)}" if before else ""
        came = quote(self.word) if self.word else "the end"
        msg = f"{self.notation}: {fault} at character {at + 1}{behind}; got {came}"
        raise InvalidOperand(msg)
