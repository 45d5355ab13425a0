"""Every error warpfrag raises: one root, four kinds, one sentence each.

A message says what is wrong, what was expected, what came, and what is near. `IllegalInstruction` carries
the same facts as attributes, so that a program can use them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class WarpfragError(ValueError):
    """Root of all errors raised on purpose by warpfrag."""


class NotModelled(WarpfragError):
    """The answer exists on hardware, but nobody has specified, measured or published it."""


class InvalidOperand(WarpfragError):
    """A matrix, register array or coordinate does not fit the operand it is meant for."""


class InvalidSparsity(WarpfragError):
    """A matrix or its metadata does not follow the sparsity rule of the instruction."""


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
        return f"{self.name!r}: {self.reason}{hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Find what is near before the error goes to another process: the function that finds it cannot go."""
        return IllegalInstruction, (self.name, self.reason, partial(tuple, self.nearest))
