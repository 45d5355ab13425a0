"""Compile loops with numba: used by `machine.jit` only, until its loops are C too.

numba trusts a cached function while its own file is unchanged, even if a function it calls has changed in another
file. So the name under which a kernel is cached has a digest: of the text of every kernel, and of the files whose
constants are compiled into them, so that an upgrade can never mix old and new code; and of numba, Python and the
processor, so that a file of that name is one that can be loaded. What only kernels call is compiled into them, and not
cached by itself.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba import njit

from warpfrag.tensorcore.kernels import objects
from warpfrag.tensorcore.kernels import processor as target
from warpfrag.tensorcore.kernels.objects import say_uncached

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""An array of a dtype that the kernel is compiled for."""
# Numbers of a kernel are machine integers and floats of the widths that numba infers. A type checker has no such types:
# to it, an operation on a np.uintp and a np.int32, or on either and an int, is something else each time.
Int: TypeAlias = Any
Float: TypeAlias = Any
Flag: TypeAlias = Any

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


FOLDER = Path(__file__).parent


def _digest() -> str:
    """Return a short digest of everything that compiled code depends on."""
    machine = (numba.__version__, sys.implementation.cache_tag, get_host_cpu_name(), get_host_cpu_features().flatten())
    named = target.named_target()
    return hashlib.sha256(f"{SOURCE_DIGEST} {machine} {named and named.name}".encode()).hexdigest()[:16]


SOURCE_DIGEST = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.py")))).hexdigest()
"""The digest of the text of these modules."""
KERNELS_DIGEST = _digest()

# No C wrapper, which nothing calls; no code for division by zero, which never happens. Both only cost compile time.
OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


ENTRIES: list[KernelEntry[...]] = []
"""Every function that Python calls, in the order of their definition."""


class KernelEntry(Generic[Parameters]):
    """A compiled function that Python calls: `run` loads or compiles it at the first call, and is replaced by it."""

    def __init__(self, function: Callable[Parameters, None]) -> None:
        """Cache it on disk, or only in memory if there is no folder to write to."""
        self.name = function.__name__
        function.__qualname__ = f"{function.__name__}_{KERNELS_DIGEST}"
        self.__doc__ = function.__doc__
        try:
            self.compiled = njit(**OPTIONS, cache=True)(function)
        except RuntimeError:  # numba's error if neither the package nor the user's folder can be written
            say_uncached("no folder can be written")
            self.compiled = njit(**OPTIONS)(function)
        self.run: Callable[Parameters, None] = self._run_first
        ENTRIES.append(self)

    @property
    def is_cached(self) -> bool:
        """True if this version has been compiled before: for the wheel, here, or by another process."""
        if objects.function_of(self.name, SOURCE_DIGEST) is not None:
            return True
        folder, name = self.compiled.stats.cache_path, self.compiled.py_func.__qualname__
        return bool(self.compiled.signatures) or (folder is not None and any(Path(folder).glob(f"*{name}-*.nbi")))

    def bound(self, *args: Parameters.args, **options: Parameters.kwargs) -> Callable[[], None]:
        """Return `run` with these arguments, which it keeps alive; object code converts them to words only once."""
        ready = objects.function_of(self.name, SOURCE_DIGEST)
        kinds, words = objects.words_of(args)
        if options or ready is None or ready.kinds != kinds:
            return partial(self.run, *args, **options)
        return ready.bound(words, args)

    def _run_first(self, *args: Parameters.args, **options: Parameters.kwargs) -> None:
        """Load or compile it, then run it; later calls go straight to the compiled code."""
        ready = objects.function_of(self.name, SOURCE_DIGEST)
        if ready is not None:
            self.run = self._object_or_compiled(ready)
            self.run(*args, **options)
            return
        self._compile_and_run(*args, **options)
        self.run = self.compiled

    def _object_or_compiled(self, ready: objects.ObjectFunction) -> Callable[Parameters, None]:
        """Return a function that runs an object's code, and compiles for arguments that the object was not made for."""

        def run(*args: Parameters.args, **options: Parameters.kwargs) -> None:
            if options or not ready.run(args):
                self._compile_and_run(*args, **options)

        return run

    def _compile_and_run(self, *args: Parameters.args, **options: Parameters.kwargs) -> None:
        """Run it by numba, which compiles it for arguments of new types."""
        try:
            self.compiled(*args, **options)
        except OSError as error:  # the disk is full: the code is there, but was not saved
            say_uncached(str(error))
            self.compiled(*args, **options)


def entry(function: Callable[Parameters, None]) -> KernelEntry[Parameters]:
    """Compile a function that Python calls. Where it computes with floats, it enters the environment first."""
    return KernelEntry(function)


def inner(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function that only kernels call: without the wrapper that a call from Python needs."""
    compiled: Callable[Parameters, Result] = njit(**(OPTIONS | {"no_cpython_wrapper": True}))(function)
    return compiled
