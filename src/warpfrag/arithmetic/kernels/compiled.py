"""How the kernels are compiled: cached on disk, without the lock of the interpreter, never with relaxed floats.

numba trusts a cached function while its own file is unchanged, even if a function it calls has changed in another
file. Here the cache is also tied to the text of every kernel, so that an upgrade can never mix old and new code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

# What a kernel takes and gives; the widths are numba's affair, so mypy is told no more than this.
Array: TypeAlias = Any
Whole: TypeAlias = Any
Real: TypeAlias = Any
Flag: TypeAlias = Any


KERNELS_DIGEST = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


# No wrapper for C, which nobody calls; no code for a division by zero, which never happens. Both only cost compiling.
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


def _tie_cache(dispatcher: Any) -> Any:  # noqa: ANN401
    """Make the cached code depend on all kernels: the stamp of its file is joined by their digest."""
    files = dispatcher._cache._cache_file  # noqa: SLF001 (numba has no public way)
    files._source_stamp = (files._source_stamp, KERNELS_DIGEST)  # noqa: SLF001
    return dispatcher


def entry(function: Callable[..., Any]) -> Any:  # noqa: ANN401 (numba decides the types of a compiled function)
    """Compile a function that Python calls."""
    return _tie_cache(njit(**OPTIONS)(function))


def inner(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Compile a function that only other kernels call: without the wrapper that a call from Python needs."""
    return _tie_cache(njit(**(OPTIONS | {"no_cpython_wrapper": True}))(function))


def woven(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Put a function into its callers before compiling: a part with a name, without a compilation of its own.

    Such a function may take other compiled functions.
    """
    return njit(nogil=True, inline="always", error_model="numpy")(function)
