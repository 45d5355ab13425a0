"""The test vectors of one instruction, in groups; they can be saved, loaded, and checked for what they catch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from os import PathLike

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.emission.vectors.cases import Group


@dataclass(frozen=True, eq=False)
class VectorSet:
    """The test vectors of one instruction, with the arithmetic of one architecture."""

    instruction: Instruction
    arch: str
    groups: tuple[Group, ...]

    def __repr__(self) -> str:
        """How much there is."""
        return f"<VectorSet of {self.instruction.name} on {self.arch}: {self.cases} cases in {len(self.groups)} groups>"

    @property
    def cases(self) -> int:
        """How many cases in all."""
        return sum(group.cases for group in self.groups)

    def __getitem__(self, name: str) -> Group:
        """The group of a name."""
        found = {group.name: group for group in self.groups}
        if not isinstance(name, str) or name not in found:
            msg = f"group is one of {', '.join(found)}; got {quote(name)}"
            raise InvalidOperand(msg)
        return found[name]

    def save(self, path: str | PathLike[str]) -> None:
        """Write npz, json, a C++ header (.h) or a CUDA program that tests a GPU (.cu), by the ending of the path."""
        from warpfrag.emission.vectors import vector_files

        vector_files.save(self.instruction, self.arch, self.groups, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> VectorSet:
        """Read npz or json back."""
        from warpfrag.emission.vectors import vector_files

        return cls(*vector_files.read(path))

    def self_check(self) -> dict[str, str | None]:
        """For each way to get the layout wrong, the first group that shows it; None where none does."""
        if self.instruction.form.is_warpgroup:
            from warpfrag.emission.vectors.warpgroups import self_check_warpgroup

            return self_check_warpgroup(self.instruction, self.arch, self.groups)
        from warpfrag.emission.vectors.self_check import self_check

        return self_check(self.instruction, self.arch, self.groups)
