"""How the kernels are compiled: cached on disk, without the GIL, never with relaxed floats.

numba trusts a cached function while its own file is unchanged, even if a function it calls has changed in another
file. So the name under which a kernel is cached has a digest: of the text of every kernel, so that an upgrade can never
mix old and new code; and of numba, Python and the processor, so that a file of that name is one that can be loaded.
What only kernels call is compiled into them, and not cached by itself.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name  # type: ignore[import-untyped]
from numba import njit

from warpfrag.errors import SlowArithmetic

if TYPE_CHECKING:
    from collections.abc import Callable

# What a kernel takes and gives; the widths are numba's affair, so mypy is told no more than this.
Array: TypeAlias = Any
Int: TypeAlias = Any
Float: TypeAlias = Any
Flag: TypeAlias = Any


def _digest() -> str:
    """What compiled code depends on, in a few letters."""
    kernels = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    machine = (numba.__version__, sys.implementation.cache_tag, get_host_cpu_name(), get_host_cpu_features().flatten())
    return hashlib.sha256(kernels + repr(machine).encode()).hexdigest()[:16]


KERNELS_DIGEST = _digest()

# No wrapper for C, which nobody calls; no code for a division by zero, which never happens. Both only cost compiling.
OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


class Entry:
    """A compiled function that Python calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Have it cached on disk, or in memory only where there is no folder to write to."""
        function.__qualname__ = f"{function.__name__}_{KERNELS_DIGEST}"
        self.__doc__ = function.__doc__
        try:
            self.compiled = njit(**OPTIONS, cache=True)(function)
        except RuntimeError:  # numba's word for: neither the package nor the user's folder can be written
            say_uncached("no folder can be written")
            self.compiled = njit(**OPTIONS)(function)
        self.run: Callable[..., None] = self._run_first

    @property
    def is_cached(self) -> bool:
        """Whether this very version has been compiled before, here or by another process."""
        folder, name = self.compiled.stats.cache_path, self.compiled.py_func.__qualname__
        return bool(self.compiled.signatures) or (folder is not None and any(Path(folder).glob(f"*{name}-*.nbi")))

    def _run_first(self, *args: Any) -> None:  # noqa: ANN401 (what the kernel takes)
        """Compile or load it, then run it; from then on nothing stands between a call and the compiled code."""
        try:
            self.compiled(*args)
        except OSError as error:  # the disk is full: the code is there, it was just not saved
            say_uncached(str(error))
            self.compiled(*args)
        self.run = self.compiled


def say_uncached(reason: str) -> None:
    """Warn, once, that the next process will have to compile again."""
    if not _SAID:
        _SAID.append(reason)
        warnings.warn(
            f"compiled kernels cannot be kept on disk, so every process compiles its own ({reason}); "
            "NUMBA_CACHE_DIR names a folder that can be written",
            SlowArithmetic,
            stacklevel=2,
        )


_SAID: list[str] = []


def entry(function: Callable[..., Any]) -> Entry:
    """Compile a function that Python calls. Where it computes with floats, it takes the environment first."""
    return Entry(function)


def inner(function: Callable[..., Any]) -> Any:  # noqa: ANN401 (numba decides the types of a compiled function)
    """Compile a function that only kernels call: without the wrapper that a call from Python needs."""
    return njit(**(OPTIONS | {"no_cpython_wrapper": True}))(function)


def inlined(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Put a function into its callers before compiling: a part with a name, without a compilation of its own.

    Such a function may take other compiled functions.
    """
    return njit(nogil=True, inline="always", error_model="numpy")(function)
