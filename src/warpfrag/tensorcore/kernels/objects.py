"""Load object code of numba's loops: used by `machine.jit` only, until its loops are C too.

An object is one ELF file with a function for each entry:

    int32_t NAME(const int64_t *words)        0, or 1 where there is no memory

`words` are the arguments of the loops, one after the other: of an array its address, then its extents; of a tuple its
fields; of a number the number. So it depends on no version of Python, numpy or numba, and the same file is loaded on
Linux and macOS. In front of the code there is one line of JSON: what it was made from (a digest of the text of the
kernels), for which target, the types that each function takes, and a digest of all that and the code. What does not
fit is not used: the caller compiles, and a warning says why. `build_objects` makes them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import warnings
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding as llvm

from warpfrag.errors import SlowArithmetic
from warpfrag.tensorcore.kernels.processor import ObjectTarget, targets_for_host

FOLDER = Path(__file__).parent / "objects"
SUFFIX = ".wfo"
addressof = ctypes.addressof
byte_at: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer  # of an array, which is a buffer


@lru_cache(256)
def kind_of_array(dtype: np.dtype[Any], rank: int) -> str:
    """Return the element type, with its byte order, and the rank of an array."""
    return f"{dtype.str}[{rank}]"


def collect(arguments: Iterable[Any], kinds: list[str], words: list[int]) -> None:
    """Append the types of the arguments, as an object states them for each function, and the words that it takes.

    An array that is not contiguous, not aligned or read-only, and a number that 64 bits do not hold, have kinds that no
    function takes. One tile is one call, of which this takes a third: hence one pass, and no generators.
    """
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            if not argument.flags.carray:
                kinds.append("not plain")
                continue
            shape = argument.shape
            kinds.append(kind_of_array(argument.dtype, len(shape)))
            # `from_buffer` is the quickest; it takes no array without elements
            words.append(addressof(byte_at(argument)) if 0 not in shape else 0)
            words.extend(shape)
        elif isinstance(argument, tuple):
            collect(argument, kinds, words)
        elif isinstance(argument, int) and not -(1 << 63) <= argument < 1 << 63:
            kinds.append("too large")
        else:
            kinds.append(type(argument).__name__)
            if isinstance(argument, (int, np.integer, np.bool_)):
                words.append(int(argument))


def words_of(arguments: Iterable[object]) -> tuple[list[str], list[int]]:
    """Return the types of the arguments, and their words."""
    kinds: list[str] = []
    words: list[int] = []
    collect(arguments, kinds, words)
    return kinds, words


def kinds_of(arguments: Iterable[object]) -> list[str]:
    """Return the types of the arguments."""
    return words_of(arguments)[0]


@cache
def packer(count: int) -> Callable[..., bytes]:
    """Return a function that packs `count` words into bytes; a ctypes array takes six times as long."""
    return struct.Struct(f"={count}q").pack


class ObjectFunction:
    """A function of a loaded object. It checks no types itself: `run` compares them with `kinds`."""

    def __init__(self, address: int, kinds: list[str]) -> None:
        """Wrap the function at an address. ctypes lets other threads run during a call."""
        self.call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)(address)
        self.kinds = kinds

    def run(self, arguments: tuple[object, ...]) -> bool:
        """Run the loops if they were compiled for arguments of these types; otherwise run nothing and return False."""
        kinds, words = words_of(arguments)
        if kinds != self.kinds:
            return False
        self.run_words(words)
        return True

    def run_words(self, words: list[int]) -> None:
        """Run the loops on the words of arguments of its types."""
        if self.call(packer(len(words))(*words)):
            raise MemoryError

    def bound(self, words: list[int], arguments: tuple[object, ...]) -> Callable[[], None]:
        """Return a function that runs the loops on these words; it keeps the arguments alive."""
        call, packed = self.call, packer(len(words))(*words)

        def run(_kept: tuple[object, ...] = arguments) -> None:
            if call(packed):
                raise MemoryError

        return run


def digest_of(head: dict[str, object], code: bytes) -> str:
    """Return a digest of everything that a file states and holds."""
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + code).hexdigest()


def pack(code: bytes, source: str, target: str, functions: dict[str, list[str]]) -> bytes:
    """Return a file of object code with its line of JSON."""
    head: dict[str, object] = {"source": source, "target": target, "functions": functions}
    return json.dumps({"sha256": digest_of(head, code), **head}).encode() + b"\n" + code


def unpack(data: bytes, source: str, target: str) -> tuple[bytes, dict[str, list[str]]]:
    """Return the code of a file and the types of its functions; a ValueError says why it cannot be used."""
    line, _, code = data.partition(b"\n")
    try:
        head = json.loads(line)
        digest, made_from, made_for = head.pop("sha256"), head["source"], head["target"]
        functions: dict[str, list[str]] = head["functions"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("it does not begin as such a file does") from error
    if digest != digest_of(head, code):
        raise ValueError("its digest is not that of its code")
    if made_from != source:
        raise ValueError("it was made from other kernels than those installed")
    if made_for != target:
        raise ValueError(f"it was made for {made_for}")
    return code, functions


def load(data: bytes, source: str, target: str) -> dict[str, ObjectFunction]:
    """Link the functions of a file into this process and return them.

    llvmlite's own memory manager puts code and constants into one block. LLVM's maps each where there is room, and ends
    the process if they are more than 2 GB apart, as they may be if a CUDA context has taken the addresses between.
    """
    code, functions = unpack(data, source, target)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=True)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    addresses = {name: engine.get_function_address(name) for name in functions}
    if not all(addresses.values()):
        raise ValueError("it lacks a function that it names")
    return {name: ObjectFunction(addresses[name], kinds) for name, kinds in functions.items()}


_engines: list[Any] = []
"""They own the code, for as long as the process runs."""


def path_of(target: ObjectTarget, loops: str = "", folder: Path | None = None) -> Path:
    """Return the path of a target's object, which need not exist; `loops` are those of a product, or "ptx-"."""
    return (folder or FOLDER) / f"{loops}{target.name}{SUFFIX}"


@lru_cache(2)
def functions(source: str, loops: str = "") -> dict[str, ObjectFunction]:
    """Return the functions of the best object that this machine can run, if any; `source` is its digest."""
    for target in targets_for_host():
        path = path_of(target, loops)
        if not path.exists():
            continue
        try:
            data = path.read_bytes()
        except OSError as error:
            warn(path.name, str(error))
            continue
        try:
            return load(data, source, target.name)
        except (ValueError, RuntimeError) as error:
            warn(path.name, str(error))
    return {}


def warn(file: str, reason: str) -> None:
    """Warn that an object is not used."""
    warnings.warn(
        f"the compiled kernels in {file} cannot be used ({reason}); others are loaded or compiled instead",
        SlowArithmetic,
        stacklevel=2,
    )


def function_of(name: str, source: str, loops: str = "") -> ObjectFunction | None:
    """Return the function of an entry, from this machine's object."""
    return functions(source, loops).get(name)


def say_uncached(reason: str) -> None:
    """Warn, once, that the next process will have to compile again."""
    if not _reasons:
        _reasons.append(reason)
        warnings.warn(
            f"compiled kernels cannot be kept on disk, so every process compiles its own ({reason}); "
            "NUMBA_CACHE_DIR names a folder that can be written",
            SlowArithmetic,
            stacklevel=2,
        )


_reasons: list[str] = []
"""Why nothing is cached: one reason, once there was a warning."""
