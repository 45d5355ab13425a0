"""The arguments of a launch: numbers, structs, and arrays, which become global memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.machine.interpreter.device_memory import Allocation
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import Parameter
from warpfrag.machine.launch.device_array import ADDRESSES, DeviceArray
from warpfrag.machine.launch.host_arrays import as_bytes, as_host_array
from warpfrag.machine.launch.names import readable
from warpfrag.machine.launch.tensor_map_argument import TensorMap
from warpfrag.machine.semantics.textures import Surface, Texture
from warpfrag.smem.tensor_map import MAP_ALIGN

HANDLE_STEP = 64  # between the handles of two textures


@dataclass(frozen=True)
class Unwritten:
    """An array argument with undefined contents, as from `np.empty`: the check "uninitialised" marks it.

    >>> import numpy as np
    >>> Unwritten(np.empty(4, np.float32)).array.shape
    (4,)
    """

    array: object


@dataclass(frozen=True)
class RawArguments:
    """The parameter bytes of a launch as a driver passes them, and global memory as arrays by address."""

    params: bytes
    memory: Mapping[int, NDArray[Any]]

    def parameters(self, size: int) -> bytes:
        """Return the parameter bytes; raise InvalidOperand if their number is wrong."""
        if len(self.params) != size:
            raise InvalidOperand(f"expected {size} parameter bytes, got {len(self.params)}")
        return bytes(self.params)

    def allocations(self) -> list[Allocation]:
        """Return the arrays as global memory."""
        return [
            Allocation(address, array.reshape(-1).view(np.uint8), f"the array at {address:#x}", array.flags.writeable)
            for address, array in sorted(self.memory.items())
        ]


class Arguments:
    """Converts the arguments of one launch to the parameters of an entry."""

    def __init__(self, kernel: str, parameters: Sequence[Parameter], address_size: int = 64) -> None:
        """Start with no addresses."""
        self.pointer_size, self.memory_map = address_size // 8, state_spaces.GLOBAL_MEMORY_MAPS[address_size]
        self.kernel = readable(kernel)
        self.parameters = [replace(item, name=short_name(item.name, kernel)) for item in parameters]
        self.allocations: list[Allocation] = []
        self.resources: dict[int, Texture | Surface] = {}  # by handle
        self.maps: list[NDArray[np.uint8]] = []  # that are passed by address
        self._next = self.memory_map.arrays
        self._known: dict[tuple[int, int], int] = {}
        """The address of an array, by its host address and its size in bytes."""

    def take(self, args: Sequence[object], size: int) -> bytes:
        """Return the bytes of all parameters; arrays become allocations."""
        if not hasattr(args, "__len__") or not hasattr(args, "__getitem__"):
            raise InvalidOperand(f"expected args as a list of arguments, got {quote(args)}")
        if len(args) != len(self.parameters):
            kinds = ", ".join(f"{item.name} .{item.type}" for item in self.parameters) or "none"
            raise InvalidOperand(f"{self.kernel} takes {len(self.parameters)} arguments ({kinds}), got {len(args)}")
        data = bytearray(size)
        for number, (value, parameter) in enumerate(zip(args, self.parameters, strict=True)):
            code = self._argument(value, number, parameter)
            data[parameter.offset : parameter.offset + parameter.size] = code
        return bytes(data)

    def _argument(self, value: object, number: int, parameter: Parameter) -> bytes:
        """Return the bytes of one parameter."""
        if isinstance(value, Unwritten):
            code = self._argument(value.array, number, parameter)
            data = as_bytes(value.array, f"argument {number} ({parameter.name})")
            for allocation in self.allocations:
                if data is not None and allocation.data.ctypes.data == data.ctypes.data:
                    allocation.is_unwritten = True
            return code
        if isinstance(value, Texture | Surface):
            return self._handle(value, number, parameter)
        if isinstance(value, TensorMap):
            return self._tensor_map(value, number, parameter)
        if isinstance(value, list | tuple):
            return self._struct(value, number, parameter)
        if isinstance(value, DeviceArray):
            return self._pointer(value, number, parameter)
        array = as_host_array(value, f"argument {number} ({parameter.name})")
        if array is not None and self._is_pointer(array, parameter):
            return self._pointer(value, number, parameter)
        return _scalar(value if array is None else array, number, parameter, self.pointer_size)

    def _tensor_map(self, value: TensorMap, number: int, parameter: Parameter) -> bytes:
        """Return the bytes of a tensor map, or the address of a copy of them in global memory."""
        what = f"argument {number} ({parameter.name})"
        data = value.encode(self._address(value.array, what))
        if parameter.size == len(data):
            if parameter.align < MAP_ALIGN:
                raise InvalidOperand(
                    f"{what}: expected an alignment of {MAP_ALIGN} bytes for a tensor map, got {parameter.align}"
                )
            return data
        if parameter.size != self.pointer_size:
            raise InvalidOperand(f"{what}: expected {parameter.size} bytes, got a tensor map of {len(data)}")
        copy = np.frombuffer(data, np.uint8).copy()
        self.maps.append(copy)  # alive as long as its address
        return self._address(copy, f"{what}, the tensor map").to_bytes(self.pointer_size, "little")

    def _pointer(self, value: object, number: int, parameter: Parameter) -> bytes:
        """Return the address of an array; the same array passed twice is one allocation."""
        what = f"argument {number} ({parameter.name})"
        if parameter.size != self.pointer_size:
            raise InvalidOperand(f"{what}: expected a number of {parameter.size} bytes, got an array")
        return self._address(value, what).to_bytes(self.pointer_size, "little")

    def _address(self, value: object, what: str) -> int:
        """Return the address of an array: its own if it is a DeviceArray, else one of this launch."""
        if isinstance(value, DeviceArray):
            if self.pointer_size != 8:
                raise InvalidOperand(
                    f"{what}: a DeviceArray has an address of 64 bits, and this module those of 32: give its array"
                )
            return value.address
        flat = as_bytes(value, what)
        if flat is None:
            raise InvalidOperand(f"{what}: expected an array, got {quote(value)}")
        owner = ADDRESSES.owner(flat.ctypes.data, len(flat)) if self.pointer_size == 8 else None
        if owner is not None:
            return owner.address + flat.ctypes.data - owner.host
        place = (flat.ctypes.data, len(flat))
        if place not in self._known or not len(flat):
            self._known[place] = self._next
            self.allocations.append(Allocation(self._next, flat, what, bool(flat.flags.writeable)))
            size = max(len(flat), 1) + state_spaces.ALIGNMENT  # a gap, so that overruns do not hit the next one
            self._next += -(-size // state_spaces.ALIGNMENT) * state_spaces.ALIGNMENT
            if self.pointer_size == 4 and self._next > self.memory_map.constants:
                raise InvalidOperand(
                    f"{what}: expected arrays that fit into addresses of 32 bits, got {len(flat)} bytes more"
                )
        return self._known[place]

    def _is_pointer(self, array: NDArray[Any], parameter: Parameter) -> bool:
        """Return True if an array is passed as a pointer: always, unless it is exactly the bytes of a struct."""
        is_pointer_sized = parameter.size == parameter.align == self.pointer_size
        return not parameter.is_array or (is_pointer_sized and array.nbytes != parameter.size)

    def _handle(self, resource: Texture | Surface, number: int, parameter: Parameter) -> bytes:
        """Return the handle of a texture or surface; the same object passed twice has one."""
        if parameter.size != 8:
            raise InvalidOperand(
                f"argument {number} ({parameter.name}): expected {parameter.size} bytes, got the handle of {resource}"
            )
        known = (handle for handle, other in self.resources.items() if other is resource)
        handle = next(known, state_spaces.HANDLES + HANDLE_STEP * len(self.resources))
        self.resources[handle] = resource
        return handle.to_bytes(8, "little")

    def own_resources(self) -> dict[int, Texture | Surface]:
        """Return textures and surfaces by handle; a texture whose memory this launch may change is copied."""
        surfaces = [item for item in self.resources.values() if isinstance(item, Surface)]
        written = [allocation.data for allocation in self.allocations if allocation.writable]
        result: dict[int, Texture | Surface] = {}
        for handle, resource in self.resources.items():
            result[handle] = resource
            if isinstance(resource, Surface):
                continue
            if any(np.may_share_memory(resource.array, surface.array) for surface in surfaces):
                raise InvalidOperand(
                    f"expected {resource} and the surface of the same launch in different memory: "
                    "a texture cache does not see stores, so what it gives is not known"
                )
            if any(np.may_share_memory(resource.array, data) for data in written):
                result[handle] = resource.copy()
        return result

    def _struct(self, fields: Sequence[object], number: int, parameter: Parameter) -> bytes:
        """Return the bytes of a struct: arrays are pointers, each field at a multiple of its size."""
        data = b""
        for field_number, value in enumerate(fields):
            name = f"{parameter.name}, field {field_number}"
            size = value.nbytes if isinstance(value, np.generic) else self.pointer_size
            size = len(value) if isinstance(value, bytes) else size
            field = Parameter(name, parameter.type, size, size, 0, is_array=False)
            if isinstance(value, Texture | Surface):
                code = self._handle(value, number, field)
            elif isinstance(value, DeviceArray) or as_host_array(value, f"argument {number} ({name})") is not None:
                code = self._pointer(value, number, field)
            elif isinstance(value, np.generic | bytes) or value is None:
                code = _scalar(value, number, field, self.pointer_size)
            else:
                raise InvalidOperand(
                    f"argument {number} ({name}): expected an array, a numpy scalar, bytes or None, got {quote(value)}"
                )
            aligned = 1 if isinstance(value, bytes) else size
            data += bytes(-len(data) % aligned) + code
        if len(data) > parameter.size:
            raise InvalidOperand(
                f"argument {number} ({parameter.name}): expected at most {parameter.size} bytes, got {len(data)}"
            )
        return data.ljust(parameter.size, b"\0")


def short_name(name: str, kernel: str) -> str:
    """Return a parameter's name for messages: nvcc uses the mangled name of the kernel and a number.

    >>> short_name("_Z6saxpyifPKfPf_param_2", "_Z6saxpyifPKfPf"), short_name("out", "scale")
    ('param 2', 'out')
    """
    number = re.fullmatch(rf"{re.escape(kernel)}_param_(\d+)", name)
    return f"param {number[1]}" if number else name


def _scalar(value: object, number: int, parameter: Parameter, pointer_size: int) -> bytes:
    """Return the bytes of a number, a null pointer or a block of bytes."""
    what = f"argument {number} ({parameter.name}, .{parameter.type})"
    if value is None:
        if parameter.size != pointer_size:
            raise InvalidOperand(
                f"{what}: None is a null pointer of {pointer_size} bytes, expected {parameter.size} bytes"
            )
        return bytes(pointer_size)
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, np.ndarray | np.generic):
        data = value.tobytes()
    elif isinstance(value, bool | int | float):
        data = _python_number(value, what, parameter)
    else:
        raise InvalidOperand(f"{what}: expected an array, a number, bytes or None, got {quote(value)}")
    if len(data) != parameter.size:
        raise InvalidOperand(f"{what}: expected {parameter.size} bytes, got {len(data)} of {quote(value)}")
    return data


def _python_number(value: float, what: str, parameter: Parameter) -> bytes:
    """Convert a plain Python number to the type of its parameter."""
    if isinstance(value, float):
        if parameter.size not in {4, 8} or parameter.type[0] in "us":
            raise InvalidOperand(f"{what}: expected an integer, got {value}; give a numpy scalar to choose its bits")
        return np.array(value, f"f{parameter.size}").tobytes()
    if parameter.type[0] == "f":
        return np.array(value, f"f{parameter.size}").tobytes()
    bits = 8 * parameter.size
    if parameter.size > 8 or not -(1 << (bits - 1)) <= value < 1 << bits:
        raise InvalidOperand(f"{what}: expected an integer of {bits} bits, got {quote(value)}")
    return (int(value) & ((1 << bits) - 1)).to_bytes(parameter.size, "little")
