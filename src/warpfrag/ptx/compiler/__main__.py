"""`python -m warpfrag.ptx.compiler`: compile the compiled engine's own loops now, for instance in a container image."""

from __future__ import annotations

from warpfrag.ptx.compiler.access_screen import screen_address
from warpfrag.ptx.compiler.build_loops import example
from warpfrag.ptx.compiler.loops import LOOPS

if __name__ == "__main__":
    for loop in LOOPS:
        for kinds in loop.signatures:
            loop.bound(*map(example, kinds))
    screen_address()
