"""Textures and surfaces: arrays that a kernel samples or accesses by coordinates, through a handle.

A `Texture` is a CUDA texture object over a CUDA array: texels of one, two or four channels along x, y and z, optionally
in layers, with the sampling options. A `Surface` is the same memory without sampling, which a kernel may modify. Axes
are in NumPy's order: an image is [y, x], a volume [z, y, x], layers come first, and channels last.

`semantics.texture_sampling` computes the results of the texture unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.formats.arrays import is_masked_array
from warpfrag.machine.ir.actions import Geometry

Filter = Literal["point", "linear"]
AddressMode = Literal["clamp", "wrap", "mirror", "border"]
ReadMode = Literal["element", "normalized"]
FORMATS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")
NORMALIZED_FORMATS = FORMATS[:4]  # formats whose texels can be read as floats in [0, 1] or [-1, 1]
CHANNELS = (1, 2, 4)
FLAG = (False, True)
UNMEASURED_DEPTHS = range(2050, 3000)  # z extents for which the rounding of coordinates was not measured
MAX_AXES = 3


def _choice(name: str, value: object, known: tuple[object, ...]) -> None:
    """Raise InvalidOperand for a value that is not in `known`."""
    if type(value) is not type(known[0]) or value not in known:
        raise InvalidOperand(f"expected {name} to be one of {', '.join(map(str, known))}, got {quote(value)}")


def _address_modes(address: object, axes: int) -> tuple[AddressMode, ...]:
    """Return the address mode of each axis.

    `address` is one mode for all axes, or one for each (three are accepted too).
    """
    modes = (address,) * MAX_AXES if isinstance(address, str) else address
    if not isinstance(modes, list | tuple) or len(modes) not in {axes, MAX_AXES}:
        raise InvalidOperand(f"expected one address mode, or one for each of {axes} axes, got {quote(address)}")
    for mode in modes:
        _choice("address", mode, get_args(AddressMode))
    return tuple(modes[:axes])


def _border(border: object, dtype: np.dtype[Any]) -> NDArray[np.float32]:
    """Return the four channels of the border colour."""
    channels = list(border) if isinstance(border, list | tuple) else []
    if len(channels) != 4 or not all(isinstance(value, int | float | np.floating | np.integer) for value in channels):
        raise InvalidOperand(f"expected a border of four numbers, got {quote(border)}")
    with np.errstate(over="ignore"):
        values = np.array([float(value) for value in channels], np.float32)
    if values.any() and dtype != np.float32:
        raise NotModelled(f"a border other than 0 is not modelled for texels of {dtype}: its conversion is unknown")
    return values


def _texels(array: object, channels: int, *, layered: bool, label: str) -> NDArray[Any]:
    """Return a view of an array as [layer, z, y, x, channel]."""
    if not isinstance(array, np.ndarray) or is_masked_array(array):
        raise InvalidOperand(f"expected a NumPy array of texels for a {label}, got {quote(array)}")
    if str(array.dtype) not in FORMATS:
        raise InvalidOperand(f"expected texels of type {', '.join(FORMATS)}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise InvalidOperand(f"expected a contiguous array, got strides {array.strides} for shape {array.shape}")
    _choice("channels", channels, CHANNELS)
    _choice("layered", layered, FLAG)
    shape = array.shape if channels == 1 else array.shape[:-1]
    axes = len(shape) - layered
    limit = MAX_AXES - layered
    if not 1 <= axes <= limit or 0 in shape or (channels > 1 and array.shape[-1] != channels):
        order = ", ".join(["layer"] * layered + ["z", "y", "x"][layered:] + [f"{channels} channels"] * (channels > 1))
        raise InvalidOperand(
            f"expected a {label} as [{order}], in which axes before x are optional, got shape {array.shape}"
        )
    layers = shape[0] if layered else 1
    extents = (1,) * (MAX_AXES - axes) + shape[layered:]
    return array.reshape((layers, *extents, channels))


def _geometry(axes: int, *, layered: bool) -> Geometry:
    """Return the PTX geometry of an array with this number of axes."""
    return ("1d", "2d", "3d")[axes - 1] if not layered else ("a1d", "a2d")[axes - 1]


class Texture:
    """An array that `tex` samples: an argument for a cudaTextureObject_t.

    `address` is one mode, or one for each of x, y and z. `read="normalized"` converts texels of 8 and 16 bits to floats
    from 0 or -1 to 1. With `layered`, the first axis counts layers; with two or four `channels`, the last axis counts
    channels. A launch uses the texels as they are when it starts.
    """

    def __init__(
        self,
        array: NDArray[Any],
        filter: Filter = "point",  # noqa: A002 (CUDA's word)
        address: AddressMode | Sequence[AddressMode] = "clamp",
        *,
        normalized: bool = False,
        read: ReadMode = "element",
        channels: Literal[1, 2, 4] = 1,
        layered: bool = False,
        border: Sequence[float] = (0, 0, 0, 0),
    ) -> None:
        """Create a texture; raise an error if CUDA does not support it or its results are unknown."""
        self.array = array
        self.texels = _texels(array, channels, layered=layered, label="texture")
        self.channels, self.layered = channels, layered
        axes = array.ndim - (channels > 1) - layered
        self.geometry = _geometry(axes, layered=layered)
        _choice("filter", filter, get_args(Filter))
        _choice("read", read, get_args(ReadMode))
        _choice("normalized", normalized, FLAG)
        self.filter, self.read, self.normalized = filter, read, normalized
        self.address = _address_modes(address, axes)
        if read == "normalized" and str(array.dtype) not in NORMALIZED_FORMATS:
            raise InvalidOperand(
                f"read='normalized': expected texels of type {', '.join(NORMALIZED_FORMATS)}, got {array.dtype}"
            )
        if filter == "linear" and array.dtype.kind != "f" and read == "element":
            raise InvalidOperand(f"linear filtering needs floats, or read='normalized', got {array.dtype}")
        self.border = _border(border, array.dtype)

    @property
    def border_texel(self) -> NDArray[Any]:
        """The texel outside the array for the address mode "border"."""
        return self.border[: self.channels].astype(self.array.dtype)

    @property
    def is_guess(self) -> bool:
        """True if the rounding of the texture's coordinates was not measured."""
        return self.normalized and self.texels.shape[1] in UNMEASURED_DEPTHS

    def copy(self) -> Texture:
        """Return a texture with its own copy of the texels."""
        other = copy(self)
        other.array = self.array.copy()
        other.texels = other.array.reshape(self.texels.shape)
        return other

    def __repr__(self) -> str:
        """Describe the texture."""
        return (
            f"<Texture {self.geometry} of {self.array.dtype} {self.array.shape}: {self.filter}, "
            f"{'/'.join(dict.fromkeys(self.address))}{', normalized coordinates' * self.normalized}>"
        )


class Surface:
    """An array that `suld`, `sust` and `sured` access by coordinates: an argument for a cudaSurfaceObject_t.

    Stores change the array in place. Axes are those of a `Texture`.
    """

    def __init__(self, array: NDArray[Any], *, channels: Literal[1, 2, 4] = 1, layered: bool = False) -> None:
        """Create a surface; raise an error if CUDA does not support it."""
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            raise InvalidOperand(
                f"expected a writable array for a surface, got a read-only array of shape {array.shape}"
            )
        self.array = array
        self.texels = _texels(array, channels, layered=layered, label="surface")
        self.channels, self.layered = channels, layered
        self.geometry = _geometry(array.ndim - (channels > 1) - layered, layered=layered)

    def __repr__(self) -> str:
        """Describe the surface."""
        return f"<Surface {self.geometry} of {self.array.dtype} {self.array.shape}>"
