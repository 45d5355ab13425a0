"""`warpfrag loads`: every way to fill an operand from shared memory."""

from __future__ import annotations

from typing import Any

from warpfrag.cli.command import verb
from warpfrag.cli.ways import Asked, answer, way_options


@verb(
    "warpfrag loads mma.m16n8k16.f32.f16.f16.f32 a --order row --pitch 128 --swizzle 128",
    "warpfrag loads mma.m16n8k16.f32.f16.f16.f32 b:col=2 --order col --pitch 128 --swizzle 128 --lanes   # two tiles",
    "warpfrag loads mma.m16n8k16.f32.f16.f16.f32 a --search",
    "warpfrag loads mma.m16n8k16.f32.f16.f16.f32 b --pitch 128 --swizzle 128 --emit cuda",
    "warpfrag loads mma.m16n8k16.f32.f16.f16.f32 a --pitch 128 --swizzle 128 -o addresses.svg",
)
@way_options
def command(**asked: Any) -> int:  # noqa: ANN401 (the fields of Asked)
    """Every way to fill an operand from shared memory, the cheapest first: addresses, passes and bank conflicts.

    OPERAND is a, b, c or d; b:col=2 is two tiles side by side, row=2 two below each other. Without --pitch the matrix
    has no gaps. All sizes are in bytes. The cost is the number of instructions and of passes of shared memory.
    """
    return answer("load", Asked(**asked))
