"""Texture and surface instructions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault, PtxError
from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import Geometry, SurfaceLoad, SurfaceOp, SurfaceReduction, SurfaceStore, TextureFetch
from warpfrag.machine.ir.program import DecodedInstruction, PtxOperand
from warpfrag.machine.ir.scalar_types import B32, Codes
from warpfrag.machine.semantics.textures import Surface, Texture, fetch, gather, sample

AXES = {"1d": 1, "a1d": 1, "2d": 2, "a2d": 2, "3d": 3}
CHANNEL_NAMES = "rgba"
MAX_COORDINATES = 4


def _resources(
    state: WarpState, inst: DecodedInstruction, group: LaneGroup, kind: type[Texture | Surface]
) -> Iterator[tuple[Numbers, Any]]:
    """Yield each texture or surface, with the lanes that use it."""
    handles = group.addresses(inst.sources[0])
    for handle in np.unique(handles):
        which = np.nonzero(handles == handle)[0]
        resource = state.memory.resources.get(int(handle))
        if not isinstance(resource, kind):
            given = f"the handle of {resource}" if resource is not None else f"{int(handle):#x}"
            text = f"expected the handle of a {kind.__name__} argument, got {given}"
            raise MemoryFault(int(which[0]), text, ends_launch=True)
        yield which, resource


def _coordinates(inst: DecodedInstruction, group: LaneGroup, geometry: Geometry) -> tuple[Codes, list[Codes]]:
    """Return the lanes' layers and coordinates (x, y, z) as codes, dropping the vector's padding."""
    items = list(items_of(inst.sources[1])) if len(inst.sources) > 1 else []
    count = AXES[geometry] + geometry.startswith("a")
    if not count <= len(items) <= MAX_COORDINATES:
        raise PtxError(inst.line, f"expected {count} coordinates in {inst.text}")
    codes = [group.values(coordinate, B32) for coordinate in items]
    layers = codes.pop(0) if geometry.startswith("a") else np.zeros(int(group.mask.sum()), np.uint32)
    return layers, codes[: AXES[geometry]]


def _check_geometry(resource: Texture | Surface, geometry: Geometry, lane: int) -> None:
    if resource.geometry != geometry:
        raise MemoryFault(lane, f"expected a resource of geometry {geometry}, got {resource}", ends_launch=True)


def _check_memory(state: WarpState, inst: DecodedInstruction, action: TextureFetch, handle: int) -> None:
    """Raise an error if a 1D texture is read with both integer (linear memory) and float (CUDA array) coordinates."""
    is_linear = not action.coordinates.is_float
    if action.geometry == "1d" and state.memory.are_linear.setdefault(handle, is_linear) != is_linear:
        msg = f"{inst.name}: expected either integer or float coordinates for a 1D texture, got both"
        raise PtxError(inst.line, f"{msg}; on a GPU, one of them returns zeros")


def run_fetch(state: WarpState, inst: DecodedInstruction, action: TextureFetch, group: LaneGroup) -> None:
    """Run tex or tld4."""
    layers, axes = _coordinates(inst, group, action.geometry)
    results = np.zeros((len(layers), 4), np.uint32)
    for which, texture in _resources(state, inst, group, Texture):
        _check_geometry(texture, action.geometry, int(which[0]))
        _check_memory(state, inst, action, int(group.addresses(inst.sources[0])[which[0]]))
        if texture.is_guess and action.coordinates.is_float:
            state.tally.inexact.add(inst.name)
        own = [codes[which] for codes in axes]
        if action.channel is not None:
            results[which] = gather(texture, layers[which], own, CHANNEL_NAMES.index(action.channel))
        elif action.coordinates.is_float:
            results[which] = sample(texture, layers[which], own)
        else:
            results[which] = fetch(texture, layers[which], own)
        state.memory.count_bytes("texture", texture.channels * texture.texels.dtype.itemsize * len(which), writes=False)
    for number, register in enumerate(_items(inst, inst.results, 4)):
        group.write(register, group.scatter(results[:, number]))


def _items(inst: DecodedInstruction, operands: tuple[PtxOperand, ...], count: int) -> tuple[PtxOperand, ...]:
    """Return the `count` registers of a vector operand; raise PtxError if it has a different number of registers."""
    items = items_of(operands[0]) if len(operands) == 1 else ()
    if len(items) != count:
        raise PtxError(inst.line, f"expected {count} registers in {inst.text}")
    return items


# --- surfaces


def _places(
    state: WarpState, inst: DecodedInstruction, group: LaneGroup, action: SurfaceOp, size: int
) -> Iterator[tuple[Numbers, Surface, Numbers, Mask]]:
    """Yield each surface with its lanes, their byte offsets, and a mask of the offsets inside the surface."""
    layers, axes = _coordinates(inst, group, action.geometry)
    for which, surface in _resources(state, inst, group, Surface):
        _check_geometry(surface, action.geometry, int(which[0]))
        numbers = [codes[which].view(np.int32).astype(np.int64) for codes in axes]
        misaligned = numbers[0] % size != 0
        if misaligned.any():
            at = int(misaligned.argmax())
            raise MemoryFault(int(which[at]), f"expected x to be a multiple of {size} bytes, got {int(numbers[0][at])}")
        places, inside = _byte_offsets(surface, layers[which].astype(np.int64), numbers, size)
        if action.boundary == "trap" and not inside.all():
            at = int((~inside).argmax())
            got = ", ".join(str(int(values[at])) for values in numbers)
            raise MemoryFault(int(which[at]), f"the coordinates ({got}) are outside {surface}")
        yield which, surface, places, inside if action.boundary != "clamp" else np.ones_like(inside)


def _byte_offsets(surface: Surface, layers: Numbers, axes: list[Numbers], size: int) -> tuple[Numbers, Mask]:
    """Return byte offsets, clamped to the surface, and a mask of the coordinates inside it; x is in bytes."""
    count, depth, height, width, _ = surface.texels.shape
    row = width * surface.channels * surface.texels.dtype.itemsize
    extents = [(row, 1, size), (height, row, 1), (depth, row * height, 1)][: len(axes)]
    place, inside = np.zeros(len(layers), np.int64), np.ones(len(layers), np.bool_)
    for values, (extent, stride, step) in zip(
        [*axes, layers], [*extents, (count, row * height * depth, 1)], strict=True
    ):
        inside &= (values >= 0) & (values <= extent - step)
        place += np.clip(values, 0, extent - step) * stride
    return place, inside


def _elements(surface: Surface, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view of a surface's memory as elements of a different size."""
    flat = surface.array.reshape(-1).view(np.uint8)
    return flat[: len(flat) // dtype.itemsize * dtype.itemsize].view(dtype)


def run_surface_load(state: WarpState, inst: DecodedInstruction, action: SurfaceLoad, group: LaneGroup) -> None:
    """Run suld; a load outside the surface returns zeros or the nearest element, or faults."""
    dtype, size = action.type.dtype, action.type.dtype.itemsize
    results = np.zeros((int(group.mask.sum()), action.count), dtype)
    for which, surface, places, inside in _places(state, inst, group, action, size * action.count):
        values = _elements(surface, dtype)[places[:, None] // size + np.arange(action.count)]
        results[which] = np.where(inside[:, None], values, dtype.type(0))
        state.memory.count_bytes("surface", size * action.count * len(which), writes=False)
    for number, register in enumerate(_items(inst, inst.results, action.count)):
        group.write(register, group.scatter(results[:, number]), action.type)


def run_surface_store(state: WarpState, inst: DecodedInstruction, action: SurfaceStore, group: LaneGroup) -> None:
    """Run sust; a store outside the surface is dropped, goes to the nearest element, or faults."""
    dtype, size = action.type.dtype, action.type.dtype.itemsize
    items = _items(inst, inst.sources[2:], action.count)
    codes = np.stack([group.values(element, action.type) for element in items], axis=1)
    for which, surface, places, inside in _places(state, inst, group, action, size * action.count):
        index, values = places[inside, None] // size + np.arange(action.count), codes[which][inside]
        _elements(surface, dtype)[index] = values
        if _overlap(places[inside], values):
            state.tally.inexact.add(inst.name)
        state.memory.count_bytes("surface", size * action.count * int(inside.sum()), writes=True)
    state.progress += 1


def _overlap(places: Numbers, codes: Codes) -> bool:
    """Return True if two threads store different values to the same element."""
    order = np.argsort(places, kind="stable")
    is_same = places[order][1:] == places[order][:-1]
    return bool((codes[order][1:][is_same] != codes[order][:-1][is_same]).any())


def run_surface_reduction(
    state: WarpState, inst: DecodedInstruction, action: SurfaceReduction, group: LaneGroup
) -> None:
    """Run sured lane by lane; the order does not affect the result."""
    dtype, size = action.type.dtype, action.type.dtype.itemsize
    codes = group.values(_items(inst, inst.sources[2:], 1)[0], action.type)
    for which, surface, places, inside in _places(state, inst, group, action, size):
        cells = _elements(surface, dtype)
        with state.memory.lock:
            for lane, place in zip(which[inside], places[inside] // size, strict=True):
                cells[place] = action.function(cells[place : place + 1], codes[lane : lane + 1])[0]
    state.progress += 1
