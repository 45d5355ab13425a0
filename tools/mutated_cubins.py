"""Read, decode and launch mutated cubins, and report every failure that is not a clear error.

    python -m tools.mutated_cubins 5000 [--first 0]

A cubin of a random kernel is truncated, overwritten or shortened, or gets wrong bits in its headers or its machine
code. Each step must succeed or raise WarpfragError within the time limit. The exit status is 1 if one does not.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache

from tools.arguments import make_parser
from tools.fuzz.emulation import data_of
from tools.fuzz.generate import generate
from tools.sass.captures import arch_of, assemble
from warpfrag.errors import WarpfragError
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.sass_module import SassModule

KERNELS, SIZE = 40, 40
"""The number of different kernels whose cubins are mutated, and the minimum number of statements in each."""
LIMIT, SECONDS = 200_000, 10
"""The number of warp instructions, and of seconds, after which a launch is stopped."""


@cache
def module_of(seed: int) -> SassModule:
    """Return the machine code of a random kernel."""
    text = generate(seed, SIZE).text()
    return assemble(text, arch_of(text))


def mutated(data: bytes, code: range, rng: random.Random) -> bytes:
    """Return a cubin with a random mutation; `code` has the file offsets of its machine code."""
    changed = bytearray(data)
    place = rng.randrange(len(data) - 8)
    match rng.randrange(6):
        case 0:
            return data[:place]
        case 1:
            for _ in range(rng.randrange(1, 9)):
                changed[rng.randrange(len(data))] = rng.randrange(256)
        case 2:
            changed[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\xff\xff\xff\xff\0\0\0\0"])
        case 3:
            del changed[place : place + rng.randrange(1, 200)]
        case 4:
            changed[place % 0x140] ^= 1 << rng.randrange(8)
        case _:
            for _ in range(rng.randrange(1, 4)):
                changed[rng.choice(code)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def outcome(data: bytes, seed: int) -> str:
    """Run a mutated cubin; return "ran", "rejected", or a description of the failure."""
    kernel = generate(seed, SIZE)
    arguments = data_of(kernel)
    options = LaunchOptions(limit=LIMIT, seconds=SECONDS, threads=1)
    try:
        entry = SassModule(Cubin(data))["k"]
        entry.launch(
            kernel.grid,
            kernel.block,
            [arguments.given.copy(), arguments.before.copy(), arguments.blob],
            options=options,
        )
    except WarpfragError:
        return "rejected"
    except Exception as error:  # noqa: BLE001 (any other exception is a finding)
        return f"{type(error).__name__}: {error}"[:300]
    return "ran"


def main(words: Sequence[str] | None = None) -> int:
    """Count the outcomes of mutated cubins."""
    parser = make_parser("mutated_cubins", __doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args(words)
    counts: Counter[str] = Counter()
    slowest = 0.0
    for number in range(arguments.first, arguments.first + arguments.count):
        seed = number % KERNELS
        module = module_of(seed)
        code = module.cubin["k"].code.data
        start = module.cubin.data.index(code)
        began = time.thread_time()
        rng = random.Random(number)  # noqa: S311 (not a secret)
        found = outcome(mutated(module.cubin.data, range(start, start + len(code)), rng), seed)
        slowest = max(slowest, time.thread_time() - began)
        counts[found if found in {"ran", "rejected"} else "failed"] += 1
        if found not in {"ran", "rejected"}:
            print(f"mutation {number}: {found}", flush=True)
    print(
        f"{', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}; slowest {slowest:.1f} s of CPU time"
    )
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
