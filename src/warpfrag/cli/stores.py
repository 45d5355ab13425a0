"""`warpfrag stores`: every way to empty an operand into shared memory."""

from __future__ import annotations

from typing import Any

from warpfrag.cli.command import verb
from warpfrag.cli.ways import Asked, answer, way_options


@verb(
    "warpfrag stores mma.m16n8k16.f16.f16.f16.f16 d --order row --pitch 32 --swizzle 32",
    "warpfrag stores mma.m16n8k16.f32.f16.f16.f32 d --pitch 32 --target sm_80",
    "warpfrag stores mma.m16n8k16.f16.f16.f16.f16 d:col=2 --search --emit ptx",
)
@way_options
def command(**asked: Any) -> int:  # noqa: ANN401 (the fields of Asked)
    """Every way to empty an operand into shared memory, the cheapest first: addresses, passes and bank conflicts.

    OPERAND is a, b, c or d; b:col=2 is two tiles side by side, row=2 two below each other. Without --pitch the matrix
    has no gaps. All sizes are in bytes. The cost is the number of instructions and of passes of shared memory.
    """
    return answer("store", Asked(**asked))
