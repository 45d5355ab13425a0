"""Run Python functions in the default floating-point environment, and restore the caller's afterwards.

A caller may have changed the rounding mode of its thread (fesetround), or enabled flush-to-zero and denormals-are-zero
(libraries built with -ffast-math, torch.set_flush_denormal). NumPy's float operations obey these modes. Compiled
kernels set their own environment (`tensorcore/kernels/environment.h`).

    @exact_floats
    def function(...): ...          # runs in the default environment, whatever the caller's
"""

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
LARGEST_FENV = 64
"""An upper bound for the size of fenv_t in bytes, in any C library."""


@lru_cache(1)
def _library() -> tuple[Any, Any, Any] | None:
    """Return fegetenv, fesetenv and the default environment of the C library, or None if it lacks them."""
    if sys.platform == "win32":
        return None
    for name in (None, "libm.so.6"):  # the process itself has the functions or, with glibc, libm has them
        try:
            library = ctypes.CDLL(name)
            save, load = library.fegetenv, library.fesetenv
        except (OSError, AttributeError):
            continue
        break
    else:
        return None
    save.argtypes = load.argtypes = [ctypes.c_void_p]
    if sys.platform == "darwin":
        return save, load, ctypes.addressof(ctypes.c_byte.in_dll(library, "_FE_DFL_ENV"))
    return save, load, ctypes.c_void_p(-1)  # the value of FE_DFL_ENV in glibc and musl


def exact_floats(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function run in the default floating-point environment, and restore the caller's environment afterwards.

    An interrupt can arrive between any two calls, so the call that restores comes first in `finally`.
    """

    @wraps(function)
    def exactly(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        library = _library()
        if library is None:
            return function(*args, **options)
        save, load, default = library
        caller = ctypes.create_string_buffer(LARGEST_FENV)
        save(caller)
        try:
            load(default)
            return function(*args, **options)
        finally:
            load(caller)

    return exactly
