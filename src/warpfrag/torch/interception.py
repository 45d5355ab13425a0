"""Changes to the whole process while an emulation is active.

PyTorch's modes belong to a thread. PyTorch passes them on to autograd's threads, but not to threads that Python starts.
Matmuls in those threads are intercepted one level lower, in the dispatcher: every operation passes the key
BackendSelect between autograd and the kernels of its device. Kernels registered there are never removed, because a
thread may be running one. If no emulation is active, they call PyTorch's original kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial, wraps
from threading import Lock
from typing import Any

import torch

from warpfrag.torch.attention import ATTENTION
from warpfrag.torch.torch_operations import is_composite

Run = Callable[[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
KEY = "BackendSelect"
START_METHODS = ("spawn", "forkserver")
"""Start methods whose child processes do not inherit this process's memory."""


class ProductHooks:
    """Dispatcher kernels that intercept operations in every thread."""

    def __init__(self) -> None:
        """Create the hooks, with no kernels registered."""
        self._library: Any = None
        self._lock = Lock()

    def install(self, operations: Iterable[Any], run: Run) -> None:
        """Register `run` once per process; it takes an operation, PyTorch's implementation, and the arguments."""
        with self._lock:
            if self._library is not None:
                return
            self._library = torch.library.Library("aten", "IMPL")
            below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, KEY))  # noqa: SLF001
            for operation in operations:
                if not is_composite(operation):
                    self._library.impl(operation, _kernel(operation, below, run), KEY, with_keyset=True)


def _kernel(operation: Any, below: Any, run: Run) -> Callable[..., Any]:  # noqa: ANN401 (an overload and keys of torch)
    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's signature)
        return run(operation, partial(operation.redispatch, keys & below), args, kwargs)

    return kernel


class ProcessSwitch:
    """The settings of the process while at least one emulation is active.

    Attention runs as separate matmuls, not as one fused kernel. Functions of torch.compile run uncompiled, because
    compiled code may contain matmuls that the dispatcher does not see. Attention is watched in `torch.nn.functional`,
    because modes do not see calls from PyTorch's own functions, such as the one in nn.MultiheadAttention.
    """

    def __init__(self, warn_of_workers: Callable[[str], None], watch_attention: Callable[..., Any]) -> None:
        """Create the switch, given the functions that warn about DataLoader workers and that call attention."""
        self._watch_attention = wraps(ATTENTION)(watch_attention)
        self._users = 0
        self._lock = Lock()
        self._undo = ExitStack()
        self._warn_of_workers = warn_of_workers

    def __enter__(self) -> None:
        """Change the settings when the first emulation is entered."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with self._lock:
            if not self._users:
                with ExitStack() as undo:
                    undo.enter_context(sdpa_kernel(SDPBackend.MATH))
                    undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
                    torch.backends.mha.set_fastpath_enabled(False)
                    # if these are not loaded, nothing is compiled; importing torch._dynamo takes seconds
                    if {"torch._dynamo", "torch.nn.attention.flex_attention"} & sys.modules.keys():
                        undo.enter_context(torch.compiler.set_stance("force_eager"))
                    undo.callback(setattr, torch.nn.functional, "scaled_dot_product_attention", ATTENTION)
                    torch.nn.functional.scaled_dot_product_attention = self._watch_attention
                    undo.callback(setattr, torch.utils.data.DataLoader, "__iter__", self._watch_loaders())
                    self._undo = undo.pop_all()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        """Restore the settings when the last emulation is left."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._undo.close()

    def _watch_loaders(self) -> Callable[[Any], Iterator[Any]]:
        """Replace `DataLoader.__iter__` with one that warns about workers, and return the original."""
        plain: Callable[[Any], Iterator[Any]] = torch.utils.data.DataLoader.__iter__

        def watched(loader: Any) -> Iterator[Any]:  # noqa: ANN401 (a DataLoader)
            method = (loader.multiprocessing_context or torch.multiprocessing).get_start_method()
            if loader.num_workers and method in START_METHODS:
                self._warn_of_workers(method)
            return plain(loader)

        torch.utils.data.DataLoader.__iter__ = watched
        return plain
