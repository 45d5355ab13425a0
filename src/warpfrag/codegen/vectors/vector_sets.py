"""The test vectors of one instruction, in groups; they can be saved, loaded, and checked for what they catch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.codegen.vectors.self_check import self_check
from warpfrag.codegen.vectors.tensor_vectors import self_check_tensor, tensor_groups
from warpfrag.codegen.vectors.vector_groups import warp_groups
from warpfrag.codegen.vectors.wgmma_vectors import self_check_wgmma, wgmma_groups
from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike

    from warpfrag.codegen.vectors.vector_group import VectorGroup
    from warpfrag.tensorcore.instruction import Instruction


@frozen_dataclass(eq=False)
class VectorSet:
    """The test vectors of one instruction, with the arithmetic of one architecture."""

    instruction: Instruction
    arch: str
    groups: tuple[VectorGroup, ...]

    def __repr__(self) -> str:
        """How much there is."""
        return f"<VectorSet of {self.instruction.name} on {self.arch}: {self.cases} cases in {len(self.groups)} groups>"

    @property
    def cases(self) -> int:
        """How many cases in all."""
        return sum(group.cases for group in self.groups)

    def __getitem__(self, name: str) -> VectorGroup:
        """The group of a name."""
        by_name = {group.name: group for group in self.groups}
        if not isinstance(name, str) or name not in by_name:
            msg = f"group is one of {', '.join(by_name)}; got {quote(name)}"
            raise InvalidOperand(msg)
        return by_name[name]

    def save(self, path: str | PathLike[str]) -> None:
        """Write npz, json, a C++ header (.h) or a CUDA program that tests a GPU (.cu), by the ending of the path."""
        from warpfrag.codegen.vectors import vector_files

        vector_files.save(self.instruction, self.arch, self.groups, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> VectorSet:
        """Read npz or json back."""
        from warpfrag.codegen.vectors import vector_files

        return cls(*vector_files.read(path))

    def self_check(self) -> dict[str, str | None]:
        """For each mistake with the layout, the first group that catches it; None where none does."""
        return SCOPES[self.instruction.form.operation.scope].self_check(self.instruction, self.arch, self.groups)


class VectorScope(NamedTuple):
    """What differs between products of a warp, a warpgroup and a block: which groups they have, how mistakes are made.

    groups       every group of an instruction, from an architecture and a seed
    self_check   for each mistake the first group that catches it
    """

    groups: Callable[[Instruction, str, int], Iterable[VectorGroup]]
    self_check: Callable[[Instruction, str, Sequence[VectorGroup]], dict[str, str | None]]


SCOPES = {
    "warp": VectorScope(warp_groups, self_check),
    "warpgroup": VectorScope(wgmma_groups, self_check_wgmma),
    "block": VectorScope(tensor_groups, self_check_tensor),
}
