"""The variables of a module: `__device__` and `__constant__` memory that its kernels share.

Each launch starts from the initial values of the module's variables. Once a variable has been accessed by name, it
keeps its memory, like an array argument: kernels read the host's values, and their own writes persist. With `keep`, all
variables keep their memory, as on a GPU.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import Array
from warpfrag.machine.ir.program import ModuleVariable
from warpfrag.machine.ir.scalar_types import TYPES, Type
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.symbol_names import matching, readable, resolve


class Symbols(Mapping[str, "Array"]):
    """The variables of a module by name, as views of their memory with the declared type and shape.

    Names are looked up like those of entries: mangled, in C++ form, or a unique part. nvcc declares most arrays as
    bytes: use `symbols["table"].view(np.float32)` to read the numbers.
    """

    def __init__(self, read: Callable[[], dict[str, ModuleVariable]], *, keep: bool = False) -> None:
        """Create the mapping; `read` returns the declarations and is called on first use."""
        self._read, self.keep = read, keep
        self._held: dict[str, tuple[NDArray[np.uint8], ModuleVariable]] = {}
        self._targets: dict[str, DeviceArray] = {}  # the arrays that pointer variables refer to, to keep them alive

    @cached_property
    def variables(self) -> dict[str, ModuleVariable]:
        """The declaration of each variable, with its address and initial bytes."""
        return self._read()

    def __getitem__(self, name: str) -> Array:
        """Return a variable's memory, which later launches keep using; raise PtxError for an unknown name."""
        symbol = resolve(name, list(self), "variables")
        variable = self.variables[symbol]
        return as_declared(self._hold(symbol, variable), variable)

    def __setitem__(self, name: str, values: ArrayLike | DeviceArray) -> None:
        """Assign values to a variable, or a DeviceArray to a pointer variable, which then keeps the array alive."""
        memory, symbol = self[name], resolve(name, list(self), "variables")
        try:
            memory[...] = values.address if isinstance(values, DeviceArray) else values
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidOperand(
                f"cannot assign to {readable(symbol)}, {memory.dtype} of shape {memory.shape}: {error}"
            ) from None
        self._targets.pop(symbol, None)
        if isinstance(values, DeviceArray):
            self._targets[symbol] = values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, as spelled in PTX."""
        return iter(self.variables)

    def __len__(self) -> int:
        """Return the number of variables."""
        return len(self.variables)

    def __contains__(self, name: object) -> bool:
        """Return True if a name identifies one variable."""
        return isinstance(name, str) and len(matching(name, list(self))) == 1

    def __repr__(self) -> str:
        """Format the names, types and shapes."""
        rows = (f"{readable(name)}: .{symbol.type} {list(symbol.shape)}" for name, symbol in self.variables.items())
        return f"<variables {'; '.join(rows)}>" if self.variables else "<no variables>"

    def reset(self) -> None:
        """Reset every kept variable to its initial values in place."""
        for data, variable in self._held.values():
            data[...] = initial_bytes(variable)
        self._targets.clear()

    @property
    def is_held(self) -> bool:
        """True if launches may start from values other than the initial ones."""
        return self.keep or bool(self._held)

    def bind(self, symbol: str, memory: NDArray[np.uint8]) -> None:
        """Use the caller's memory, including its contents, for a variable."""
        self._held[symbol] = memory, self.variables[symbol]

    def storage(self, name: str, variable: ModuleVariable) -> NDArray[np.uint8]:
        """Return the memory that a launch uses for a variable: kept memory if there is any, otherwise new memory."""
        if self.keep:
            return self._hold(name, variable)
        return self._held[name][0] if name in self._held else initial_bytes(variable)

    def _hold(self, name: str, variable: ModuleVariable) -> NDArray[np.uint8]:
        if name not in self._held:
            self._held[name] = initial_bytes(variable), variable
        return self._held[name][0]


def initial_bytes(variable: ModuleVariable) -> NDArray[np.uint8]:
    """Return new memory that contains a variable's initial values."""
    data = np.zeros(variable.size, np.uint8)
    data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
    return data


def as_declared(data: NDArray[np.uint8], variable: ModuleVariable) -> Array:
    """Return a view of a variable's memory with its declared type and shape."""
    ptx_type = TYPES[variable.type]
    shape = (*variable.shape, 2) if ptx_type.bits == 128 else variable.shape
    return data.view(dtype_of(ptx_type)).reshape(shape)


def dtype_of(ptx_type: Type) -> np.dtype[Any]:
    """Return the NumPy or ml_dtypes dtype of a PTX type, or the dtype of its codes if there is none."""
    if ptx_type.kind == "s" and ptx_type.parts == 1:
        return np.dtype(f"i{ptx_type.bits // 8}")
    if ptx_type.name in {"f16", "f32", "f64"}:
        return np.dtype(f"f{ptx_type.bits // 8}")
    return np.dtype(ml_dtypes.bfloat16) if ptx_type.name == "bf16" else ptx_type.dtype
