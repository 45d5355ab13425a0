"""How the kernels are compiled: cached on disk, without the GIL, never with relaxed floats.

numba trusts a cached function while its own file is unchanged, even if a function it calls has changed in another
file. So the name under which a kernel is cached has a digest of the text of every kernel: an upgrade can never mix
old and new code. What only kernels call is compiled into them, and not cached by itself.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numba import njit

from warpfrag.errors import SlowArithmetic

if TYPE_CHECKING:
    from collections.abc import Callable

# What a kernel takes and gives; the widths are numba's affair, so mypy is told no more than this.
Array: TypeAlias = Any
Int: TypeAlias = Any
Float: TypeAlias = Any
Flag: TypeAlias = Any

KERNELS_DIGEST = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()[:16]

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
