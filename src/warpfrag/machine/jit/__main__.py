"""`python -m warpfrag.machine.jit`: compile the compiled engine's own loops now, for instance in a container image."""

from __future__ import annotations

from warpfrag.machine.jit.access_screen import screen_address
from warpfrag.machine.jit.build_loops import example
from warpfrag.machine.jit.loops import LOOPS

if __name__ == "__main__":
    for loop in LOOPS:
        for kinds in loop.signatures:
            loop.bound(*map(example, kinds))
    screen_address()
