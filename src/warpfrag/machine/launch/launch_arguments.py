"""Convert the arguments of a launch: numbers, structs, and arrays, which become global memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.machine.interpreter.device_memory import Allocation
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import Parameter
from warpfrag.machine.launch.device_array import ADDRESSES, DeviceArray
from warpfrag.machine.launch.host_arrays import as_bytes, as_host_array
from warpfrag.machine.launch.symbol_names import readable, short_name
from warpfrag.machine.launch.tensor_map_argument import TensorMap
from warpfrag.machine.semantics.textures import Surface, Texture
from warpfrag.smem.tensor_map import MAP_ALIGN

HANDLE_STEP = 64  # the distance between texture handles
MAX_ADDRESS = 1 << state_spaces.WINDOW_SHIFT
SHOWN = 4  # maximum number of arrays that a repr lists


@dataclass(frozen=True)
class Unwritten:
    """An array argument whose contents are undefined, as from `np.empty`, for the check "uninitialised".

    >>> import numpy as np
    >>> Unwritten(np.empty(4, np.float32)).array.shape
    (4,)
    """

    array: object


class GlobalMemory:
    """Arrays at given addresses in global memory; a launch reads them there and updates them in place.

    >>> import numpy as np
    >>> GlobalMemory({0x7F00_0000_0000: np.zeros(4, np.float32), 0x7F00_0000_1000: np.zeros(2, np.float64)})
    <global memory: 16 bytes at 0x7f0000000000, 16 bytes at 0x7f0000001000>
    """

    def __init__(self, arrays: Mapping[int, object]) -> None:
        """Create the memory; raise InvalidOperand if an array is not contiguous or arrays overlap."""
        if not isinstance(arrays, Mapping):
            raise InvalidOperand(f"expected a mapping from addresses to arrays, got {quote(arrays)}")
        self.arrays = dict(arrays)
        self.allocations: list[Allocation] = []
        for address, value in sorted(arrays.items(), key=lambda entry: _address(entry[0])):
            name = f"the array at {address:#x}"
            data = as_bytes(value, name)
            if data is None:
                raise InvalidOperand(f"{name}: expected an array, got {quote(value)}")
            if address + len(data) > MAX_ADDRESS:
                raise InvalidOperand(f"{name}: {len(data)} bytes extend beyond {MAX_ADDRESS:#x}, the end of memory")
            if self.allocations and self.allocations[-1].end > address:
                last = self.allocations[-1]
                raise InvalidOperand(f"{name} overlaps {last.name}, which ends at {last.end:#x}")
            self.allocations.append(Allocation(address, data, name, bool(data.flags.writeable), is_placed=True))

    def __repr__(self) -> str:
        """Format the size and address of each array."""
        arrays = [f"{len(allocation.data)} bytes at {allocation.start:#x}" for allocation in self.allocations]
        more = [f"{len(arrays) - SHOWN} more"] if len(arrays) > SHOWN else []
        return f"<global memory: {', '.join(arrays[:SHOWN] + more) or 'empty'}>"


SCALAR_MISMATCHES = {("f", "an integer"), ("i", "a float"), ("u", "a float")}
"""Dtype kinds of NumPy scalars, each paired with the parameter types that do not accept it."""


class RawArguments(TypedDict, total=False):
    """The arguments of a launch as the driver passes them."""

    params: bytes
    """All parameters as bytes, at the offsets that `Kernel.parameters` gives; replaces `args`."""
    memory: GlobalMemory
    """Arrays at the addresses that the parameter bytes contain."""


class LaunchKeywords(RawArguments, total=False):
    """Rarely needed keyword arguments of a launch."""

    level: Literal["auto", "sass", "ptx"]
    """The code to execute: "sass", "ptx", or "auto" for machine code if possible."""


class KernelArguments(NamedTuple):
    """Converted arguments: parameter bytes, arrays with their addresses, textures and surfaces by handle."""

    parameters: bytes
    allocations: tuple[Allocation, ...]
    resources: dict[int, Texture | Surface]


class Arguments:
    """Converts the arguments of one launch to the parameters of an entry."""

    def __init__(self, kernel: str, parameters: Sequence[Parameter], address_size: int = 64) -> None:
        """Create a converter for one launch."""
        self.pointer_size, self.memory_map = address_size // 8, state_spaces.GLOBAL_MEMORY_MAPS[address_size]
        self.kernel = readable(kernel)
        self.parameters = [replace(parameter, name=short_name(parameter.name, kernel)) for parameter in parameters]
        self.allocations: list[Allocation] = []
        self.resources: dict[int, Texture | Surface] = {}  # keyed by handle
        self.maps: list[NDArray[np.uint8]] = []  # copies of tensor maps that are passed by address
        self._next = self.memory_map.arrays
        self._args: Sequence[object] = ()
        self._known: dict[tuple[int, int], int] = {}
        """The device address of each array, by its host address and size in bytes."""

    def take(self, args: Sequence[object], size: int, raw: RawArguments) -> bytes:
        """Convert all arguments to parameter bytes; arrays become allocations."""
        if unknown := sorted(raw.keys() - RawArguments.__annotations__.keys()):
            known = "shared, arch, checks, engine, seed, level, options, params or memory"
            raise TypeError(f"launch() got an unexpected keyword argument {unknown[0]!r}; expected {known}")
        memory = raw.get("memory", GlobalMemory({}))
        if not isinstance(memory, GlobalMemory):
            raise InvalidOperand(f"expected memory=wf.GlobalMemory({{address: array}}), got {quote(memory)}")
        self.allocations += memory.allocations
        for allocation in memory.allocations:  # allocate this launch's arrays after those of the caller's memory
            self._next = max(self._next, (allocation.end // state_spaces.ALIGNMENT + 2) * state_spaces.ALIGNMENT)
        if "params" in raw:
            return self._raw(raw["params"], args, size)
        if not hasattr(args, "__len__") or not hasattr(args, "__getitem__"):
            raise InvalidOperand(f"expected args to be a list of arguments, got {quote(args)}")
        if len(args) != len(self.parameters):
            kinds = ", ".join(f"{parameter.name} .{parameter.type}" for parameter in self.parameters) or "none"
            raise InvalidOperand(f"{self.kernel} takes {len(self.parameters)} arguments ({kinds}), got {len(args)}")
        data, self._args = bytearray(size), args
        for number, (value, parameter) in enumerate(zip(args, self.parameters, strict=True)):
            data[parameter.offset : parameter.offset + parameter.size] = self._argument(value, number, parameter)
        return bytes(data)

    def _raw(self, params: object, args: Sequence[object], size: int) -> bytes:
        """Return the parameter bytes that the caller passed, after checking the size."""
        if not isinstance(params, bytes | bytearray | memoryview):
            raise InvalidOperand(f"expected params to be bytes, got {quote(params)}; pass a list of arguments as args")
        if len(args):
            raise InvalidOperand(f"expected either args or params, got {len(args)} arguments and {len(params)} bytes")
        if len(params) != size:
            layout = ", ".join(f"{param.name}: {param.size} bytes at {param.offset}" for param in self.parameters)
            raise InvalidOperand(
                f"{self.kernel} takes {size} parameter bytes ({layout or 'none'}), got {len(params)} bytes"
            )
        return bytes(params)

    def _argument(self, value: object, number: int, parameter: Parameter) -> bytes:
        """Return the parameter bytes of one argument."""
        if isinstance(value, Unwritten):
            code = self._argument(value.array, number, parameter)
            data = as_bytes(value.array, f"argument {number} ({parameter.name})")
            for allocation in self.allocations:
                if data is not None and allocation.data.ctypes.data == data.ctypes.data:
                    allocation.unwritten = np.full(len(data), 0xFF, np.uint8)
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
        """Return a tensor map's parameter bytes: the map itself, or the address of a copy in global memory."""
        label = f"argument {number} ({parameter.name})"
        data = bytes(value) if value.array is None else value.encode(self._address(value.array, label))
        if parameter.size == len(data):
            if parameter.align < MAP_ALIGN:
                raise InvalidOperand(
                    f"{label}: expected an alignment of {MAP_ALIGN} bytes for a tensor map, got {parameter.align}"
                )
            return data
        if parameter.size != self.pointer_size:
            raise InvalidOperand(f"{label}: expected {parameter.size} bytes, got a tensor map of {len(data)}")
        copy = np.frombuffer(data, np.uint8).copy()
        self.maps.append(copy)  # keep it alive as long as its address is in use
        return self._address(copy, f"{label}, the tensor map").to_bytes(self.pointer_size, "little")

    def _pointer(self, value: object, number: int, parameter: Parameter) -> bytes:
        """Return an array's address as parameter bytes; an array and a view of it share one allocation."""
        label = f"argument {number} ({parameter.name})"
        if parameter.size != self.pointer_size:
            raise InvalidOperand(f"{label}: expected a value of {parameter.size} bytes, got an array")
        return self._address(value, label).to_bytes(self.pointer_size, "little")

    def _address(self, value: object, label: str) -> int:
        """Return an array's address, which is fixed for a DeviceArray and otherwise valid only for this launch."""
        if isinstance(value, DeviceArray):
            if self.pointer_size != 8:
                raise InvalidOperand(
                    f"{label}: a DeviceArray has a 64-bit address, but this module has 32-bit addresses: pass its "
                    f"array instead"
                )
            return value.address
        flat = as_bytes(value, label)
        if flat is None:
            raise InvalidOperand(f"{label}: expected an array, got {quote(value)}")
        owner = ADDRESSES.owner(flat.ctypes.data, len(flat)) if self.pointer_size == 8 else None
        if owner is not None:
            return owner.address + flat.ctypes.data - owner.host
        place = (flat.ctypes.data, len(flat))
        whole = self._container(flat) if place not in self._known and len(flat) else None
        if whole is not None:
            number, array = whole
            start = self._address(array, f"argument {number} ({self.parameters[number].name})")
            return start + flat.ctypes.data - array.ctypes.data
        if place not in self._known or not len(flat):
            self._known[place] = self._next
            self.allocations.append(Allocation(self._next, flat, label, bool(flat.flags.writeable)))
            # leave a gap, so that an overrun does not reach the next array
            size = max(len(flat), 1) + state_spaces.ALIGNMENT
            self._next += -(-size // state_spaces.ALIGNMENT) * state_spaces.ALIGNMENT
            if self.pointer_size == 4 and self._next > self.memory_map.constants:
                raise InvalidOperand(f"{label}: {len(flat)} bytes do not fit in a 32-bit address space")
        return self._known[place]

    def _container(self, flat: NDArray[np.uint8]) -> tuple[int, NDArray[Any]] | None:
        """Return the number and array of a larger argument that contains an array; raise an error if others overlap."""
        for number, other in enumerate(self._args):
            if isinstance(other, np.ndarray) and other.flags.c_contiguous and other.nbytes > len(flat):
                offset = flat.ctypes.data - other.ctypes.data
                if 0 <= offset <= other.nbytes - len(flat) and other.flags.writeable >= flat.flags.writeable:
                    return number, other
        for item in self.allocations:
            if len(item.data) and np.may_share_memory(flat, item.data):
                raise InvalidOperand(f"an argument and {item.name} overlap in memory: pass views of one DeviceArray")
        return None

    def _is_pointer(self, array: NDArray[Any], parameter: Parameter) -> bool:
        """Return True if an array is passed as a pointer, not as the bytes of a struct.

        If the parameter is a struct with the size of a pointer, only an array of exactly that size is passed by value.
        """
        is_pointer_sized = parameter.size == parameter.align == self.pointer_size
        return not parameter.is_array or (is_pointer_sized and array.nbytes != parameter.size)

    def _handle(self, resource: Texture | Surface, number: int, parameter: Parameter) -> bytes:
        """Return a texture or surface's handle as parameter bytes; an object that is passed twice has one handle."""
        if parameter.size != 8:
            raise InvalidOperand(
                f"argument {number} ({parameter.name}): expected {parameter.size} bytes, got the handle of {resource}"
            )
        known = (handle for handle, other in self.resources.items() if other is resource)
        handle = next(known, state_spaces.HANDLES + HANDLE_STEP * len(self.resources))
        self.resources[handle] = resource
        return handle.to_bytes(8, "little")

    def own_resources(self) -> dict[int, Texture | Surface]:
        """Return textures and surfaces by handle, with a copy of any texture whose memory this launch may change."""
        surfaces = [resource for resource in self.resources.values() if isinstance(resource, Surface)]
        written = [allocation.data for allocation in self.allocations if allocation.writable]
        result: dict[int, Texture | Surface] = {}
        for handle, resource in self.resources.items():
            result[handle] = resource
            if isinstance(resource, Surface):
                continue
            if any(np.may_share_memory(resource.array, surface.array) for surface in surfaces):
                raise InvalidOperand(
                    f"expected {resource} and the surface of this launch to use different memory: "
                    "a texture cache does not see stores, so the fetched value is unknown"
                )
            if any(np.may_share_memory(resource.array, data) for data in written):
                result[handle] = resource.copy()
        return result

    def _struct(self, fields: Sequence[object], number: int, parameter: Parameter) -> bytes:
        """Return the bytes of a struct from a list of fields; arrays become pointers, and all but bytes are aligned."""
        data = b""
        for field_number, value in enumerate(fields):
            name = f"{parameter.name}, field {field_number}"
            size = value.nbytes if isinstance(value, np.generic) else self.pointer_size
            size = len(value) if isinstance(value, bytes) else size
            field = Parameter(name, "b8", size, size, 0, is_array=False)
            if isinstance(value, Texture | Surface):
                code = self._handle(value, number, field)
            elif isinstance(value, DeviceArray) or as_host_array(value, f"argument {number} ({name})") is not None:
                code = self._pointer(value, number, field)
            elif isinstance(value, np.generic | bytes) or value is None:
                code = _scalar(value, number, field, self.pointer_size)
            else:
                raise InvalidOperand(
                    f"argument {number} ({name}): expected an array, a NumPy scalar, bytes or None, got {quote(value)}"
                )
            aligned = 1 if isinstance(value, bytes) else size
            data += bytes(-len(data) % aligned) + code
        if len(data) > parameter.size:
            raise InvalidOperand(
                f"argument {number} ({parameter.name}): expected at most {parameter.size} bytes, got {len(data)}"
            )
        return data.ljust(parameter.size, b"\0")


def _address(value: object) -> int:
    """Return a value as an address; raise InvalidOperand if it is not a valid one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 < value < MAX_ADDRESS:
        raise InvalidOperand(f"expected an address between 1 and {MAX_ADDRESS:#x} for each array, got {quote(value)}")
    return int(value)


def _scalar(value: object, number: int, parameter: Parameter, pointer_size: int) -> bytes:
    """Return the bytes of a number, a null pointer or a bytes object."""
    label = f"argument {number} ({parameter.name}, .{parameter.type})"
    if value is None:
        if parameter.size != pointer_size:
            raise InvalidOperand(
                f"{label}: expected {parameter.size} bytes, got None, a null pointer of {pointer_size} bytes"
            )
        return bytes(pointer_size)
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, np.ndarray | np.generic):
        data = value.tobytes()
        wanted = {"u": "an integer", "s": "an integer", "f": "a float"}.get(parameter.type[0], "")
        if isinstance(value, np.generic) and (value.dtype.kind, wanted) in SCALAR_MISMATCHES:
            problem = f"{label}: expected {wanted}, got {value.dtype} {value}"
            bits = f"np.{'float' if wanted == 'a float' else 'uint'}{8 * parameter.size}"
            raise InvalidOperand(f"{problem}; to pass its bits, use .view({bits})")
    elif isinstance(value, bool | int | float):
        data = _python_number(value, label, parameter)
    else:
        raise InvalidOperand(f"{label}: expected an array, a number, bytes or None, got {quote(value)}")
    if len(data) != parameter.size:
        raise InvalidOperand(f"{label}: expected {parameter.size} bytes, got {quote(value)}, which has {len(data)}")
    return data


def _python_number(value: float, label: str, parameter: Parameter) -> bytes:
    """Convert a plain Python number to the type of its parameter; raise InvalidOperand if the parameter has no type."""
    bits = 8 * parameter.size
    fits = isinstance(value, float) or -(1 << (bits - 1)) <= value < 1 << bits
    if fits and not parameter.is_typed and parameter.size <= 8:
        kinds = ["float"] if isinstance(value, float) else ["uint" if value >> (bits - 1) > 0 else "int", "float"]
        typed = [f"np.{kind}{bits}({value})" for kind in kinds if hasattr(np, f"{kind}{bits}")]
        raise InvalidOperand(
            f"{label} has no type in machine code: pass {' or '.join(typed) or 'a NumPy scalar'}, got {quote(value)}"
        )
    if isinstance(value, float):
        if parameter.size not in {4, 8} or parameter.type[0] in "us":
            raise InvalidOperand(f"{label}: expected an integer, got {value}; to pass its bits, use .view")
        return np.array(value, f"f{parameter.size}").tobytes()
    if parameter.type[0] == "f":
        return np.array(value, f"f{parameter.size}").tobytes()
    if parameter.size > 8:
        raise InvalidOperand(f"{label}: expected {parameter.size} bytes or a list of fields, got {quote(value)}")
    if not fits:
        raise InvalidOperand(f"{label}: expected an integer of {bits} bits, got {quote(value)}")
    return (int(value) & ((1 << bits) - 1)).to_bytes(parameter.size, "little")
