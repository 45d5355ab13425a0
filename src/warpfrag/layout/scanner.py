"""A tokenizer for pasted text; its errors point at the offending token."""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple, NoReturn, TypeVar

from warpfrag.errors import InvalidOperand, quote

TOKEN = re.compile(r"(?P<space>\s+)|\d+|[A-Za-z_#]\w*(?:(?:::|\.)\w+)*|->|.", re.ASCII | re.DOTALL)
MAX_TEXT = 20_000  # the longest text that is read; the largest thread-value layout has a few hundred characters
MAX_DIGITS = 9
MAX_DEPTH = 20
Item = TypeVar("Item")
QUOTED_BEFORE = 24  # number of characters before the error position that a message repeats


class LayoutToken(NamedTuple):
    """A token and its position; the last token is empty."""

    text: str
    at: int


class Scanner:
    """The tokens of a text, which are consumed in order."""

    def __init__(self, notation: str, text: object) -> None:
        """Split a text into tokens; raise InvalidOperand if it is not a string or is too long."""
        if not isinstance(text, str):
            raise InvalidOperand(f"{notation}: expected a string, got {quote(text)}")
        self.notation = notation
        self.text = text
        if len(text) > MAX_TEXT:
            raise InvalidOperand(f"{notation}: expected a string of at most {MAX_TEXT} characters, got {len(text)}")
        self._tokens = [LayoutToken(match[0], match.start()) for match in TOKEN.finditer(text) if not match["space"]]
        self._tokens.append(LayoutToken("", len(text)))
        self._next = 0

    @property
    def word(self) -> str:
        """The next token, or an empty string at the end."""
        return self._tokens[self._next].text

    def take(self) -> str:
        """Consume and return the next token."""
        word = self.word
        self._next += bool(word)
        return word

    def skip(self, *words: str) -> bool:
        """Consume these tokens and return True if they come next."""
        comes = [word.text for word in self._tokens[self._next : self._next + len(words)]]
        if comes != [*words]:
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Consume these tokens; raise InvalidOperand if they do not come next."""
        for word in words:
            if not self.skip(word):
                self.refuse(f"expected {word!r}")

    def number(self, prefix: str = "") -> int:
        """Consume the next token, and return it as a number without its prefix."""
        digits = self.word.removeprefix(prefix)
        if not (digits.isascii() and digits.isdigit()):
            self.refuse("expected a number")
        if len(digits) > MAX_DIGITS:
            self.refuse(f"expected a number of at most {MAX_DIGITS} digits")
        self.take()
        return int(digits)

    def sequence(self, item: Callable[[], Item], opening: str = "[", closing: str = "]") -> list[Item]:
        """Consume items between brackets, separated by commas, and return them."""
        self.expect(opening)
        items: list[Item] = []
        while not self.skip(closing):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def bases(self) -> list[list[int]]:
        """Consume a list of lists of numbers, and return it."""
        return self.sequence(lambda: self.sequence(self.number))

    def choice(self, words: Collection[str]) -> str:
        """Consume and return the next token; raise InvalidOperand if it is not one of `words`."""
        if self.word not in words:
            self.refuse(f"expected one of {', '.join(words)}")
        return self.take()

    def end(self) -> None:
        """Raise InvalidOperand unless all tokens have been consumed."""
        if self.word:
            self.refuse("expected the end of the text")

    def refuse(self, fault: str) -> NoReturn:
        """Raise InvalidOperand with the fault and the position of the next token."""
        at = self._tokens[self._next].at
        before = self.text[max(0, at - QUOTED_BEFORE) : at]
        after = f" after {quote(before)}" if before else ""
        came = quote(self.word) if self.word else "the end"
        raise InvalidOperand(f"{self.notation}: {fault} at character {at + 1}{after}; got {came}")
