"""What a launch is given: numbers, structs, and arrays, which become global memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import InvalidOperand, quote
from warpfrag.ptx.interpreter.memory import Allocation
from warpfrag.ptx.program import state_spaces
from warpfrag.ptx.program.program import Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence


class Arguments:
    """The arguments of one launch on their way to the parameters of an entry."""

    def __init__(self, kernel: str, parameters: Sequence[Parameter]) -> None:
        """No array has an address yet."""
        self.kernel, self.parameters = kernel, parameters
        self.allocations: list[Allocation] = []
        self._next = state_spaces.ARRAYS
        self._known: dict[tuple[int, int], int] = {}
        """The address of an array, by where it starts on the host and how many bytes it has."""

    def take(self, args: Sequence[object], size: int) -> bytes:
        """The bytes of all parameters; arrays become allocations."""
        if len(args) != len(self.parameters):
            kinds = ", ".join(f"{item.name} .{item.type}" for item in self.parameters) or "none"
            msg = f"{self.kernel} takes {len(self.parameters)} arguments ({kinds}), got {len(args)}"
            raise InvalidOperand(msg)
        data = bytearray(size)
        for number, (value, parameter) in enumerate(zip(args, self.parameters, strict=True)):
            if isinstance(value, list | tuple):
                code = self._struct(value, number, parameter)
            elif isinstance(value, np.ndarray) and _is_pointer(value, parameter):
                code = self._pointer(value, number, parameter)
            else:
                code = _scalar(value, number, parameter)
            data[parameter.offset : parameter.offset + parameter.size] = code
        return bytes(data)

    def _pointer(self, array: np.ndarray[Any, Any], number: int, parameter: Parameter) -> bytes:
        """The address of an array; the same array twice is one allocation."""
        what = f"argument {number} ({parameter.name})"
        if parameter.size != 8:
            msg = f"{what}: expected a number of {parameter.size} bytes, got an array"
            raise InvalidOperand(msg)
        if not array.flags.c_contiguous:
            msg = f"{what}: expected a contiguous array, got strides {array.strides} for shape {array.shape}"
            raise InvalidOperand(msg)
        if array.dtype.hasobject:
            msg = f"{what}: expected an array of numbers, got {array.dtype}"
            raise InvalidOperand(msg)
        place = (array.ctypes.data, array.nbytes)
        if place not in self._known or array.nbytes == 0:
            self._known[place] = self._next
            flat = array.reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)
            self.allocations.append(Allocation(self._next, flat, what, bool(array.flags.writeable)))
            size = (
                max(array.nbytes, 1) + state_spaces.ALIGNMENT
            )  # a gap, so that an access beyond one is not in the next
            self._next += -(-size // state_spaces.ALIGNMENT) * state_spaces.ALIGNMENT
        return self._known[place].to_bytes(8, "little")

    def _struct(self, fields: Sequence[object], number: int, parameter: Parameter) -> bytes:
        """The bytes of a struct: arrays are pointers, each field at a multiple of its size."""
        data = b""
        for field_number, value in enumerate(fields):
            name = f"{parameter.name}, field {field_number}"
            size = value.nbytes if isinstance(value, np.generic) else len(value) if isinstance(value, bytes) else 8
            field = Parameter(name, parameter.type, size, size, 0, is_array=False)
            if isinstance(value, np.ndarray):
                code = self._pointer(value, number, field)
            elif isinstance(value, np.generic | bytes) or value is None:
                code = _scalar(value, number, field)
            else:
                msg = (
                    f"argument {number} ({name}): expected an array, a numpy scalar, bytes or None, got {quote(value)}"
                )
                raise InvalidOperand(msg)
            aligned = 1 if isinstance(value, bytes) else size
            data += bytes(-len(data) % aligned) + code
        if len(data) > parameter.size:
            msg = f"argument {number} ({parameter.name}): expected at most {parameter.size} bytes, got {len(data)}"
            raise InvalidOperand(msg)
        return data.ljust(parameter.size, b"\0")


def _is_pointer(array: np.ndarray[Any, Any], parameter: Parameter) -> bool:
    """Whether an array is meant to be pointed at: always, unless it is the very bytes of a struct."""
    is_pointer_sized = parameter.size == parameter.align == 8
    return not parameter.is_array or (is_pointer_sized and array.nbytes != parameter.size)


def _scalar(value: object, number: int, parameter: Parameter) -> bytes:
    """The bytes of a number, a null pointer or a block of bytes."""
    what = f"argument {number} ({parameter.name}, .{parameter.type})"
    if value is None:
        if parameter.size != 8:
            msg = f"{what}: None is a null pointer of 8 bytes, expected {parameter.size} bytes"
            raise InvalidOperand(msg)
        return bytes(8)
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, np.ndarray | np.generic):
        data = value.tobytes()
    elif isinstance(value, bool | int | float):
        data = _python_number(value, what, parameter)
    else:
        msg = f"{what}: expected an array, a number, bytes or None, got {quote(value)}"
        raise InvalidOperand(msg)
    if len(data) != parameter.size:
        msg = f"{what}: expected {parameter.size} bytes, got {len(data)} of {quote(value)}"
        raise InvalidOperand(msg)
    return data


def _python_number(value: float, what: str, parameter: Parameter) -> bytes:
    """A plain number of Python takes the type of its parameter."""
    if isinstance(value, float):
        if parameter.size not in {4, 8} or parameter.type[0] in "us":
            msg = f"{what}: expected an integer, got {value}; give a numpy scalar to choose its bits"
            raise InvalidOperand(msg)
        return np.array(value, f"f{parameter.size}").tobytes()
    if parameter.type[0] == "f":
        return np.array(value, f"f{parameter.size}").tobytes()
    bits = 8 * parameter.size
    if parameter.size > 8 or not -(1 << (bits - 1)) <= value < 1 << bits:
        msg = f"{what}: expected an integer of {bits} bits, got {quote(value)}"
        raise InvalidOperand(msg)
    return (int(value) & ((1 << bits) - 1)).to_bytes(parameter.size, "little")
