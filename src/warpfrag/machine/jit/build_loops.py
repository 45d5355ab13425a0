"""`python -m warpfrag.machine.jit.build_loops FOLDER [TARGET ...]`: build the engine's loops for wheels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from warpfrag.machine.jit.loops import LOOPS, SET, source_digest
from warpfrag.tensorcore.kernels import build_objects, objects
from warpfrag.tensorcore.kernels.processor import ObjectTarget

ARRAY = re.compile(r"(.+)\[(\d)\]")


def example(kind: str) -> object:
    """Return an example argument of a kind."""
    array = ARRAY.fullmatch(kind)
    return np.zeros((1,) * int(array[2]), array[1]) if array else {"bool": True}[kind]


def build(target: ObjectTarget, folder: Path) -> None:
    """Write the object file of a target."""
    build_objects.emit_nothing()
    calls = {
        name: (loop.entry, tuple(map(example, kinds))) for loop in LOOPS for kinds, name in loop.signatures.items()
    }
    data = build_objects.packed(calls, source_digest(), target)
    objects.path_of(target, SET, folder).write_bytes(data)


if __name__ == "__main__":
    build_objects.main("warpfrag.machine.jit.build_loops", build)
