"""tcgen05 on the GPU: which products are run, on which images of shared and tensor memory.

What an element of D adds up does not depend on n, so products run at one width; each case is a launch of one block, or
of a pair, of the kernel that `emission.tcgen05` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.tcgen05_code import identifier, module
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import Format
from warpfrag.formats.random_codes import random_codes
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.random_operands import classes
from warpfrag.tensorcore.tcgen05_types import TensorMma
from warpfrag.tensorcore.tensor_images import image_columns, shared_parts, tensor_operands

if TYPE_CHECKING:
    Words = NDArray[np.uint32]

WIDTH = 64
WARPS = 4


@dataclass(frozen=True, eq=False)
class TensorLaunch:
    """One launch: a module, its entry, how many blocks, and an array for each parameter; `result` is written."""

    text: str
    entry: str
    blocks: int
    arrays: dict[str, Words]
    result: str = "d"

    @property
    def operands(self) -> dict[str, Words]:
        """What it reads."""
        return {name: array for name, array in self.arrays.items() if name != self.result}


def is_chosen(instruction: Instruction) -> bool:
    """Whether a product is run where none is named: of tcgen05, those of one width."""
    return instruction.form.operation.scope != "block" or instruction.shape.n == WIDTH


def tensor_launches(t: TensorMma, cases: int, seed: int, target: str) -> Iterator[tuple[str, TensorLaunch]]:
    """Launches of one product, each with its class of operands: `cases` in all, and at least one of each class."""
    text, entry = module([t], target), f"{identifier(t)}_kernel"
    kinds = classes(t)
    for number, kind in enumerate(kinds):
        for case in range(-(-cases // len(kinds))):
            images = random_images(t, kind, np.random.default_rng([seed, number, case]))
            yield kind, TensorLaunch(text, entry, t.blocks, images)


def random_images(t: TensorMma, kind: str, random: np.random.Generator) -> dict[str, Words]:
    """Images of a product on operands of one class, and an empty one of D."""
    form, operands = t.form, tensor_operands(t.form)
    images: dict[str, Words] = {}
    for role, part, axis in zip("ab", shared_parts(form), (0, 1), strict=True):
        codes = _codes(operands[role].format, kind, operands[role].shape, random)
        tile = part.store(np.stack(np.split(codes, 2, axis)) if t.blocks == 2 else codes, raw=True)
        images[role] = np.ascontiguousarray(tile.memory).view(np.uint32)
    places = image_columns(form)
    d = operands["d"]
    old = d.pack(_codes(d.format, kind, d.shape, random), raw=True)
    images["c"] = np.zeros((*old.shape[:-1], places["end"]), np.uint32)
    images["c"][..., : d.columns] = old
    for role, column in places.items():
        if role in ("metadata", "scale_a", "scale_b"):
            operand = operands[role]
            images["c"][..., column : column + operand.columns] = _packed(t, role, operand, kind, random)
    images["d"] = np.zeros_like(old)
    return images


def _codes(number_format: Format, kind: str, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    if kind == "bits":
        return random.integers(0, number_format.codes, shape).astype(code_dtype(number_format))
    return random_codes(number_format, kind, shape, random).astype(code_dtype(number_format))


def _packed(t: TensorMma, role: str, operand: Any, kind: str, random: np.random.Generator) -> Words:  # noqa: ANN401
    """The columns of metadata or of scale factors."""
    if role == "metadata":
        legal = list(t.pattern.rising) if t.pattern is not None else [0]
        codes: Words = operand.pack(random.choice(legal, operand.shape[-2:]).astype(np.uint8))
        return codes
    if kind == "bits":
        drawn = random.integers(0, 128 if operand.format.name == "ue4m3" else 256, operand.shape)
    else:
        drawn = operand.format.encode(1.0) + random.integers(-6, 7, operand.shape)
    scales: Words = operand.pack(drawn, raw=True)
    return scales
