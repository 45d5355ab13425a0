"""What a mistake is: a change of the registers of one operand, or something else that runs on the right ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]
    Held = NDArray[Any]  # words, or of an operand in shared memory bytes

Kind = Literal[
    "transposed",
    "descriptor",
    "blocks",
    "registers",
    "halves",
    "index",
    "stride",
    "offset",
    "layout",
    "lanes",
    "sign",
    "selector",
    "metadata",
    "c",
    "loop",
    "arch",
    "order",
    "rounding",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The likeliest first."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """One mistake. `change` takes and gives the registers of the operand, uint32[..., lanes, words].

    Metadata and scales are one word a lane and have no last axis, as in `execute`; of an operand in shared memory it
    takes the bytes there. A rare one is looked at last.
    """

    kind: Kind
    operand: str
    text: str
    change: Callable[[Held], Held]
    rare: bool = False

    @property
    def name(self) -> str:
        """The operand and the text: no other mistake of the instruction has it."""
        return f"{self.operand}: {self.text}"


@dataclass(frozen=True, eq=False)
class Misreading:
    """The right registers, but something else runs on them: other words of the name, another architecture.

    `again` says what is done once more afterwards: the product (D goes in as C), or the addition of C; or that C is
    read where the instruction should not read it (scale-d). `k_order` is the order in which A's columns and B's rows
    are taken: the same terms, added in another order.
    """

    kind: Kind
    operand: str
    text: str
    words: Mapping[str, str | bool] = field(default_factory=dict)
    arch: str = ""
    again: Literal["", "product", "c", "scale_d"] = ""
    rare: bool = False
    k_order: tuple[int, ...] = ()


def likelihood(mistake: Mistake | Misreading) -> tuple[bool, int, int]:
    """A key that sorts the likeliest first: by kind, and operands that go in before D."""
    place = "abc".find(mistake.operand[:1])
    return mistake.rare, KINDS.index(mistake.kind), place if place >= 0 else len(KINDS)
