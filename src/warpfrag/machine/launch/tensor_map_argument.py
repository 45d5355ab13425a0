"""TensorMap: an array and the boxes that a kernel copies, as created by `cuTensorMapEncodeTiled` and `...Im2col`.

Axes are in NumPy's order, innermost last; the driver's lists have the reverse order. `smem.tensor_map` describes the
128 bytes and their use.

    >>> import numpy as np
    >>> tiles = TensorMap(np.zeros((96, 128), np.float16), box=(16, 64), swizzle=128)
    >>> tiles
    TensorMap(float16[96, 128], box=(16, 64), swizzle=128)
    >>> tiles.box_bytes, tiles.memory()
    (2048, Memory(pitch=128, swizzle=128))
    >>> TensorMap(np.zeros((96, 100), np.float16), box=(16, 128), swizzle=128).problems()
    ['expected strides below 2**40, multiples of 16 bytes, got 200 along axis 0', \
'with swizzle 128, expected at most 128 bytes, got 256']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.host_arrays import as_bytes, as_host_array
from warpfrag.smem import tensor_map
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import SWIZZLES, Memory

NO_ADDRESS = 0  # a placeholder for the address, with any alignment that the driver requires
CORE_ROWS = 8  # the number of matrix rows per descriptor stride


class TensorMap:
    """A tensor in global memory and the box that one copy moves; an argument of `Kernel.launch`.

    `box` has the extents of the box. `dims` and `strides` (in bytes, for every axis; the innermost is the size of an
    element) default to those of the array. `swizzle` is 0, 32, 64 or 128 bytes. `fill`, "zero" or "nan", is loaded for
    elements outside the tensor. `dtype` is the element type, named as in NumPy and ml_dtypes, or "tfloat32",
    "float32_ftz" and "tfloat32_ftz".

    `interleave` is 16 or 32 if channels are stored in slices of 16 or 32 bytes. The array then has axes for the image,
    the slice, (depth, height,) width and the channels in a slice, and the map has all of these except the last. A copy
    always moves one slice. The driver requires a width whose elements fill a multiple of 16 bytes.

    For convolutions over an array of images with channels last, `box` is an `Im2col` with its axes in NumPy's order
    (depth, height, width). A copy moves `channels` channels of `pixels` pixels, or with `interleave` one slice of
    channels per pixel.

    A kernel takes a map by value, in a parameter of 128 bytes, or by address. For a map over a `DeviceArray`,
    `bytes(map)` also works outside a launch, so that you can store the map in your own constant or global memory. The
    bytes are those that the driver writes for an H200; `from_bytes` decodes them.
    """

    def __init__(
        self,
        array: object,
        box: Sequence[int] | tensor_map.Im2col,
        swizzle: int = 0,
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        element_strides: Sequence[int] | None = None,
        fill: tensor_map.Fill = "zero",
        dtype: str | None = None,
        interleave: int = 0,
    ) -> None:
        """Create a map; `problems` lists the reasons why the driver would reject it."""
        self.array: object = array
        host = array.array if isinstance(array, DeviceArray) else as_host_array(array, "the array of a tensor map")
        if host is None:
            raise InvalidOperand(f"expected an array for a tensor map, got {quote(array)}")
        _check_choice("interleave", interleave, tensor_map.INTERLEAVES)
        shape, pitches, element = _tensor(array, host, dims, strides, dtype, interleave)
        rank = len(shape)
        extents = [1] * rank if isinstance(box, tensor_map.Im2col) else _numbers("box", box, rank)
        steps = [1] * rank if element_strides is None else _numbers("element_strides", element_strides, rank)
        _check_choice("swizzle", swizzle, tuple(SWIZZLES))
        _check_choice("fill", fill, tensor_map.FILLS)
        address = array.address if isinstance(array, DeviceArray) else NO_ADDRESS
        self.fields = tensor_map.TensorMapFields(
            element, address, tuple(shape[::-1]), tuple(pitches[-2::-1]), tuple(extents[::-1]), tuple(steps[::-1]),
            swizzle, fill, interleave, _columns(box, rank) if isinstance(box, tensor_map.Im2col) else None,
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> TensorMap:
        """Decode the driver's 128 bytes; the map has an address but no array.

        >>> from warpfrag.machine.launch.device_array import DeviceArray
        >>> data = bytes(TensorMap(DeviceArray(np.zeros((96, 128), np.float16)), box=(16, 64), swizzle=128))
        >>> TensorMap.from_bytes(data)
        TensorMap(float16[96, 128], box=(16, 64), swizzle=128)
        """
        is_map = isinstance(data, bytes | bytearray | memoryview) and len(data) == tensor_map.MAP_BYTES
        fields = tensor_map.TensorMapFields.decode(bytes(data)) if is_map else None
        if fields is None:
            raise InvalidOperand(f"expected the {tensor_map.MAP_BYTES} bytes of a tensor map, got {quote(data)}")
        result = cls.__new__(cls)
        result.array, result.fields = None, fields
        return result

    def __repr__(self) -> str:
        """Format the array and the options that differ from the defaults."""
        fields = self.fields
        shape = ", ".join(map(str, fields.dims[::-1]))
        parts = [f"{fields.element.name}[{shape}]"]
        if fields.im2col is None:
            parts.append(f"box={fields.box[::-1]}")
        else:
            kind = fields.im2col
            parts.append(f"im2col: lower={kind.lower[::-1]}, upper={kind.upper[::-1]}")
            parts.append(f"channels={kind.channels}, pixels={kind.pixels}")
        parts += [f"swizzle={fields.swizzle}"] if fields.swizzle else []
        parts += [f"fill={fields.fill!r}"] if fields.fill != "zero" else []
        parts += [f"interleave={fields.interleave}"] if fields.interleave else []
        return f"TensorMap({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks: the box that a copy moves, and its layout in shared memory."""
        from warpfrag.html import card, escape, table

        fields = self.fields
        facts = [
            ("tensor", f"{fields.element.name}, {' x '.join(map(str, fields.dims[::-1]))}"),
            ("strides", ", ".join(f"{stride} bytes" for stride in fields.strides[::-1]) or "none"),
            ("box", f"{' x '.join(map(str, fields.box_shape[::-1]))} elements, {fields.box_bytes} bytes"),
            ("swizzle", f"{fields.swizzle} bytes" if fields.swizzle else "none"),
            ("outside", fields.fill),
            ("problems", "; ".join(self.problems()) or "none"),
        ]
        return card(f"<code>{escape(repr(self))}</code>", table(("field", "value"), facts))

    def __bytes__(self) -> bytes:
        """Return the 128 bytes of a map over a DeviceArray."""
        if self.array is not None and not isinstance(self.array, DeviceArray):
            raise InvalidOperand(f"{self!r} has no address before a launch: create it over a DeviceArray")
        return self.fields.encode()

    @property
    def box_bytes(self) -> int:
        """The size of the box in bytes, which a copy reports to its mbarrier."""
        return self.fields.box_bytes

    def problems(self) -> list[str]:
        """Return the reasons why the driver would reject the map, with the expected values."""
        return self.fields.problems()

    def memory(self, start: int = 0) -> Memory:
        """Return the shared-memory layout of a box, as a matrix whose rows run along the innermost axis.

        With `interleave`, a row is the copied part of one line of pixels, one slice of channels after the other.
        """
        return Memory(order="row", pitch=self.fields.shared_pitch, swizzle=self.fields.swizzle, start=start)

    def descriptor(self, start: int = 0) -> Descriptor:
        """Return the wgmma descriptor of a box in shared memory, with the innermost axis along K."""
        row = self.fields.box_shape[0] * self.fields.element.bytes
        if row != (self.fields.swizzle or tensor_map.GRANULE):
            expected = self.fields.swizzle or tensor_map.GRANULE
            raise InvalidOperand(f"expected a box with rows of {expected} bytes, the width of its swizzle; got {row}")
        return Descriptor(start=start, stride=CORE_ROWS * row, swizzle=self.fields.swizzle)

    def encode(self, address: int) -> bytes:
        """Return the 128 bytes of the map for an array at an address; raise InvalidOperand for an invalid map.

        A map is invalid if the driver would reject it (`problems`).
        """
        fields = replace(self.fields, address=_numbers("address", [address], 1)[0])
        problems = fields.problems()
        if problems:
            raise InvalidOperand(f"the driver would reject {self!r}: {'; '.join(problems)}")
        return fields.encode()


def _tensor(
    array: object,
    host: NDArray[Any],
    dims: Sequence[int] | None,
    strides: Sequence[int] | None,
    dtype: str | None,
    interleave: int,
) -> tuple[list[int], list[int], tensor_map.TensorElement]:
    """Return the tensor's extents, strides in bytes and element type, in NumPy's order; check the array's bounds.

    The innermost stride is the element size, or with `interleave` the size of a pixel's channel slice.
    """
    name = host.dtype.name if dtype is None else dtype
    element = tensor_map.ELEMENT_TYPES.get(tensor_map.SAME_BYTES.get(name, name)) if isinstance(name, str) else None
    if element is None:
        known = ", ".join(tensor_map.ELEMENT_TYPES)
        raise InvalidOperand(f"expected dtype {known}, or one of the same width (int8, float8_*); got {quote(name)}")
    if dims is None and element.bytes != host.dtype.itemsize:
        raise InvalidOperand(
            f"expected elements of {host.dtype.itemsize} bytes, as in the array, got {element.name}; pass dims too"
        )
    shape = (
        list(host.shape) if dims is None else _numbers("dims", dims, len(dims) if isinstance(dims, Sequence) else -1)
    )
    inner = interleave or element.bytes
    if dims is None and interleave:
        if not shape or shape[-1] * element.bytes != interleave:
            last = shape[-1] * element.bytes if shape else 0
            raise InvalidOperand(f"expected a last axis of {interleave} bytes (the channels of a slice), got {last}")
        shape = shape[:-1]
    if not 1 <= len(shape) <= 5:
        raise InvalidOperand(f"expected an array of one to five axes, got {len(shape)}")
    dense = [inner] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        dense[axis] = dense[axis + 1] * shape[axis + 1]
    pitches = dense if strides is None else _numbers("strides", strides, len(shape))
    if pitches[-1] != inner:
        label = "a slice" if interleave else "an element"
        raise InvalidOperand(f"expected an innermost stride of {inner} bytes, the size of {label}; got {pitches[-1]}")
    if not isinstance(array, DeviceArray):
        as_bytes(array, "the array of a tensor map")  # raises an error for an array that is not contiguous
    reach = sum((extent - 1) * pitch for extent, pitch in zip(shape, pitches, strict=True)) + inner
    if min(shape) > 0 and reach > host.nbytes:
        raise InvalidOperand(f"expected a tensor within the array of {host.nbytes} bytes, got one of {reach} bytes")
    return shape, pitches, element


def _columns(box: tensor_map.Im2col, rank: int) -> tensor_map.Im2col:
    """Return a validated im2col box in the driver's order, innermost axis first."""
    lower, upper = (_numbers(name, getattr(box, name), max(0, rank - 2)) for name in ("lower", "upper"))
    channels, pixels = (_numbers(name, [getattr(box, name)], 1)[0] for name in ("channels", "pixels"))
    return tensor_map.Im2col(tuple(lower[::-1]), tuple(upper[::-1]), channels, pixels)


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise InvalidOperand unless a value is one of the choices."""
    if type(value) not in {int, str} or value not in choices:
        raise InvalidOperand(f"expected {name} to be one of {', '.join(map(str, choices))}, got {quote(value)}")


def _numbers(name: str, values: object, count: int) -> list[int]:
    """Return `values` as a list of exactly `count` integers; raise InvalidOperand otherwise."""
    items = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else []
    numbers = [int(value) for value in items if isinstance(value, int | np.integer) and not isinstance(value, bool)]
    if len(numbers) != count or len(items) != count:
        raise InvalidOperand(f"expected {name} to be {count} integers, one for each axis, got {quote(values)}")
    return numbers
