"""Arrays with fixed addresses, for pointer tables and structures in memory that contain pointers.

An array argument gets its address when the kernel is launched. If memory contains pointers (the tables of a batched
gemm, linked lists, a `__device__` pointer), addresses must be known before the launch. A `DeviceArray` has a fixed
address as long as it exists, and every launch of this process can access it.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import Array
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.launch.host_arrays import as_bytes, as_host_array


class DeviceArray:
    """An array at a fixed address in global memory; a list of arrays becomes the table of their addresses.

    It uses the array's own memory, which changes in place. Store `address` wherever kernels read pointers:

        >>> import numpy as np
        >>> rows = [np.zeros(4, np.float32), np.ones(2, np.float32)]
        >>> table = DeviceArray(rows)  # float **
        >>> table.array.tolist() == [DeviceArray(rows[0]).address, DeviceArray(rows[1]).address]
        True

    None in a list is a null pointer, and a nested list is another table. A table keeps its arrays alive; the address of
    a deleted DeviceArray is outside every allocation. A view of an array has an address inside that array.
    """

    def __init__(self, source: object) -> None:
        """Register an array, or create a table from a list of arrays, tables and None."""
        self._items: tuple[DeviceArray, ...] = ()  # the arrays of a table, which it keeps alive
        if isinstance(source, list | tuple):
            source = self._table(source)
        array = as_host_array(source, "DeviceArray")
        data = as_bytes(source, "DeviceArray")
        if array is None or data is None:
            raise InvalidOperand(f"DeviceArray: expected an array, or a list of arrays and None, got {quote(source)}")
        self.array: Array = array
        self._source, self.data = source, data
        self.name = ""  # the name in messages
        self.unwritten: NDArray[np.uint8] | None = None  # marks of unwritten bytes, as in `Allocation`
        self.host = data.ctypes.data
        owner = ADDRESSES.owner(self.host, len(data))
        if owner is not None:
            self._items = (*self._items, owner)
        self.address: int = ADDRESSES.place(self) if owner is None else owner.address + self.host - owner.host

    def _table(self, items: Sequence[object]) -> NDArray[np.uint64]:
        self._items = tuple(
            array if isinstance(array, DeviceArray) else DeviceArray(array) for array in items if array is not None
        )
        addresses = iter(self._items)
        return np.array([0 if array is None else next(addresses).address for array in items], np.uint64)

    def __reduce__(self) -> tuple[object, ...]:
        """Raise an error, because the address is meaningless in another process."""
        raise TypeError("a DeviceArray cannot be pickled or copied: its address is valid in this process only")

    def __repr__(self) -> str:
        """Format the type, the shape and the address."""
        return f"<DeviceArray {self.array.dtype}{list(self.array.shape)} at {self.address:#x}>"


class AddressSpace:
    """The arrays with fixed addresses, indexed by device address and by host address."""

    def __init__(self) -> None:
        """Create an empty address space."""
        self.lock = Lock()
        self.arrays: WeakValueDictionary[int, DeviceArray] = WeakValueDictionary()
        self.end = state_spaces.DEVICE_ARRAYS
        # host and device addresses, including those of arrays that no longer exist
        self.places: list[tuple[int, int]] = []
        self.longest = 0  # the size of the longest array in bytes

    def place(self, array: DeviceArray) -> int:
        """Register an array and return its address, which is never reused: a stale address refers to no array."""
        with self.lock:
            address, size = self.end, len(array.data)
            self.end += -(-(max(1, size) + state_spaces.ALIGNMENT) // state_spaces.ALIGNMENT) * state_spaces.ALIGNMENT
            self.arrays[address] = array
            insort(self.places, (array.host, address))
            self.longest = max(self.longest, size)
        return address

    def alive(self) -> list[DeviceArray]:
        """Return all arrays that still exist."""
        with self.lock:
            return list(self.arrays.values())

    def owner(self, start: int, size: int) -> DeviceArray | None:
        """Return the array that contains the given host bytes, or None; forget arrays that no longer exist."""
        with self.lock:
            at = bisect_right(self.places, (start, state_spaces.WINDOWS["shared"]))
            while size and at and self.places[at - 1][0] >= start + size - self.longest:
                at -= 1
                array = self.arrays.get(self.places[at][1])
                if array is None:
                    del self.places[at]
                elif start + size <= array.host + len(array.data):
                    return array
        return None


ADDRESSES = AddressSpace()
"""The address space of this process."""
