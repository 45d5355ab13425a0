"""Experiments: an instruction, a texture or surface, and the inputs of each thread.

Texels and coordinates are made from the raw words of a random generator, so that they are the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from warpfrag.machine.semantics.textures import Surface, Texture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.machine.semantics.textures import AddressMode, Filter, ReadMode

    Words = NDArray[np.uint32]

Channels: TypeAlias = Literal[1, 2, 4]
AXES = {"1d": 1, "a1d": 1, "2d": 2, "a2d": 2, "3d": 3}
SPECIAL_COORDINATES = np.array(
    [
        0, 0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F7FFFFF,
        0xFF7FFFFF, 0x4B000000, 0xCB000000, 0x4B800000, 0xCB800000, 0x4F000000, 0xCF000000, 0x4EFFFFFF, 0x4F7FFFFF,
        0x5F000000, 0xDF000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000, 0xBF000000, 0x3EFFFFFF, 0x3F000001,
        0x33800000, 0xB3800000, 0x37000000, 0xB7000000, 0x46FFFE00, 0x47000000, 0xC7000000, 0x43800000,
    ],
    np.uint32,
)  # fmt: skip
SPECIAL_TEXELS = {
    "float32": (0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x807FFFFF, 0x00800000,
                0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000),
    "float16": (0x7E00, 0x7C01, 0xFFFF, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00),
}  # fmt: skip


def raw(seed: int, number: int) -> NDArray[np.uint64]:
    """Return random words that are the same in every NumPy version."""
    return np.random.PCG64(seed).random_raw(number)


def unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Convert random words to numbers from 0 to 1."""
    return (words >> np.uint64(11)).astype(np.float64) / 2.0**53


@dataclass(frozen=True)
class Experiment:
    """One instruction on one texture or surface, run by many threads."""

    group: str
    opcode: str  # the full opcode
    geometry: str
    extents: tuple[int, int, int]  # x, y, and z or layers; 0 for a missing axis
    dtype: str
    channels: Channels
    threads: int
    seed: int
    texels: str = "bits"
    places: str = "mixed"
    filter: Filter = "point"
    address: tuple[AddressMode, ...] = ("clamp", "clamp", "clamp")
    normalized: bool = False
    read: ReadMode = "element"
    border: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    element: int = 1  # the alignment of a surface's x in bytes

    @property
    def name(self) -> str:
        """The unique name of the experiment."""
        return f"{self.group} {self.opcode} {self.dtype} {self.channels} {self.seed}"

    @property
    def is_surface(self) -> bool:
        """True if it accesses a surface."""
        return self.opcode.startswith("su")

    @property
    def is_layered(self) -> bool:
        """True if the first coordinate is a layer."""
        return self.geometry.startswith("a")

    @cached_property
    def array(self) -> NDArray[Any]:
        """The texels [layer or z, y, x, channel], without axes that the texture lacks."""
        x, y, z = self.extents
        whole = texels_of(self).reshape(max(1, z), max(1, y), x, self.channels)
        axes = AXES[self.geometry]
        shape = (
            *((z,) if self.is_layered or axes == 3 else ()),
            *((y,) if axes >= 2 else ()),
            x,
            *((self.channels,) if self.channels > 1 else ()),
        )
        return np.ascontiguousarray(whole.reshape(shape))

    @cached_property
    def resource(self) -> Texture | Surface:
        """The kernel argument."""
        if self.is_surface:
            return Surface(self.array, channels=self.channels, layered=self.is_layered)
        return Texture(
            self.array, self.filter, self.address, normalized=self.normalized, read=self.read, channels=self.channels,
            layered=self.is_layered, border=self.border,
        )  # fmt: skip


def texels_of(experiment: Experiment) -> NDArray[Any]:
    """Return the texels: random bits, their indices, special floats, or floats in an exponent range."""
    x, y, z = experiment.extents
    size = x * max(1, y) * max(1, z) * experiment.channels
    dtype, style = np.dtype(experiment.dtype), experiment.texels
    words = raw(experiment.seed, size)
    plain = np.dtype(f"u{dtype.itemsize}")
    if style == "index":
        return np.arange(size).astype(dtype)
    if style == "bits" or dtype.kind != "f":
        return words.astype(plain).view(dtype)
    bits, bias, exponents = (23, 127, 8) if dtype.itemsize == 4 else (10, 15, 5)
    if style == "special":
        table = SPECIAL_TEXELS[experiment.dtype]
        pick = (words >> np.uint64(32)) % np.uint64(80)
        codes = np.array([*table, *[0] * (80 - len(table))], np.uint64)[pick]
        return np.where(pick < len(table), codes, words & np.uint64(0xFFFFFFFF)).astype(plain).view(dtype)
    if style == "tiny":
        exponent = (words >> np.uint64(32)) % np.uint64(14 if bits == 23 else 6)
    else:
        width = min({"narrow": 4, "wide": 40}[style], 24 if bits == 10 else 99)
        exponent = (words >> np.uint64(32)) % np.uint64(width) + np.uint64(bias - width // 2)
    sign = words >> np.uint64(60) & np.uint64(1)
    codes = sign << np.uint64(bits + exponents) | exponent << np.uint64(bits) | words & np.uint64((1 << bits) - 1)
    result: NDArray[Any] = codes.astype(plain).view(dtype)
    return result


def float_coordinates(experiment: Experiment, axis: int) -> NDArray[np.float32]:
    """Return coordinates along an axis: inside, outside, near multiples of 1/512 texel, and special values."""
    number, extent = experiment.threads, experiment.extents[axis]
    words = raw(experiment.seed + 1000 + axis, 2 * number)
    ratio, rest = unit(words[:number]), words[number:]
    pick = (rest & np.uint64(7)).astype(np.int64)
    units = (rest >> np.uint64(8) & np.uint64(0xFFFFFFFFFFFFFF)) % np.uint64(9)
    scale = 1.0 / extent if experiment.normalized else 1.0

    def scaled(values: NDArray[np.float64]) -> NDArray[np.float32]:
        return (values * scale).astype(np.float32)

    def moved(values: NDArray[np.float32]) -> NDArray[np.float32]:
        by = np.where(values == 0, 0, units.astype(np.int64) - 4).astype(np.int32)
        return (values.view(np.int32) + by).view(np.float32)

    grid = scaled(np.floor(ratio * (extent + 3) * 512 - 1.5 * 512) / 512)
    whole = scaled(np.floor(ratio * (3 * extent + 2) - extent - 1))
    special = SPECIAL_COORDINATES[(rest >> np.uint64(16)) % np.uint64(len(SPECIAL_COORDINATES))].view(np.float32)
    anything = (words[:number] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    choices = [scaled(ratio * extent), scaled((ratio * 5 - 2) * extent), moved(grid), moved(whole), grid]
    result = np.select([pick < 2, pick < 4, pick < 5, pick < 6, pick < 7], choices, choices[-1])
    return np.where(pick == 7, np.where(ratio < 0.3, anything, special), result).astype(np.float32)


def integer_coordinates(experiment: Experiment, axis: int) -> NDArray[np.uint32]:
    """Return integer coordinates inside and outside; a surface's x is a multiple of its element size."""
    number, extent = experiment.threads, experiment.extents[axis]
    words = raw(experiment.seed + 3000 + axis, number)
    unit_bytes = experiment.element if axis == 0 else 1
    stays = experiment.places in {"inside", "unique"}
    low, high = (0, extent) if stays else (-2, extent + 2)
    index = ((words % np.uint64(high - low)).astype(np.int64) + low) * unit_bytes
    if experiment.places == "unique" and axis == 0:
        return (np.arange(number) % extent * unit_bytes).astype(np.uint32)
    if not stays:
        far = (words >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.int64) // unit_bytes * unit_bytes
        index = np.where((words >> np.uint64(20)) % np.uint64(16) == 0, far, index)
    return index.astype(np.uint32)


def words_of(experiment: Experiment) -> Words:
    """Return the input of each thread, [threads, 16]: coordinates, a level and gradients, and the values of a store."""
    number = experiment.threads
    result = np.zeros((number, 16), np.uint32)
    first = int(experiment.is_layered)
    if first:
        words, layers = raw(experiment.seed + 2000, number), experiment.extents[2]
        stays = experiment.places in {"inside", "unique"}
        result[:, 0] = words % np.uint64(layers) if stays else (words % np.uint64(layers + 3)).astype(np.int64) - 1
        far = (words >> np.uint64(40)) % np.uint64(50) == 0
        result[:, 0] = np.where(far & (not stays), (words >> np.uint64(8)).astype(np.uint32), result[:, 0])
    axes = AXES[experiment.geometry]
    is_integer = experiment.is_surface or experiment.opcode.endswith(".s32")
    for axis in range(axes):
        result[:, first + axis] = (
            integer_coordinates(experiment, axis) if is_integer else float_coordinates(experiment, axis).view(np.uint32)
        )
    result[:, first + axes : 4] = result[:, first + axes - 1 : first + axes]
    if ".level" in experiment.opcode and not is_integer:
        result[:, 4] = (unit(raw(experiment.seed + 5000, number)) * 8 - 4).astype(np.float32).view(np.uint32)
    if ".grad" in experiment.opcode:
        for place in (4, 5, 6, 8, 9, 10):
            values = unit(raw(experiment.seed + 6000 + place, number)) * 4 - 2
            result[:, place] = values.astype(np.float32).view(np.uint32)
    if experiment.is_surface:
        result[:, 8:] = raw(experiment.seed + 7000, 4 * number).view(np.uint32).reshape(number, 8)
    return result
