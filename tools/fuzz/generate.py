"""Generate random kernels from seeds: valid, deterministic, and with every opcode row of the machine.

Arithmetic instructions are generated from the rows (`spellings`). Instructions that need an address, other threads or
a frame have recipes: functions with a weight and allowed contexts. `python -m tools.fuzz check --coverage` lists rows
that no kernel contains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tools.fuzz import asynchronous, cooperation, matrices, recipes
from tools.fuzz.writer import Generator

if TYPE_CHECKING:
    from tools.fuzz.kernel import Kernel

RECIPES = (*recipes.RECIPES, *cooperation.RECIPES, *asynchronous.RECIPES, *matrices.RECIPES)
SIZE = 200


WGMMA, WGMMA_BLOCKS = "wgmma", 12
FAVOURED = 40
"""The weight of a favoured recipe."""


def generate(seed: int, size: int = SIZE, target: str | None = None, favour: str = "") -> Kernel:
    """Return the kernel of a seed, with at least `size` statements in its body.

    `favour` names a recipe to use often; the block is then a warpgroup, in which every recipe is allowed. If `favour`
    is "wgmma", the kernel has one form of wgmma, chosen by the seed, and enough blocks for the form to count as
    compared.
    """
    if favour == WGMMA:
        return wgmma_kernel(seed)
    if not favour:
        return Generator(seed, size, RECIPES, target).kernel()
    chosen = [replace(recipe, weight=FAVOURED) if recipe.write.__name__ == favour else recipe for recipe in RECIPES]
    generator = Generator(seed, size, chosen, target or "sm_90a")
    generator.has_whole_warps, generator.block = True, matrices.WARPGROUP
    return generator.kernel()


def wgmma_kernel(seed: int) -> Kernel:
    """Return the kernel with the wgmma form that a seed chooses."""
    generator = Generator(seed, 0, RECIPES, "sm_90a")
    generator.has_whole_warps, generator.block, generator.grid = True, matrices.WARPGROUP, WGMMA_BLOCKS
    generator.features.add("tile")
    forms = matrices.wgmma_forms("sm_90a")
    matrices.write_wgmma(generator, forms[seed % len(forms)])
    return generator.kernel()


def favourite(seed: int) -> str:
    """Return the name of the recipe that a seed favours if every recipe gets its turn."""
    return RECIPES[seed % len(RECIPES)].write.__name__
