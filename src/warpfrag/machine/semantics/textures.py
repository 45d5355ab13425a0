"""Textures and surfaces: arrays that a kernel samples or accesses by coordinates, through a handle.

A `Texture` is a CUDA texture object over a CUDA array: texels of one, two or four channels along x, y and z, optionally
in layers, with the sampling options. A `Surface` is such an array without sampling options, which a kernel may modify.
Axes are in NumPy's order: an image is [y, x], a volume [z, y, x], layers come first, and channels last.

Sampling is that of an H200: one texel, or a weighted mean of the texels around a coordinate. Coordinates are converted
to integers first. An unnormalized coordinate is rounded down to a texel for point sampling, or to the nearest 256th of
a texel for linear filtering. A normalized coordinate is rounded down to 21 fraction bits, or to more for large textures
(`COORDINATE_BITS`), and then multiplied by the extent. Subnormal coordinates and NaNs count as zero.

Linear filtering weights up to eight texels with integers that sum to 256: the weight of a slice along z is divided
along x, and each part along y; halves are rounded towards larger x and y. Texels of 8 and 16 bits are summed directly;
floats are aligned to the largest exponent of their slice, with four extra low bits. The two slices are added at the
largest exponent, rounded down to a multiple of four; lower bits are truncated. The mean is rounded to the format of the
texels, with halves away from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.formats.arrays import Numbers, is_masked_array
from warpfrag.machine.ir.actions import Geometry
from warpfrag.machine.ir.scalar_types import Codes

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

    `address` is one mode for all axes, or a sequence of one mode per axis or of three, whose extra modes are ignored.
    """
    modes = (address,) * MAX_AXES if isinstance(address, str) else address
    if not isinstance(modes, list | tuple) or len(modes) not in {axes, MAX_AXES}:
        raise InvalidOperand(f"expected one address mode, or one for each of the {axes} axes, got {quote(address)}")
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
    if not 1 <= axes <= MAX_AXES - layered or 0 in shape or (channels > 1 and array.shape[-1] != channels):
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
    in [0, 1], or in [-1, 1] if they are signed. With `layered`, the first axis counts layers; with two or four
    `channels`, the last axis counts channels. A launch uses the texels as they are when it starts.
    """

    def __init__(
        self,
        array: NDArray[Any],
        filter: Filter = "point",  # noqa: A002 (CUDA's name)
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
            raise InvalidOperand(f"linear filtering needs float texels or read='normalized', got {array.dtype}")
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

    Stores change the array in place. The axes are in the same order as in a `Texture`.
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


FRACTION = 8
"""The fraction bits of a texel position for linear filtering."""
TEXEL = 1 << FRACTION
COORDINATE_BITS = ((8192, 21), (65536, 22), (1 << 31, 23))
"""The fraction bits of normalized coordinates, by the largest extent of the texture."""
LONG_Z = 2049  # a larger z extent gives all axes 22 bits; measured from 3,000 on
SMALLEST_NORMAL = 2.0**-126
GUARD = 4  # the extra low bits that floats keep when they are aligned


class AxisPlace(NamedTuple):
    """The indices of the texels on both sides of each coordinate on one axis; `weight` is the second's, in 256ths."""

    before: Numbers
    after: Numbers
    weight: Numbers


# --- coordinates


def _values(codes: Codes) -> NDArray[np.float64]:
    """Return coordinates as numbers; NaNs and subnormals become zero."""
    bits = codes & np.uint32(0x7FFFFFFF)
    is_zero = (bits > np.uint32(0x7F800000)) | (bits < np.uint32(0x00800000))
    return np.where(is_zero, np.uint32(0), codes).view(np.float32).astype(np.float64)


def _coordinate_bits(texture: Texture, axis: int) -> int:
    """Return the fraction bits of normalized coordinates along x, y or z."""
    _, depth, height, width, _ = texture.texels.shape
    if depth > LONG_Z:
        return 22
    extent = max(width, height) if axis < 2 else depth
    return next(bits for limit, bits in COORDINATE_BITS if extent <= limit)


def _positions(texture: Texture, codes: Codes, axis: int, mode: AddressMode, *, fraction: int) -> Numbers:
    """Return coordinates in units of 2**-`fraction` texels, rounded down if `fraction` is 0, else to nearest."""
    values, extent = _values(codes), texture.texels.shape[3 - axis]
    if not texture.normalized:
        values = np.clip(values, -2.0 * extent - 2, 3.0 * extent + 2)
        return np.floor(values * 2.0**fraction + (0.5 if fraction else 0.0)).astype(np.int64)
    bits = _coordinate_bits(texture, axis)
    whole = np.floor(values * 2.0**bits)
    if mode in {"wrap", "mirror"}:  # both modes repeat after two extents
        whole = np.mod(np.where(np.isinf(whole), 0.0, whole), 2.0 ** (bits + 1))
    fixed = np.clip(whole, -(2.0 ** (bits + 1)), 3 * 2.0**bits).astype(np.int64)
    return (fixed * (extent << fraction) + ((1 << bits >> 1) if fraction else 0)) >> bits


def _addressed(index: Numbers, extent: int, mode: AddressMode) -> Numbers:
    """Apply an address mode to texel indices; -1 stands for the border."""
    if mode == "border":
        return np.where((index >= 0) & (index < extent), index, -1)
    if mode == "wrap":
        return index % extent
    if mode == "mirror":
        index = index % (2 * extent)
        return np.where(index >= extent, 2 * extent - 1 - index, index)
    return np.clip(index, 0, extent - 1)


def _axes(texture: Texture) -> list[tuple[int, AddressMode]]:
    """Return the extent and the address mode of each axis that the texture has, in the order x, y, z."""
    _, depth, height, width, _ = texture.texels.shape
    modes = texture.address if texture.normalized else (_UNNORMALIZED[mode] for mode in texture.address)
    return list(zip((width, height, depth), modes, strict=False))


_UNNORMALIZED: dict[AddressMode, AddressMode] = {
    "clamp": "clamp", "wrap": "clamp", "mirror": "clamp", "border": "border",
}  # fmt: skip
"""CUDA's replacements for address modes that require normalized coordinates."""


def _nearest(texture: Texture, axes: list[Codes]) -> list[Numbers]:
    """Return the indices of the texels that contain the coordinates."""
    return [
        _addressed(_positions(texture, codes, axis, mode, fraction=0), extent, mode)
        for axis, (codes, (extent, mode)) in enumerate(zip(axes, _axes(texture), strict=True))
    ]


def _around(texture: Texture, axes: list[Codes], *, gathers: bool = False) -> list[AxisPlace]:
    """Return the texels around each coordinate; at a clamped edge, only a gather reads a second texel."""
    places = []
    for axis, (codes, (extent, mode)) in enumerate(zip(axes, _axes(texture), strict=True)):
        position = _positions(texture, codes, axis, mode, fraction=FRACTION) - TEXEL // 2
        if mode == "clamp" and not gathers:
            position = np.clip(position, 0, (extent - 1) << FRACTION)
        index = position >> FRACTION
        places.append(AxisPlace(_addressed(index, extent, mode), _addressed(index + 1, extent, mode), position % TEXEL))
    return places


# --- texels


def _layer(texture: Texture, layers: Codes) -> Numbers:
    """Return layer indices, clamped to the last layer; negative indices count as large unsigned numbers."""
    return np.minimum(layers.astype(np.int64), texture.texels.shape[0] - 1)


def _fetch(texture: Texture, layer: Numbers, index: list[Numbers]) -> NDArray[Any]:
    """Return texels [lanes, channels]; indices outside the texture give the border colour."""
    x, y, z = (*index, *[np.zeros_like(layer)] * 2)[:3]
    values = texture.texels[layer, z, y, x]
    outside = (x < 0) | (y < 0) | (z < 0)
    return np.where(outside[:, None], texture.border_texel, values) if outside.any() else values


def _results(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return codes extended to four channels; missing channels are zero."""
    result = np.zeros((len(codes), 4), np.uint32)
    result[:, : codes.shape[1]] = codes
    return result


def _converted(texture: Texture, values: NDArray[Any]) -> NDArray[np.uint32]:
    """Convert texels to 32-bit codes: widen floats, extend integers, or normalize them to floats."""
    if values.dtype.kind == "f":
        return _widened(values)
    if texture.read == "element":
        return values.astype(np.int64).astype(np.uint32)
    return _quotient(values, int(np.iinfo(values.dtype).max))


def _widened(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Convert f16 to f32 codes, keeping signalling NaNs, which NumPy's cast keeps only on some processors."""
    if values.dtype == np.float32:
        return values.view(np.uint32)
    codes = values.view(np.uint16).astype(np.uint32)
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.float32).view(np.uint32)
    nans = (codes & 0x8000) << 16 | 0x7F800000 | (codes & 0x3FF) << 13
    return np.where(np.isnan(values), nans, numbers)


def _quotient(values: NDArray[Any], largest: int) -> NDArray[np.uint32]:
    return np.maximum(values / float(largest), -1.0).astype(np.float32).view(np.uint32)


# --- instructions


def sample(texture: Texture, layers: Codes, axes: list[Codes]) -> NDArray[np.uint32]:
    """tex at float coordinates: return texels [lanes, 4]."""
    layer = _layer(texture, layers)
    if texture.filter == "linear":
        return _results(_mean(_corners(texture, layer, _around(texture, axes))))
    return _results(_converted(texture, _fetch(texture, layer, _nearest(texture, axes))))


def fetch(texture: Texture, layers: Codes, axes: list[Codes]) -> NDArray[np.uint32]:
    """tex at integer coordinates: return texels [lanes, 4], with zeros outside in every address mode."""
    count, depth, height, width, _ = texture.texels.shape
    inside = layers < count
    index = []
    for codes, extent in zip(axes, (width, height, depth), strict=False):
        inside &= codes < extent  # unsigned: negative coordinates become large
        index.append(np.minimum(codes.astype(np.int64), extent - 1))
    texels = _fetch(texture, _layer(texture, layers), index)
    return np.where(inside[:, None], _results(_converted(texture, texels)), np.uint32(0))


def gather(texture: Texture, layers: Codes, axes: list[Codes], channel: int) -> NDArray[np.uint32]:
    """tld4: return one channel of the four texels that linear filtering would weight, as [lanes, 4].

    The texels are in OpenGL's order: counter-clockwise from the upper left, with y pointing upwards.
    """
    if channel >= texture.channels:
        return np.zeros((len(layers), 4), np.uint32)
    layer = _layer(texture, layers)
    x, y = _around(texture, axes, gathers=True)
    corners = ((x.before, y.after), (x.after, y.after), (x.after, y.before), (x.before, y.before))
    texels = np.stack([_fetch(texture, layer, list(corner))[:, channel] for corner in corners], axis=1)
    if texels.dtype.kind != "f" and texture.read == "element":
        return _converted(texture, texels)
    whole = np.full((len(layer), 1), TEXEL, np.int64)  # each texel is rounded in the same way as a mean
    return _mean([[Corner(whole, whole > 0, texels)]])


# --- linear filtering


class Corner(NamedTuple):
    """A texel around a coordinate: its weight, a mask of the lanes that read it, and its channels."""

    weight: Numbers  # [lanes, 1]
    is_read: NDArray[np.bool_]  # a texel that is read may still have a weight that rounds to 0
    texel: NDArray[Any]  # [lanes, channels]


def _mean(slices: list[list[Corner]]) -> NDArray[np.uint32]:
    """Return the mean of weighted texels as f32 codes."""
    dtype = slices[0][0].texel.dtype
    if dtype.kind == "f":
        return _float_mean(slices, dtype)
    total = np.zeros(slices[0][0].texel.shape, np.int64)
    for corner in (corner for corners in slices for corner in corners):
        total += corner.weight * corner.texel.astype(np.int64)
    if dtype == np.uint8:
        return _quotient((total * 257 + 128) >> 8, 0xFFFF)
    if dtype == np.int8:
        return _quotient((((total * 258) >> 5) + (total >> 12) + 4) >> 3, 0x7FFF)
    return _quotient((total + 128) >> 8, int(np.iinfo(dtype).max))


def _corners(texture: Texture, layer: Numbers, places: list[AxisPlace]) -> list[list[Corner]]:
    """Return the corners around the coordinates, in one list for each slice along z (one or two)."""
    zeros = np.zeros_like(layer)
    x, y, z = (*places, *[AxisPlace(zeros, zeros, zeros)] * 2)[:3]
    slices = []
    for depth, share in ((z.before, TEXEL - z.weight), (z.after, z.weight))[: 2 if len(places) == MAX_AXES else 1]:
        right = (x.weight * share + 128) >> 8
        left = share - right
        right_up, left_up = (right * y.weight + 128) >> 8, (left * y.weight + 127) >> 8
        corners = (
            (x.before, y.before, left - left_up, share > 0),
            (x.after, y.before, right - right_up, (share > 0) & (x.weight > 0)),
            (x.before, y.after, left_up, (share > 0) & (y.weight > 0)),
            (x.after, y.after, right_up, (share > 0) & (x.weight > 0) & (y.weight > 0)),
        )
        slices.append(
            [
                Corner(weight[:, None], is_read[:, None], _fetch(texture, layer, [column, line, depth][: len(places)]))
                for column, line, weight, is_read in corners
            ]
        )
    return slices


class SliceSum(NamedTuple):
    """A sum of weighted texels, as integers times 2**exponent with 12 extra low bits."""

    total: Numbers
    exponent: Numbers


def _slice_sum(corners: list[Corner], dropped: int) -> SliceSum:
    """Return the sum of a slice, whose texels are aligned to the largest exponent among those with nonzero weight."""
    codes = [corner.texel.astype(np.float32).view(np.uint32).astype(np.int64) for corner in corners]
    exponents = [code >> 23 & 0xFF for code in codes]
    largest = np.zeros_like(codes[0])
    for corner, exponent in zip(corners, exponents, strict=True):
        largest = np.maximum(largest, np.where(corner.weight > 0, exponent, 0))
    total = np.zeros_like(largest)
    for corner, code, exponent in zip(corners, codes, exponents, strict=True):
        mantissa = np.where(exponent > 0, code & 0x7FFFFF | 0x800000, 0) >> dropped
        aligned = (mantissa << GUARD) >> np.clip(largest - exponent, 0, 62)
        total += corner.weight * np.where(code >> 31 & 1, -aligned, aligned)
    return SliceSum(total, largest)


def _float_mean(slices: list[list[Corner]], dtype: np.dtype[Any]) -> NDArray[np.uint32]:
    """Return the mean of weighted float texels as f32 codes."""
    bits = 23 if dtype == np.float32 else 10
    sums = [_slice_sum(corners, 23 - bits) for corners in slices]
    exponent = np.maximum(sums[0].exponent, sums[-1].exponent)
    finer = exponent & 3
    total = np.zeros_like(exponent)
    for item in sums:
        total += (item.total << finer) >> np.minimum(exponent - item.exponent, 62)
    scale = exponent - 127 - bits - FRACTION - GUARD - finer
    corners = [corner for corners in slices for corner in corners]
    is_negative = np.logical_and.reduce([np.signbit(corner.texel) | (corner.weight == 0) for corner in corners])
    mean = _rounded(total, scale, bits) | ((total < 0) | is_negative).astype(np.uint32) << np.uint32(31)
    is_nan, infinity = _not_finite(corners)
    mean = np.where(infinity != 0, np.where(infinity > 0, np.uint32(0x7F800000), np.uint32(0xFF800000)), mean)
    return np.where(is_nan, np.uint32(0x7FFFFFFF if bits == 23 else 0x7FFFE000), mean)


def _not_finite(corners: list[Corner]) -> tuple[NDArray[np.bool_], Numbers]:
    """Return a mask of the means that are NaN, and the sign of infinite means (0 if finite)."""
    is_nan, plus, minus = (np.zeros(corners[0].texel.shape, np.bool_) for _ in range(3))
    for corner in corners:
        is_nan |= corner.is_read & np.isnan(corner.texel)
        plus |= corner.is_read & np.isposinf(corner.texel)
        minus |= corner.is_read & np.isneginf(corner.texel)
    return is_nan | (plus & minus), plus.astype(np.int64) - minus


def _rounded(total: Numbers, exponent: Numbers, bits: int) -> NDArray[np.uint32]:
    """Return |total| * 2**exponent rounded to f16, or to f32 without subnormals; ties round away from zero."""
    magnitude = np.abs(total)
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)  # exact below 2^53
    smallest = -14 - bits if bits == 10 else -200  # the exponent of a subnormal's lowest bit
    dropped = np.clip(np.maximum(length - 1 - bits, smallest - exponent), 0, 62)
    rounded = (magnitude + ((1 << dropped) >> 1)) >> dropped
    values = np.ldexp(rounded.astype(np.float64), (exponent + dropped).astype(np.int32))
    return np.where(values < SMALLEST_NORMAL, 0.0, values).astype(np.float32).view(np.uint32)
