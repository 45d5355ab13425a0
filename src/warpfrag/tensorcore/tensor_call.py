"""A product of tcgen05 as a kernel calls it, besides the images of its memories: two descriptors, and that of its type.

`execution.tensor_images` says what the images are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class TensorCallRow(TypedDict):
    """A call in a file: words in hex."""

    descriptors: list[str]
    idesc: str


@dataclass(frozen=True)
class TensorCall:
    """The descriptors of A and B, from the start of their own tiles, and the instruction descriptor, as words."""

    descriptors: tuple[int, int]
    idesc: int

    @property
    def row(self) -> TensorCallRow:
        """As a file says it."""
        return {"descriptors": [hex(word) for word in self.descriptors], "idesc": hex(self.idesc)}

    @classmethod
    def read(cls, row: TensorCallRow) -> TensorCall:
        """What a file says; any error where it says something else."""
        a, b = (int(word, 16) for word in row["descriptors"])
        return cls((a, b), int(row["idesc"], 16))
