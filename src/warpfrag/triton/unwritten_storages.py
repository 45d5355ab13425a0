"""The unwritten memory of new CUDA tensors, such as those of `torch.empty`.

A tensor's memory counts as written after the tensor is passed to a PyTorch function that does more than read its shape
or make a view, after PyTorch counts an in-place change, or after its address is known. Launches with the check
"uninitialised" track each byte; any other launch counts as a write to all of its arguments.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class UnwrittenStorage(NamedTuple):
    """The marks of a storage's unwritten bytes, and a function that returns True if the storage no longer exists."""

    marks: NDArray[np.uint8]
    has_expired: Callable[[], bool]


class UnwrittenStorages(dict[int, UnwrittenStorage]):
    """The storages of this process that have unwritten bytes, by host address."""

    def take(self, address: int, size: int, tensors: Iterable[Any]) -> UnwrittenStorage | None:
        """Remove and return a storage; return None if it expired, was resized, or PyTorch counts a tensor change."""
        found = self.pop(address, None)
        if found is None or found.has_expired() or len(found.marks) != size:
            return None
        return None if any(tensor._version for tensor in tensors) else found  # noqa: SLF001 (documented for autograd)


UNWRITTEN = UnwrittenStorages()
