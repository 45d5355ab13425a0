"""Every error warpfrag raises: one root, five kinds, one sentence each.

A message says what is wrong, what was expected, what came, and what is near. `IllegalInstruction` carries
the same facts as attributes, so that a program can use them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SHOWN = 200  # characters: the longest PTX names have 125


def shown(given: object) -> str:
    r"""What a user gave, as a message repeats it: on one line, without control characters, and never whole pages.

    >>> print(shown("mma\x1b[31m"), shown(7), shown("x" * 1_000_000)[-28:])
    'mma\x1b[31m' 7 xxx'... (1000000 characters)
    """
    if isinstance(given, str | bytes) and len(given) > MOST_SHOWN:
        return f"{given[:MOST_SHOWN]!r}... ({len(given)} {'bytes' if isinstance(given, bytes) else 'characters'})"
    if isinstance(given, int) and given.bit_length() > MOST_SHOWN:
        return f"an integer of {given.bit_length()} bits"
    try:
        text = " ".join(repr(given).split())
    except Exception:  # noqa: BLE001 (whatever fails in the repr of a foreign object)
        return f"an object of type {type(given).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"


class WarpfragError(ValueError):
    """Root of all errors raised on purpose by warpfrag."""


class NotModelled(WarpfragError):
    """The answer exists on hardware, but nobody has specified, measured or published it."""


class InvalidOperand(WarpfragError):
    """A matrix, register array or coordinate does not fit the operand it is meant for."""


class InvalidSparsity(WarpfragError):
    """A matrix or its metadata does not follow the sparsity rule of the instruction."""


class UnusableFile(WarpfragError, OSError):
    """A file cannot be read or written, or does not hold what it should; an OSError too."""


class NoGpu(WarpfragError):
    """There is no GPU that can be used, or nothing to reach it with."""


class OutOfMemory(WarpfragError):
    """The GPU's memory does not suffice."""


class SlowArithmetic(UserWarning):
    """The codes are right, but take longer than they could: compiled kernels cannot be had, or not be kept."""


class IllegalInstruction(WarpfragError):
    """No assembler accepts this spelling, or not for this target or selector.

    `reason` names the word that is wrong. `nearest` lists the closest legal spellings; it is computed when it
    is first read, because comparing with every spelling costs more than refusing.
    """

    def __init__(self, name: str, reason: str, nearest: Callable[[], tuple[str, ...]] = tuple) -> None:
        """Keep the facts apart, so that callers need not parse the sentence."""
        super().__init__(name, reason)
        self.name = name
        self.reason = reason
        self._find_nearest = nearest
        self._nearest: tuple[str, ...] | None = None

    @property
    def nearest(self) -> tuple[str, ...]:
        """The closest legal spellings, best first."""
        if self._nearest is None:
            self._nearest = self._find_nearest()
        return self._nearest

    def __str__(self) -> str:
        """Say the reason, then what is near."""
        near = [name for name in self.nearest if name != self.name]  # a bad selector: the name itself is legal
        hint = f"; nearest: {', '.join(near)}" if near else ""
        return f"{shown(self.name)}: {self.reason}{hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Find what is near before the error goes to another process: the function that finds it cannot go."""
        return IllegalInstruction, (self.name, self.reason, partial(tuple, self.nearest))
