"""Compares captured launches on a GPU with the machine's execution of the cubin.

    python -m tools.sass compare FOLDER    captured launches: equal, differ or refused, and which are called exact
    python -m tools.sass compare FOLDER --evidence counts.json    and the spellings of the equal ones
    python -m tools.sass evidence counts*.json    write the table of compared spellings and docs/evidence/h200_sass.md

A folder has the records of `tools.fuzz record`, or cases.json and memory.npz, or operations.json, or NAME.ptx with
NAME.json and NAME.npz. The ptxas that is found (`warpfrag.cuda_tools`) assembles PTX; to repeat an H200's bytes it must
be of the version in its driver. --part 3/16 compares every sixteenth case, from the third.
"""

from __future__ import annotations

import lzma
import sys
import time
import traceback
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

from tools.sass.captures import Case, Launch, Runner, in_engine, read_cases
from tools.sass.evidence import SpellingTable, observe, report, table_text
from warpfrag.machine.launch.options import LaunchOptions

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "src/warpfrag/sass/compared_sm_90.txt.xz"
PAGE_PATH = ROOT / "docs/evidence/h200_sass.md"
SAVED_EVERY = 100
"""The number of cases between writes of the counts."""


def outcome(case: Case, runner: Runner) -> tuple[str, str]:
    """Return the verdict of a case, with the difference or the reason why it did not run."""
    try:
        results = case.run(runner)
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


def observed_outcome(case: Case, table: SpellingTable) -> tuple[str, str]:
    """Return the outcome of a case; if it is equal, add its spellings to the table."""
    own = SpellingTable()

    def run(launch: Launch, options: LaunchOptions) -> None:
        own.join(observe(launch, options, table))

    found = outcome(case, run)
    if found[0] == "equal":
        table.join(own)
    return found


def main() -> int:
    """Compare the cases of a folder; the exit status is 1 if one is not equal."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    compare = commands.add_parser("compare")
    compare.add_argument("folder", type=Path)
    compare.add_argument("--engine", default="reference", choices=("reference", "compiled"))
    compare.add_argument("--only", default="")
    compare.add_argument("--part", default="0/1")
    compare.add_argument("--evidence", type=Path)
    evidence = commands.add_parser("evidence")
    evidence.add_argument("counts", type=Path, nargs="+")
    evidence.add_argument("--ran", default="", help="a sentence that says what was run")
    arguments = parser.parse_args()
    table = SpellingTable()
    if arguments.command == "evidence":
        for path in arguments.counts:
            table.join(SpellingTable.read(path))
        TABLE.write_bytes(lzma.compress(table_text(table).encode(), preset=9))
        PAGE_PATH.write_text(report(table, arguments.ran), encoding="utf-8")
        return 0
    counts: Counter[str] = Counter()
    part, parts = map(int, arguments.part.split("/"))
    for case in read_cases(arguments.folder, part, parts):
        if arguments.only not in case.name:
            continue
        start = time.perf_counter()
        if arguments.evidence is None:
            reasons: list[str] = []
            verdict, reason = outcome(case, in_engine(arguments.engine, reasons))
            if verdict in {"equal", "differ"}:
                counts[f"exact and {verdict}"] += not reasons
                reason = reason or "; ".join(reasons) or "exact"
        else:
            verdict, reason = observed_outcome(case, table)
        counts[verdict] += 1
        if arguments.evidence is not None and sum(counts.values()) % SAVED_EVERY == 0:
            table.write(arguments.evidence)
        print(f"{verdict:8} {case.name} {reason[:300]} ({time.perf_counter() - start:.1f} s)", flush=True)
    if arguments.evidence is not None:
        table.write(arguments.evidence)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(bool(set(+counts) - {"equal", "exact and equal"}))


if __name__ == "__main__":
    sys.exit(main())
