"""Tensor maps: 128 bytes that tell the TMA unit how a tensor is stored in global memory.

**In a sentence.** A map has the tensor's address, extents and strides, and a *box*: the part that one instruction moves
between global memory, where it is strided, and shared memory, where it is dense and may be swizzled.

**A small case.** An f16 matrix with 128 columns, and boxes of 16 rows and 64 columns: a copy at the coordinates (column
64, row 32) moves 16 rows of 128 bytes. They are 256 bytes apart in global memory and adjacent in shared memory.

**Order of axes.** The driver, the hardware and this module count axes from the innermost, which has no stride because
its elements are adjacent. `machine.launch.tensor_map_argument.TensorMap` uses NumPy's order.

**Outside.** Loads fill the elements of a box that are outside the tensor, and stores skip them. Along the innermost
axis, however, whole 16-byte units are stored, so data after the tensor's end in its last unit is overwritten (measured
on an H200). A copy signals the bytes of the whole box to its mbarrier, filled or not.

**im2col.** The tensor is a batch of images (channels innermost, then width, height, depth, then the image). A column of
pixels starts at the given coordinates and continues along the width, the height and the batch, inside a bounding box
that two corners define in every image. Offsets, which correspond to a filter tap, then move all pixels by the same
distance.

**Interleaved.** With `interleave` 16 or 32, channels are stored in slices of that many bytes (for f16, NC/8HWC8 is 16),
and coordinates address the slice of a pixel. The axes are the width, optionally the height and depth, the slices, and
the image. The innermost index counts units of 16 or 32 bytes for any type, and a box always has one slice, whatever its
field contains. im2col traverses the axes before the slices. (Measured on an H200.)

**The 128 bytes** are opaque to programs. `FIELDS` has the bits that `cuTensorMapEncodeTiled` of driver 580 writes for
an H200, derived from 708 of its maps, and those of `cuTensorMapEncodeIm2col`, derived from 763: the channels are the
innermost extent of the box, and the corners share the bits of the other extents. (PTX ISA, "Tensors" and
"tensormap.replace"; CUDA Driver API, "Tensor Map Object Management".)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

from warpfrag.smem.shared_memory import SWIZZLES, swizzled

if TYPE_CHECKING:
    from warpfrag.formats.arrays import Mask, Numbers

DRIVER = "CUDA Driver API, cuTensorMapEncodeTiled"
MAP_BYTES = 128
MAP_ALIGN = 64
GRANULE = 16  # the number of bytes that the copy engine moves at a time
MAX_RANK = 5
MAX_BOX = 256
MAX_PIXELS = 1024
MAX_BOX_BYTES = 228 * 1024  # the largest box in bytes
CORNERS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}  # the largest distance of im2col's corners, by number of axes
MAX_ELEMENT_STRIDE = 8
MAX_EXTENT = 1 << 32
MAX_SIGNED = 1 << 31
MAX_STRIDE = 1 << 40
SHARED_ALIGN = 128
INTERLEAVES = (0, 16, 32)
L2_PROMOTIONS = (0, 64, 128, 256)
Fill = Literal["zero", "nan"]
FILLS: tuple[Fill, ...] = ("zero", "nan")


class TensorElement(NamedTuple):
    """A tensor element type: its name, size in bytes, number for tensormap.replace, and NaN code for filling.

    `code` is the type's number in a map if that differs: the tfloat32 types are the float32 types with a bit set.
    """

    name: str
    bytes: int
    number: int
    nan: int | None = None  # None if the type cannot be filled with NaN
    format: str = ""  # the name of the format in reductions
    sign: str = "u"
    code: int | None = None
    source: str = DRIVER

    @property
    def map_code(self) -> int:
        """The type's number in a map."""
        return self.number if self.code is None else self.code


ELEMENT_TYPES = {
    row.name: row
    for row in (
        TensorElement("uint8", 1, 0, format="u8"),
        TensorElement("uint16", 2, 1, format="u16"),
        TensorElement("uint32", 4, 2, format="u32"),
        TensorElement("int32", 4, 3, format="s32", sign="s"),
        TensorElement("uint64", 8, 4, format="u64"),
        TensorElement("int64", 8, 5, format="s64", sign="s"),
        TensorElement("float16", 2, 6, 0x7FF7, "f16", "f"),
        TensorElement("float32", 4, 7, 0x7FF77FF7, "f32", "f"),
        TensorElement("float32_ftz", 4, 8, 0x7FF77FF7, "f32", "f"),
        TensorElement("float64", 8, 9, 0x7FF77FF77FF77FF7, "f64", "f"),
        TensorElement("bfloat16", 2, 10, 0x7FF7, "bf16", "f"),
        TensorElement("tfloat32", 4, 11, 0x7FF77FF7, "tf32", "f", 16 + 7),
        TensorElement("tfloat32_ftz", 4, 12, 0x7FF77FF7, "tf32", "f", 16 + 8),
    )
}
TYPES_BY_NUMBER = {row.number: row for row in ELEMENT_TYPES.values()}
TYPES_BY_CODE = {row.map_code: row for row in ELEMENT_TYPES.values()}
DRIVER_TYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16", "float32_ftz",
    "tfloat32", "tfloat32_ftz",
)  # fmt: skip
"""The element types by their number in CUtensorMapDataType."""
SAME_BYTES = {
    "int8": "uint8", "bool": "uint8", "int16": "uint16",
    **dict.fromkeys((
        "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz",
        "float8_e3m4", "float8_e8m0fnu",
    ), "uint8"),
}  # fmt: skip
"""NumPy and ml_dtypes dtypes that are copied like a listed type of the same size."""
SWIZZLE_NUMBERS = tuple(SWIZZLES)  # tensormap.replace numbers them 0 to 3
SWIZZLE_BITS = (1, 16, 32, 64)  # a second encoding, which every map contains as well


@dataclass(frozen=True)
class Im2col:
    """The im2col part of a map, which replaces the box: the corners of the bounding box and the size of a column.

    `lower` and `upper` have a number for each axis between the channels and the batch: the start of the bounding box,
    and the distance of its end from the end of the image. The fields of a map have the innermost axis first.
    """

    lower: Sequence[int]
    upper: Sequence[int]
    channels: int
    pixels: int


@dataclass(frozen=True)
class TensorMapFields:
    """The fields of a tensor map, innermost axis first; `strides`, in bytes, begin with the second axis."""

    element: TensorElement
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 0
    fill: Fill = "zero"
    interleave: int = 0
    im2col: Im2col | None = None
    l2_promotion: int = 0  # in bytes; it does not affect results

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def pitches(self) -> tuple[int, ...]:
        """The stride of every axis in bytes."""
        return self.interleave or self.element.bytes, *self.strides

    @property
    def elements_per_index(self) -> int:
        """The number of elements per index of the innermost axis: one, or all elements of a pixel's slice."""
        return self.pitches[0] // self.element.bytes

    @property
    def fixed_axis(self) -> int:
        """The axis that im2col does not traverse: that of the channels, or of their slices."""
        return self.rank - 2 if self.interleave else 0

    @property
    def steps(self) -> tuple[int, ...]:
        """The element strides of a box; the innermost one has an effect only with interleave."""
        return self.element_strides if self.interleave else (1, *self.element_strides[1:])

    @property
    def box_indices(self) -> tuple[int, ...]:
        """The number of indices along each axis of a box, after element strides; an interleaved box has one slice."""
        counts = [-(-extent // max(1, step)) for extent, step in zip(self.box, self.steps, strict=True)]
        if self.interleave:
            counts[self.fixed_axis] = 1
        return tuple(counts)

    @property
    def box_shape(self) -> tuple[int, ...]:
        """The number of elements of a box along each axis."""
        if self.im2col is not None:
            return self.elements_per_index if self.interleave else self.im2col.channels, self.im2col.pixels
        inner, *outer = self.box_indices
        return inner * self.elements_per_index, *outer

    @property
    def shared_pitch(self) -> int:
        """The distance between the rows of a box in shared memory: the row size, but at least the swizzle size.

        This was measured on an H200.
        """
        row = self.box_shape[0] * self.element.bytes
        return row if self.interleave else max(row, self.swizzle)

    @property
    def shared_bytes(self) -> int:
        """The number of shared-memory bytes that a box spans, including gaps between rows."""
        row = self.box_shape[0] * self.element.bytes
        return (self.box_bytes // max(1, row) - 1) * self.shared_pitch + row

    @property
    def box_bytes(self) -> int:
        """The number of bytes that a copy of the box signals to its mbarrier."""
        return self.element.bytes * prod(self.box_shape)

    @property
    def counted_bytes(self) -> int:
        """The byte count of a box as the driver computes it: extent / stride is rounded down (by the hardware, up)."""
        if self.im2col is not None:
            return self.im2col.channels * self.im2col.pixels * self.element.bytes
        steps = zip(self.box, self.element_strides, strict=True)
        return prod(extent // max(1, step) for extent, step in steps) * self.element.bytes

    def problems(self) -> list[str]:
        """Return the fields that the driver rejects, each with the expected value."""
        return [check.text for check in (*_tensor_checks(self), *_box_checks(self)) if not check.holds]

    # --- the bytes

    def encode(self) -> bytes:
        """Return the 128 bytes that the driver writes for the map."""
        swizzle = SWIZZLE_NUMBERS.index(self.swizzle)
        values = {
            "element": (self.element.map_code,),
            "rank": (self.rank - 1,),
            "interleave": (INTERLEAVES.index(self.interleave),),
            "swizzle": (swizzle,),
            "swizzle_bits": (SWIZZLE_BITS[swizzle],),
            "fill": (FILLS.index(self.fill),),
            "l2_promotion": (L2_PROMOTIONS.index(self.l2_promotion),),
            "element_strides": tuple(step - 1 for step in self.element_strides),
            "box": tuple(extent - 1 for extent in self.box) if self.im2col is None else (self.im2col.channels - 1,),
            "counted_bytes": (self.counted_bytes,),
            "dims": tuple(extent - 1 for extent in self.dims),
            "strides": tuple(stride // GRANULE for stride in self.strides),
            "address": (self.address,),
            "is_im2col": (int(self.im2col is not None),),
        }
        if self.im2col is not None:
            corners = self.im2col.lower, self.im2col.upper
            values |= {f"{side}{self.rank}": tuple(row) for side, row in zip(("lower", "upper"), corners, strict=True)}
            values["pixels"] = (self.im2col.pixels - 1,)
        word = 0
        for name, numbers in values.items():
            for axis, number in enumerate(numbers):
                word = FIELDS[name].write(word, axis, number)
        return word.to_bytes(MAP_BYTES, "little")

    @staticmethod
    def decode(data: bytes) -> TensorMapFields | None:
        """Decode 128 bytes as a map, or return None if they are not one."""
        word = int.from_bytes(data, "little")
        numbers = {name: field.read(word) for name, field in FIELDS.items()}
        (element,), (last_axis,) = numbers["element"], numbers["rank"]
        (interleave,) = numbers["interleave"]
        if element not in TYPES_BY_CODE or last_axis >= MAX_RANK or interleave >= len(INTERLEAVES):
            return None
        rank = last_axis + 1
        steps, box, dims = (
            tuple(1 + number for number in numbers[name][:rank]) for name in ("element_strides", "box", "dims")
        )
        column = None
        if numbers["is_im2col"][0]:
            if rank not in CORNERS:
                return None
            limit = CORNERS[rank]
            corners = (numbers[f"{side}{rank}"] for side in ("lower", "upper"))
            lower, upper = (tuple((number ^ limit) - limit for number in row) for row in corners)
            column, box = Im2col(lower, upper, box[0], numbers["pixels"][0] + 1), (1,) * rank
        return TensorMapFields(
            TYPES_BY_CODE[element], numbers["address"][0], dims,
            tuple(GRANULE * stride for stride in numbers["strides"][: rank - 1]), box, steps,
            SWIZZLE_NUMBERS[numbers["swizzle"][0]], FILLS[numbers["fill"][0]], INTERLEAVES[interleave],
            column,
            L2_PROMOTIONS[numbers["l2_promotion"][0]],
        )  # fmt: skip

    # --- positions of elements

    def elements(self, coordinates: tuple[int, ...], offsets: tuple[int, ...] = ()) -> tuple[Numbers, Mask]:
        """Return each box element's byte offset in the tensor, and a mask of the elements inside the tensor.

        Both arrays have the axes of `box_shape`, outermost first. `offsets` move the pixels of im2col.
        """
        if self.im2col is not None:
            return self._pixels(self.im2col, coordinates, offsets)
        import numpy as np

        shape = self.box_shape
        place, inside = np.zeros((1,) * self.rank, np.int64), np.ones((1,) * self.rank, np.bool_)
        for axis, (start, count, step) in enumerate(zip(coordinates, self.box_indices, self.steps, strict=True)):
            index = start + np.arange(count, dtype=np.int64) * step
            offset = index * self.pitches[axis]
            if axis == 0:
                offset = (offset[:, None] + self._parts()).reshape(-1)
                index = np.repeat(index, self.elements_per_index)
            behind = (-1,) + (1,) * axis
            place = place + offset.reshape(behind)
            inside = inside & ((index >= 0) & (index < self.dims[axis])).reshape(behind)
        return np.broadcast_to(place, shape[::-1]), np.broadcast_to(inside, shape[::-1])

    def _parts(self) -> Numbers:
        """Return the byte offsets of the elements at one index of the innermost axis."""
        import numpy as np

        return np.arange(self.elements_per_index, dtype=np.int64) * self.element.bytes

    def _pixels(self, kind: Im2col, coordinates: tuple[int, ...], offsets: tuple[int, ...]) -> tuple[Numbers, Mask]:
        """Return the byte offsets of a column of pixels, [pixels, channels], and a mask of those inside the tensor."""
        import numpy as np

        spatial, fixed = self.rank - 2, self.fixed_axis
        dims, steps, position, pitches = (
            [number for axis, number in enumerate(numbers) if axis != fixed]
            for numbers in (self.dims, self.element_strides, coordinates, self.pitches)
        )
        bounds = [(low, extent - 1 + up) for low, up, extent in zip(kind.lower, kind.upper, dims, strict=False)]
        pixels = []
        for _ in range(kind.pixels):
            pixels.append([at + move for at, move in zip(position, (*(offsets or (0,) * spatial), 0), strict=True)])
            for axis in range(spatial):
                position[axis] += steps[axis]
                if position[axis] <= bounds[axis][1]:
                    break
                position[axis] = bounds[axis][0]
            else:
                position[-1] += steps[-1]
        index = np.array(pixels, np.int64)
        inside: Mask = np.all((index >= 0) & (index < np.array(dims)), axis=1)
        places = (index * np.array(pitches)).sum(axis=1)
        channel = coordinates[fixed] + np.arange(1 if self.interleave else kind.channels, dtype=np.int64)
        own = (channel * self.pitches[fixed])[:, None] + self._parts()
        is_channel = np.repeat((channel >= 0) & (channel < self.dims[fixed]), self.elements_per_index)
        return places[:, None] + own.reshape(-1), inside[:, None] & is_channel

    def shared_units(self, address: int) -> Numbers:
        """Return the shared-memory offset of each 16-byte unit of a dense box, relative to the box."""
        import numpy as np

        per_row = self.box_shape[0] * self.element.bytes // GRANULE
        unit = np.arange(-(-self.box_bytes // GRANULE), dtype=np.int64)
        return swizzled(address + unit // per_row * self.shared_pitch + unit % per_row * GRANULE, self.swizzle)


class BitRange(NamedTuple):
    """The bits of a map that store one number per axis, or part of each number; `first` is the first bit for axis 0."""

    first: int
    bits: int

    def at(self, axis: int) -> int:
        """Return the first bit of the number for an axis."""
        return self.first + self.bits * axis


class MapField(NamedTuple):
    """A field of a tensor map: the count of its numbers, and the bit ranges of each number, lowest bits first."""

    numbers: int
    ranges: tuple[BitRange, ...]

    def read(self, word: int) -> tuple[int, ...]:
        """Return the field's numbers, one per axis; `word` is the whole map as an integer."""
        return tuple(self._read_axis(word, axis) for axis in range(self.numbers))

    def _read_axis(self, word: int, axis: int) -> int:
        """Return the field's number for one axis."""
        number = shift = 0
        for part in self.ranges:
            number |= (word >> part.at(axis) & ((1 << part.bits) - 1)) << shift
            shift += part.bits
        return number

    def write(self, word: int, axis: int, number: int) -> int:
        """Return the map, as an integer, with the field's number for one axis replaced."""
        for part in self.ranges:
            mask = (1 << part.bits) - 1
            word = word & ~(mask << part.at(axis)) | (number & mask) << part.at(axis)
            number >>= part.bits
        return word


FIELDS = {
    "address": MapField(1, (BitRange(0, 64),)),
    "rank": MapField(1, (BitRange(68, 3),)),
    "element": MapField(1, (BitRange(71, 4), BitRange(80, 1))),
    "interleave": MapField(1, (BitRange(75, 2),)),
    "swizzle": MapField(1, (BitRange(77, 2),)),
    "fill": MapField(1, (BitRange(79, 1),)),
    "l2_promotion": MapField(1, (BitRange(81, 2),)),
    "strides": MapField(4, (BitRange(96, 32), BitRange(224, 4))),  # in units of 16 bytes
    "dims": MapField(5, (BitRange(256, 32),)),
    "element_strides": MapField(5, (BitRange(416, 3),)),
    "box": MapField(5, (BitRange(440, 8),)),
    "counted_bytes": MapField(1, (BitRange(512, 32),)),
    "swizzle_bits": MapField(1, (BitRange(580, 7),)),
    "is_im2col": MapField(1, (BitRange(64, 1),)),
    **{
        f"{side}{rank}": MapField(rank - 2, (BitRange(first, bits),))
        for side, first in (("lower", 448), ("upper", 464))
        for rank, bits in ((3, 16), (4, 8), (5, 5))
    },
    "pixels": MapField(1, (BitRange(480, 16),)),
}
"""The fields of a map by name. `swizzle_bits` and `counted_bytes` are redundant, so `decode` ignores them."""


class Replaced(NamedTuple):
    """A field that tensormap.replace can change: its name in the map, the width of the new value, and its offset."""

    field: str
    bits: int
    bias: int = 0
    choices: int = 0  # the exclusive upper limit, or 0
    has_axis: bool = False
    unit: int = 1


REPLACED = {
    "global_address": Replaced("address", 64),
    "rank": Replaced("rank", 32, choices=MAX_RANK),
    "box_dim": Replaced("box", 32, 1, has_axis=True),
    "global_dim": Replaced("dims", 32, 1, has_axis=True),
    "global_stride": Replaced("strides", 64, has_axis=True, unit=GRANULE),
    "element_stride": Replaced("element_strides", 32, 1, has_axis=True),
    "elemtype": Replaced("element", 32, choices=len(ELEMENT_TYPES)),
    "interleave_layout": Replaced("interleave", 32, choices=len(INTERLEAVES)),
    "swizzle_mode": Replaced("swizzle", 32, choices=len(SWIZZLE_NUMBERS)),
    "fill_mode": Replaced("fill", 32, choices=len(FILLS)),
}
"""The fields that tensormap.replace can change; it takes the number of axes minus one as the rank."""


def replace_field(data: bytes, name: str, number: int, axis: int = 0) -> bytes:
    """Return a map's bytes after tensormap.replace has changed a field; raise ValueError for an invalid value."""
    row = REPLACED[name]
    field = FIELDS[row.field]
    if not 0 <= axis < field.numbers:
        raise ValueError(f"{name}: expected an axis in 0..{field.numbers - 1}, got {axis}")
    if row.choices and number >= row.choices:
        raise ValueError(f"{name}: expected a value in 0..{row.choices - 1}, got {number}")
    if number % row.unit:
        raise ValueError(f"expected {name} to be a multiple of {row.unit}, got {number}")
    if name == "elemtype":
        number = TYPES_BY_NUMBER[number].map_code
    word = field.write(int.from_bytes(data, "little"), axis, (number - row.bias) // row.unit)
    return word.to_bytes(MAP_BYTES, "little")


class DriverCheck(NamedTuple):
    """One of the driver's checks: its result, and the message for a map that fails it."""

    holds: bool
    text: str


def _tensor_checks(fields: TensorMapFields) -> Iterator[DriverCheck]:
    """Yield the checks that concern the tensor itself."""
    rank = fields.rank
    fewest = 3 if fields.im2col is not None or fields.interleave else 1
    yield DriverCheck(fewest <= rank <= MAX_RANK, f"expected {fewest} to {MAX_RANK} axes, got {rank}")
    align = 32 if fields.interleave == 32 else GRANULE
    yield DriverCheck(
        fields.address % align == 0, f"expected an address that is a multiple of {align}, got {fields.address:#x}"
    )
    for axis, extent in enumerate(fields.dims):
        where = f"along axis {rank - 1 - axis}"
        yield DriverCheck(1 <= extent <= MAX_EXTENT, f"expected extents from 1 to 2**32, got {extent} {where}")
    for axis, stride in enumerate(fields.strides, 1):
        text = f"expected strides below 2**40, multiples of {align} bytes, got {stride} along axis {rank - 1 - axis}"
        yield DriverCheck(stride % align == 0 and 0 <= stride < MAX_STRIDE, text)
    for axis, step in enumerate(fields.element_strides):
        text = f"expected element strides from 1 to {MAX_ELEMENT_STRIDE}, got {step} along axis {rank - 1 - axis}"
        yield DriverCheck(1 <= step <= MAX_ELEMENT_STRIDE, text)
    is_filled = fields.fill == "zero" or fields.element.nan is not None
    yield DriverCheck(is_filled, f"expected floating-point elements for a NaN fill, got {fields.element.name}")


def _box_checks(fields: TensorMapFields) -> Iterator[DriverCheck]:
    """Yield the checks that concern the box of a copy."""
    kind, rank = fields.im2col, fields.rank
    if kind is None:
        for axis, extent in enumerate(fields.box):
            text = f"expected 1 to {MAX_BOX} elements in a box, got {extent} along axis {rank - 1 - axis}"
            yield DriverCheck(1 <= extent <= MAX_BOX, text)
    else:
        limit = CORNERS.get(rank, 1)
        for corner in (*kind.lower, *kind.upper):
            text = f"with {rank} axes, expected corners from {-limit} to {limit - 1}, got {corner}"
            yield DriverCheck(-limit <= corner < limit, text)
        extents = fields.dims[:-2] if fields.interleave else fields.dims[1:-1]
        for low, up, extent in zip(kind.lower, kind.upper, extents, strict=False):
            end = (extent + up + MAX_SIGNED) % MAX_EXTENT - MAX_SIGNED  # the driver adds these as 32-bit numbers
            yield DriverCheck(low < end, f"expected a bounding box that is not empty, got pixels {low} to {end - 1}")
        yield DriverCheck(1 <= kind.channels <= MAX_BOX, f"expected 1 to {MAX_BOX} channels, got {kind.channels}")
        yield DriverCheck(1 <= kind.pixels <= MAX_PIXELS, f"expected 1 to {MAX_PIXELS} pixels, got {kind.pixels}")
    inner = (fields.box[0] if kind is None else kind.channels) * fields.element.bytes
    text = f"expected an innermost box extent that is a multiple of {GRANULE} bytes, got {inner}"
    yield DriverCheck(inner % GRANULE == 0, text)
    if fields.swizzle and not fields.interleave:
        text = f"with swizzle {fields.swizzle}, expected at most {fields.swizzle} bytes, got {inner}"
        yield DriverCheck(inner <= fields.swizzle, text)
    counted = fields.counted_bytes
    yield DriverCheck(counted <= MAX_BOX_BYTES, f"expected a box of at most {MAX_BOX_BYTES} bytes, got {counted}")
