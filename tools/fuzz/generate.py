"""Random kernels from a seed: valid, deterministic, and made of every opcode row that the machine has.

What computes on registers comes from the rows themselves (`spellings`). What needs an address, other threads or a frame
is a recipe: a function with a weight and the places where it may stand. A row that no kernel has is listed by
`python -m tools.fuzz check --coverage`.
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
