"""CPU time of a look-up from the command line, against `import numpy`: at most 1.2 times as much is the promise.

Run it with the interpreter that warpfrag is installed for: `.venv/bin/python benchmarks/lookup.py`
"""

from __future__ import annotations

import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

RUNS = 11
MOST = 1.2
NAME = "mma.m16n8k16.f32.f16.f16.f32"
LOOKUPS = [
    ["at", NAME, "a", "5"],
    ["where", NAME, "a", "9", "3"],
    ["legal", NAME, "--target", "sm_90"],
    ["info", NAME],
]


def cpu_ms(arguments: list[str]) -> float:
    """Median of user and system time of a Python with these arguments, in milliseconds."""
    times = []
    for _ in range(RUNS):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (our own command)
        after = getrusage(RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return 1000 * median(times)


def main() -> int:
    """Print one line per look-up; 1 if one is too slow."""
    yardstick = cpu_ms(["-c", "import numpy"])
    print(f"{'import numpy':<12}{yardstick:6.0f} ms")
    ratios = []
    for words in LOOKUPS:
        spent = cpu_ms(["-m", "warpfrag", *words])
        ratios.append(spent / yardstick)
        print(f"{words[0]:<12}{spent:6.0f} ms  {ratios[-1]:.2f} times")
    return int(max(ratios) > MOST)


if __name__ == "__main__":
    sys.exit(main())
