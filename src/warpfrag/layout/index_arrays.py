"""numpy: an index array for each coordinate, with an axis for each input.

`matrix[rows, cols]` is then the fragment: the element in each lane, register and slot. Index arrays from any source (a
kernel that writes its coordinates, a table in a paper) can be read if they form a layout.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> small = Layout.parse(dict(row=2, col=2), lane="r1", slot="c1")
    >>> {name: array.tolist() for name, array in small.to("numpy").items()}
    {'row': [[[0, 0]], [[1, 1]]], 'col': [[[0, 1]], [[0, 1]]]}
    >>> Layout.read("numpy", small.to("numpy")) == small
    True
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.axes import MAX_SIZE, Axis
from warpfrag.layout.coordinates import REGISTERS
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.thread_layout import shape_of

Indices = NDArray[np.intp]


def write_numpy(layout: Layout) -> dict[str, Indices]:
    """Return an index array for each coordinate."""
    if not layout.is_bitwise:
        elements = np.array([layout.at(**place._asdict()) for place in layout.places()], np.intp)
        return {dim: elements[:, at].reshape(*layout.ins.values()) for at, dim in enumerate(layout.dims)}
    # the inputs' contributions combine by xor, so each input needs only one look-up per index
    indices = {dim: np.full((1,) * len(layout.ins), index, np.intp) for dim, index in layout.start._asdict().items()}
    nowhere = dict.fromkeys(layout.ins, 0)
    for axis, (name, size) in enumerate(layout.ins.items()):
        alone = [layout.at(**{**nowhere, name: index}) for index in range(size)]
        shape = [size if other == axis else 1 for other in range(len(layout.ins))]
        for dim, start in layout.start._asdict().items():
            moved = np.array([getattr(element, dim) ^ start for element in alone], np.intp)
            indices[dim] = indices[dim] ^ moved.reshape(shape)
    return indices


def read_numpy(source: object, *, shape: Sequence[int] | None = None) -> Layout:
    """Return the layout of index arrays with the axes (lane, reg, slot) or (warp, lane, reg, slot)."""
    arrays = _arrays(source)
    dims = tuple(arrays)
    elements = np.stack([*arrays.values()], axis=-1)
    sizes = elements.shape[:-1]
    reach = [int(last) + 1 for last in elements.reshape(-1, len(dims)).max(axis=0)]
    extents = dict(zip(dims, reach if shape is None else shape_of("numpy", shape, len(dims)), strict=True))
    inputs = REGISTERS if len(sizes) == len(REGISTERS) else REGISTERS[1:][: len(sizes)]
    first = elements[(0,) * len(sizes)]
    steps = {}
    for at, (name, size) in enumerate(zip(inputs, sizes, strict=True)):
        axis = Axis.of_size(name, size)
        images = [elements[tuple(unit if other == at else 0 for other in range(len(sizes)))] for unit in axis.weights]
        steps[name] = [
            (radix, [int(index) for index in (image ^ first if radix == 2 else image - first)])
            for radix, image in zip(axis.radices, images, strict=True)
        ]
    layout = Layout.of_steps(extents, steps, [int(index) for index in first])
    wrong = np.argwhere((elements != np.stack([*write_numpy(layout).values()], axis=-1)).any(axis=-1))
    if wrong.size:
        place, came = dict(zip(inputs, wrong[0].tolist(), strict=True)), elements[tuple(wrong[0])].tolist()
        raise InvalidOperand(
            f"numpy: the arrays are not a linear map: {place} has {came}, expected {list(layout.at(**place))}"
        )
    return layout


def _arrays(source: object) -> dict[str, Indices]:
    """Return the source as integer arrays of equal shape, by coordinate; raise InvalidOperand for anything else."""
    from warpfrag.formats.arrays import as_array

    if not isinstance(source, Mapping) or not source or not all(isinstance(name, str) for name in source):
        raise InvalidOperand(
            f"numpy: expected an index array for each coordinate, {{'row': ..., 'col': ...}}; got {quote(source)}"
        )
    arrays = {}
    for name, indices in source.items():
        array = as_array(indices, f"numpy: {name}")
        if (
            array.dtype.kind not in "iu"
            or not 0 < array.ndim <= len(REGISTERS)
            or not 0 < prod(array.shape) <= MAX_SIZE
        ):
            raise InvalidOperand(
                f"numpy: expected {name} to be an array of integers with axes (lane, reg, slot), got {quote(indices)}"
            )
        arrays[name] = array.astype(np.intp)
        if arrays[name].min() < 0 or arrays[name].max() >= MAX_SIZE:
            raise InvalidOperand(
                f"numpy: {name} must be at least 0 and below {MAX_SIZE}; got {arrays[name].min()} to "
                f"{arrays[name].max()}"
            )
    if len({array.shape for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidOperand(f"numpy: the arrays of all coordinates must have the same shape; got {shapes}")
    return arrays
