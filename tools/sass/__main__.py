"""Machine code: what a GPU left in memory against what the machine computes.

    python -m tools.sass compare FOLDER    captured launches: equal, differ or refused

A folder has the records of `tools.fuzz record`, or cases.json and memory.npz, or operations.json, or NAME.ptx with
NAME.json and NAME.npz. The ptxas that is found (`warpfrag.cuda_tools`) assembles PTX; to repeat an H200's bytes it must
be of the version in its driver. --part 3/16 compares every sixteenth case, from the third.
"""

from __future__ import annotations

import sys
import time
import traceback
from argparse import ArgumentParser
from collections import Counter
from itertools import islice
from pathlib import Path

from tools.sass.captures import Case, read_cases
from warpfrag.machine.launch.options import Engine


def outcome(case: Case, engine: Engine) -> tuple[str, str]:
    """Return the verdict of a case, and what differs or why it did not run."""
    try:
        results = case.run(engine)
    except Exception as error:  # noqa: BLE001 (reported for each case)
        if "is not modelled" in str(error):
            return "refused", str(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "error", f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    for name, computed, expected in results:
        wrong = [at for at, (a, b) in enumerate(zip(computed, expected, strict=True)) if a != b]
        if wrong:
            return "differ", f"{name}: {len(wrong)} of {len(expected)} bytes, the first at {wrong[0]}"
    return "equal", ""


def main() -> int:
    """Compare the cases of a folder; the exit status is 1 if one is not equal."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    compare = commands.add_parser("compare")
    compare.add_argument("folder", type=Path)
    compare.add_argument("--engine", default="reference", choices=("reference", "compiled"))
    compare.add_argument("--only", default="")
    compare.add_argument("--part", default="0/1")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    part, parts = map(int, arguments.part.split("/"))
    for case in islice(read_cases(arguments.folder), part, None, parts):
        if arguments.only not in case.name:
            continue
        start = time.perf_counter()
        verdict, reason = outcome(case, arguments.engine)
        counts[verdict] += 1
        print(f"{verdict:8} {case.name} {reason[:300]} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(bool(set(counts) - {"equal"}))


if __name__ == "__main__":
    sys.exit(main())
