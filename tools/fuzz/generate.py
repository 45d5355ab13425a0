"""Random kernels from a seed: valid, deterministic, and made of every opcode row that the machine has.

Arithmetic instructions are generated from the rows (`spellings`). Instructions that need an address, other threads or
a frame have recipes: functions with a weight and allowed contexts. `python -m tools.fuzz check --coverage` lists rows
that no kernel contains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.fuzz import asynchronous, cooperation, matrices, recipes
from tools.fuzz.writer import Generator

if TYPE_CHECKING:
    from tools.fuzz.kernel import Kernel

RECIPES = (*recipes.RECIPES, *cooperation.RECIPES, *asynchronous.RECIPES, *matrices.RECIPES)
SIZE = 200


def generate(seed: int, size: int = SIZE, target: str | None = None) -> Kernel:
    """Return the kernel of a seed, with at least `size` statements in its body."""
    return Generator(seed, size, RECIPES, target).kernel()
