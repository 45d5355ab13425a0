"""The compiled library: checked, loaded once, and called with arrays and numbers.

A function is declared with the types of its arguments:

    dot = NativeFunction("dot", "f8[1] f8[1] i8")     # two arrays of float64, and an integer
    dot.run(x, y, 3)

In C it is `ENTRY(dot)(const struct dot_arguments *arguments)`; see `entry.h`. The library is loaded only if its digest
is the one in the manifest, and the manifest was written for these C files and this machine. Otherwise one warning gives
the reason, and callers use their portable code.
"""

import ctypes
import hashlib
import json
import os
import struct
import warnings
from collections.abc import Callable, Iterable
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from warpfrag.errors import SlowArithmetic
from warpfrag.tensorcore.native.levels import LEVELS, MANIFEST, host_machine, library_name, source_digest, target_of

FOLDER = Path(__file__).parent
VARIABLE: Final = "WARPFRAG_KERNELS"
"""The environment variable that selects a level instead of the best one, or PORTABLE."""
PORTABLE: Final = "portable"


class NativeLibrary:
    """The loaded library, at the best level for this processor."""

    def __init__(self, path: Path) -> None:
        """Load a library whose digest the caller has checked."""
        self.path = path
        self.handle = ctypes.CDLL(str(path))
        levels = [level.name for level in LEVELS[host_machine()]]
        runnable = levels[: 1 + int(self.handle[f"processor_level__{levels[0]}"]())]
        named = os.environ.get(VARIABLE)
        if named and named not in runnable:
            raise ValueError(f"{VARIABLE} is {named!r}; expected {', '.join((*runnable, PORTABLE))}")
        self.level = named or runnable[-1]

    def has(self, name: str) -> bool:
        """Return True if a function is compiled for this level."""
        return hasattr(self.handle, f"{name}__{self.level}")

    def function(self, name: str) -> Callable[[bytes], int]:
        """Return a function that takes its arguments as bytes and releases the GIL."""
        function: Any = self.handle[f"{name}__{self.level}"]
        function.argtypes, function.restype = (ctypes.c_char_p,), ctypes.c_int32
        call: Callable[[bytes], int] = function
        return call


def checked_library() -> Path:
    """Return the path of the library; raise ValueError if it was not built from these C files for this machine."""
    machine = host_machine()
    if machine not in LEVELS:
        raise ValueError(f"{machine} processors are not supported")
    try:
        manifest = json.loads((FOLDER / MANIFEST).read_bytes())
        source, target, sha256 = (str(manifest[key]) for key in ("source", "target", "sha256"))
    except FileNotFoundError:
        raise ValueError("this installation does not include them") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{MANIFEST} cannot be read: {error!r}") from error
    if target != target_of(machine):
        raise ValueError(f"they were built for {target}, not for {target_of(machine)}")
    if source != source_digest():
        raise ValueError("they were built from different C files; reinstall warpfrag")
    path = FOLDER / library_name()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"{path.name} is damaged: its digest does not match {MANIFEST}")
    return path


@lru_cache(1)
def library() -> NativeLibrary | None:
    """Return the compiled library, or warn and return None if it cannot be used."""
    if os.environ.get(VARIABLE) == PORTABLE:
        return None
    try:
        return NativeLibrary(checked_library())
    except (ValueError, OSError, AttributeError) as error:
        warn_unusable(str(error))
        return None


def warn_unusable(reason: str) -> None:
    """Warn that compiled code is not used."""
    warnings.warn(
        f"the compiled kernels cannot be used: {reason}. Results are the same, but slower", SlowArithmetic, stacklevel=2
    )


@lru_cache(256)
def array_type(dtype: np.dtype[Any], rank: int) -> str:
    """Return an array's element type and rank in the syntax of declarations."""
    return f"{dtype.str[1:]}[{rank}]"


@cache
def packer(count: int) -> Callable[..., bytes]:
    """Return a function that packs `count` words into bytes; it is six times as fast as a ctypes array."""
    return struct.Struct(f"={count}q").pack


addressof = ctypes.addressof
byte_at: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


def collect(arguments: Iterable[Any], types: list[str], words: list[int]) -> None:
    """Append the types and values of arguments: an array's address and extents, a tuple's fields, or a number.

    Calls for one tile spend a third of their time here, so this is a single pass without generators.
    """
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            shape = argument.shape
            types.append(array_type(argument.dtype, len(shape)) if argument.flags.carray else "not contiguous")
            # `from_buffer` is the fastest method, but it rejects empty and read-only arrays
            words.append(addressof(byte_at(argument)) if argument.size and argument.flags.carray else 0)
            words.extend(shape)
        elif isinstance(argument, tuple):
            collect(argument, types, words)
        else:
            types.append("i8")
            words.append(int(argument))


class NativeFunction:
    """A function of the library, declared by its name and its argument types.

    An array type consists of the element type and the rank, such as u4[3]; arrays are contiguous and writable. A number
    has type i8. A tuple is passed as its fields, one after the other.
    """

    def __init__(self, name: str, types: str) -> None:
        """Declare the function; the first call loads the library."""
        self.name = name
        self.types = types.split()

    @cached_property
    def call(self) -> Callable[[bytes], int]:
        """The function in the library, which must be loaded."""
        loaded = library()
        if loaded is None:
            raise RuntimeError(f"{self.name} is called, but the compiled library is not available")
        return loaded.function(self.name)

    def pack(self, arguments: tuple[object, ...]) -> bytes:
        """Pack the arguments into the bytes of a C structure."""
        types: list[str] = []
        words: list[int] = []
        collect(arguments, types, words)
        if types != self.types:
            raise TypeError(f"{self.name} takes {' '.join(self.types)}, got {' '.join(types)}")
        return packer(len(words))(*words)

    def run(self, *arguments: object) -> None:
        """Call the function."""
        if self.call(self.pack(arguments)):
            raise MemoryError

    def bound(self, *arguments: object) -> Callable[[], None]:
        """Return a callable with these arguments bound; it keeps them alive."""
        call, packed = self.call, self.pack(arguments)

        def run(_kept: tuple[object, ...] = arguments) -> None:
            if call(packed):
                raise MemoryError

        return run
