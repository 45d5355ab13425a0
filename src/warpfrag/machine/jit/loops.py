"""The loops of the compiled engine as Python calls them; numba, which compiles them, is imported only if needed.

A loop is looked up by the types of its arguments: first in the wheel's object code (built by `build_loops`), then in
the local cache (`object_cache`); LLVM loads both. If it is in neither, numba compiles it and the object code is cached.
Files that are damaged, or were built from other sources, are skipped with a warning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from warpfrag.machine.jit import object_cache
from warpfrag.tensorcore.kernels import objects
from warpfrag.tensorcore.kernels.processor import ObjectTarget, targets_for_host

if TYPE_CHECKING:
    from warpfrag.tensorcore.kernels.jit import KernelEntry  # it imports numba

SET = "ptx-"
"""The file-name prefix of the wheel's objects."""
MACHINE = Path(__file__).parents[1]
DEPENDS_ON = (
    *(MACHINE / "jit" / f"{name}.py" for name in ("scheduler", "context", "batch_loops")),
    *(MACHINE / "interpreter" / f"{name}.py" for name in ("mbarriers", "store_tags", "warp_batch")),
    *(
        MACHINE.parent / "tensorcore" / "kernels" / f"{name}.py"
        for name in ("build_objects", "jit", "llvm_helpers", "objects")
    ),
    MACHINE / "ir" / "state_spaces.py",
    MACHINE.parent / "layout" / "coordinates.py",
)
"""The files whose text or constants are compiled into loops."""

LOCK = Lock()


@cache
def source_digest() -> str:
    """Return a digest of all sources that loops are compiled from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in DEPENDS_ON)).hexdigest()


class Loop:
    """A compiled function; `signatures` are the argument types (`objects.kinds_of`) that it is built ahead for."""

    def __init__(self, module: str, name: str, *signatures: str) -> None:
        """Take the function without loading any code; the types in a signature are separated by spaces."""
        self.module, self.name = module, name
        self.signatures = {tuple(text.split()): f"{name}_{number}" for number, text in enumerate(signatures)}
        self.loaded: dict[tuple[str, ...], objects.ObjectFunction | None] = {}

    @property
    def entry(self) -> KernelEntry[...]:
        """The function as numba compiles it; imports numba."""
        from warpfrag.machine.jit import batch_loops, scheduler

        modules = {"batch_loops": batch_loops, "scheduler": scheduler}
        entry: KernelEntry[...] = getattr(modules[self.module], self.name)
        return entry

    def run(self, *arguments: object) -> None:
        """Run the loop."""
        kinds, words = objects.words_of(arguments)
        function = self._function(tuple(kinds), arguments)
        if function is None:
            self.entry.run(*arguments)
        else:
            function.run_words(words)

    def bound(self, *arguments: object) -> Callable[[], None]:
        """Return a function without parameters that runs the loop with these arguments."""
        kinds, words = objects.words_of(arguments)
        function = self._function(tuple(kinds), arguments)
        return partial(self.entry.run, *arguments) if function is None else function.bound(words, arguments)

    def _function(self, kinds: tuple[str, ...], arguments: tuple[object, ...]) -> objects.ObjectFunction | None:
        """Return the code for some argument types, looked up once; None if numba must run it."""
        if kinds not in self.loaded:
            with LOCK:  # one thread builds while others wait
                if kinds not in self.loaded:
                    self.loaded[kinds] = self._find(kinds, arguments)
        return self.loaded[kinds]

    def _find(self, kinds: tuple[str, ...], arguments: tuple[object, ...]) -> objects.ObjectFunction | None:
        """Look up the code for some argument types; None if numba must run it."""
        targets = targets_for_host()
        if kinds not in self.signatures or not targets:
            return None
        name = self.signatures[kinds]
        function = objects.function_of(name, source_digest(), SET)
        return function or self._load(name, targets[0]) or self._build(name, targets[0], arguments)

    def _load(self, name: str, target: ObjectTarget) -> objects.ObjectFunction | None:
        """Load code that this machine compiled before."""
        file = file_of(name, target)
        data = object_cache.find(file)
        try:
            return objects.load(data, source_digest(), target.name).get(name) if data else None
        except (ValueError, RuntimeError) as error:
            objects.warn(file, str(error))
            return None

    def _build(self, name: str, target: ObjectTarget, arguments: tuple[object, ...]) -> objects.ObjectFunction | None:
        """Compile with numba and LLVM, and cache the code."""
        from warpfrag.tensorcore.kernels import build_objects

        try:
            data = build_objects.packed({name: (self.entry, arguments)}, source_digest(), target)
            function = objects.load(data, source_digest(), target.name)[name]
        except Exception:  # noqa: BLE001 (numba's inner parts: those of another version may differ; numba itself still runs it)
            return None
        object_cache.keep(file_of(name, target), data)
        return function


def file_of(name: str, target: ObjectTarget) -> str:
    """Return the file name of a loop, derived from everything that it depends on."""
    return object_cache.file_name(f"{source_digest()} {name} {target.name}")


def _each(kinds: str, *types: str) -> tuple[str, ...]:
    """Return signatures with each type filled in, and its code type: types of up to 32 bits use 32-bit codes."""
    return tuple(kinds.format(kind, "<u8" if kind == "<u8" else "<u4") for kind in types)


ELEMENTS = ("|u1", "<u2", "<u4", "<u8")
run_scheduler = Loop(
    "scheduler", "run_scheduler", "<i8[2] <i8[1] <i8[1] |u1[2] |b1[3] <i8[3] <i8[2] <i8[1] <i8[1] <u8[1] |b1[1]"
)
take = Loop("batch_loops", "take", *_each("{}[2] <i8[1] <i8[1] {}[2]", *ELEMENTS))
take_tiles = Loop("batch_loops", "take_tiles", *_each("{}[1] <i8[2] <i8[2] {}[2]", *ELEMENTS[1:]))
put_tiles = Loop("batch_loops", "put_tiles", *_each("{}[1] <i8[2] <i8[2] {}[2]", *ELEMENTS[1:]))
find_equal = Loop("batch_loops", "find_equal", "<u8[1] <i8[1] <i8[2] <i8[1] <i8[1] <u8[1]")
take_units = Loop("batch_loops", "take_units", "<u8[1] <i8[1] <i8[2] <i8[1] <u8[2]")
copy_units = Loop(
    "batch_loops",
    "copy_units",
    "<u8[1] <i8[1] <i8[2] <i8[1] <u8[1] <i8[1] <i8[2] <i8[1] <i8[3] <u8[1] <u8[1] bool <i8[1]",
)
advance_mbarriers = Loop(
    "batch_loops", "advance_mbarriers", "<u8[1] <u8[1] <i8[1] <i8[1] <i8[1] bool <u8[1] |b1[1] <i8[1]"
)
LOOPS: tuple[Loop, ...] = (
    run_scheduler, take, take_tiles, put_tiles, find_equal, take_units, copy_units, advance_mbarriers,
)  # fmt: skip
