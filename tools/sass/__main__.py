"""Compare captured GPU launches with the machine's execution of the cubin.

    python -m tools.sass compare FOLDER    compare captured launches; print which are equal and which are called exact
    python -m tools.sass compare FOLDER --evidence counts.xz    also count the spellings of equal launches
    python -m tools.sass spellings examples.json [FOLDER ...] --seeds FIRST COUNT    find the spellings in captured
                                                        launches and random kernels that are not in the table yet
    python -m tools.sass probe examples.json --out FOLDER    on a machine with a GPU: run each, and record the results
    python -m tools.sass evidence counts*.xz    write the table of compared spellings and docs/evidence/h200_sass.md

A folder has the records of `tools.fuzz record` or of `probe`, or cases.json and memory.npz, or operations.json, or
NAME.ptx with NAME.json and NAME.npz; tests/data/ptx stands for all captured launches of the tests. PTX is assembled by
the ptxas that `warpfrag.cuda_tools` finds; only the version in an H200's driver reproduces the H200's bytes. --part
3/16 compares every sixteenth case, starting with case 3; the first case has number 0.
"""

import lzma
import os
import sys
import time
import traceback
from argparse import ArgumentParser, Namespace
from collections import Counter
from itertools import islice
from pathlib import Path

from tools.fuzz.generate import SIZE
from tools.sass.captures import Case, Launch, Runner, in_engine, read_cases
from tools.sass.evidence import SpellingCount, SpellingTable, observe, report, table_text
from tools.sass.probe_runs import FILE, find_spellings, probe_cases, read_examples, record_probes, write_examples
from tools.sass.variants import variants_of
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.sass.compared_spellings import compared_rows, read_compared

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "src/warpfrag/sass/compared_sm_90.txt.xz"
PAGE_PATH = ROOT / "docs/evidence/h200_sass.md"
SAVED_EVERY = 4
"""The number of cases between writes of the counts."""


def outcome(case: Case, runner: Runner) -> tuple[str, str, frozenset[str]]:
    """Return a case's verdict, the differences or the reason why it did not run, and the names of differing results."""
    try:
        results = case.run(runner)
    except Exception as error:  # noqa: BLE001 (reported for each case)
        if "is not modelled" in str(error):
            return "refused", str(error), frozenset()
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "error", f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})", frozenset()
    reasons = {}
    for name, computed, expected in results:
        wrong = [at for at, (a, b) in enumerate(zip(computed, expected, strict=True)) if a != b]
        if wrong:
            reasons[name] = f"{name}: {len(wrong)} of {len(expected)} bytes, the first at {wrong[0]}"
    return "differ" if reasons else "equal", "; ".join(reasons.values()), frozenset(reasons)


def observed_outcome(case: Case, table: SpellingTable) -> tuple[str, str]:
    """Return the outcome of a case; add the spellings with equal results to the table."""
    own = SpellingTable()

    def run(launch: Launch, options: LaunchOptions) -> None:
        own.join(observe(launch, options, table))

    verdict, reason, wrong = outcome(case, run)
    if case.is_by_spelling and verdict == "differ":
        for spelling in wrong:
            own[spelling] = SpellingCount(differs=True)
    if verdict == "equal" or (case.is_by_spelling and verdict == "differ"):
        table.join(own)
    return verdict, reason


def compare_cases(arguments: Namespace) -> int:
    """Compare the cases of a folder; return 1 if one is not equal."""
    table = SpellingTable(compared=read_compared("sm_90") if arguments.keep else frozenset())
    counts: Counter[str] = Counter()
    part, parts = map(int, arguments.part.split("/"))
    has_probes = (arguments.folder / FILE).exists()
    cases = probe_cases(arguments.folder) if has_probes else read_cases(arguments.folder, part, parts)
    for case in islice(cases, part, None, parts) if has_probes else cases:
        if arguments.only not in case.name:
            continue
        start = time.perf_counter()
        if arguments.evidence is None:
            reasons: list[str] = []
            verdict, reason, _ = outcome(case, in_engine(arguments.engine, reasons))
            if verdict in {"equal", "differ"}:
                counts[f"exact and {verdict}"] += not reasons
                reason = reason or "; ".join(reasons) or "exact"
        else:
            verdict, reason = observed_outcome(case, table)
        counts[verdict] += 1
        if arguments.evidence is not None and sum(counts.values()) % SAVED_EVERY == 0:
            table.write(arguments.evidence)
        print(f"{verdict:8} {case.name} {reason[:2000]} ({time.perf_counter() - start:.1f} s)", flush=True)
    if arguments.evidence is not None:
        table.write(arguments.evidence)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(bool(set(+counts) - {"equal", "exact and equal"}))


def write_evidence(arguments: Namespace) -> int:
    """Write the table of compared spellings and its page."""
    table = SpellingTable()
    for path in arguments.counts:
        table.join(SpellingTable.read(path))
    for row in compared_rows("sm_90") if arguments.keep else ():
        table[row.spelling].add(SpellingCount(row.kernels, row.sets, 1, set(range(-row.distinct, 0))))
    TABLE.write_bytes(lzma.compress(table_text(table).encode(), preset=9))
    PAGE_PATH.write_text(report(table, arguments.ran), encoding="utf-8")
    return 0


def write_spellings(arguments: Namespace) -> int:
    """Write encodings of the spellings in random kernels and captured launches that were not compared yet."""
    first, count = arguments.seeds
    found = find_spellings(range(first, first + count), arguments.size, arguments.folders, arguments.workers)
    print(found.report())
    examples = found.uncompared()
    if arguments.variants:
        near = variants_of(
            {name: list(codes) for name, codes in found.examples.items()},
            found.compared,
            arguments.variants,
            arguments.workers,
        )
        examples |= {name: codes for name, codes in near.items() if not found.is_compared(name)}
    write_examples(examples, arguments.out)
    print(f"{len(examples)} spellings written")
    return 0


def probe_spellings(arguments: Namespace) -> int:
    """Probe spellings on the GPU."""
    record_probes(read_examples(arguments.examples), arguments.out, arguments.workers, arguments.seconds)
    return 0


def main() -> int:
    """Run the command that the first argument names."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    compare = commands.add_parser("compare")
    compare.add_argument("folder", type=Path)
    compare.add_argument("--engine", default="reference", choices=("reference", "compiled"))
    compare.add_argument("--only", default="")
    compare.add_argument("--part", default="0/1")
    compare.add_argument("--evidence", type=Path)
    compare.add_argument("--keep", action="store_true", help="count only spellings that the table lacks")
    compare.set_defaults(function=compare_cases)
    evidence = commands.add_parser("evidence")
    evidence.add_argument("counts", type=Path, nargs="+")
    evidence.add_argument("--ran", default="", help="a sentence that describes the runs, for the page")
    evidence.add_argument("--keep", action="store_true", help="keep the rows of the table that still count as compared")
    evidence.set_defaults(function=write_evidence)
    spellings = commands.add_parser("spellings")
    spellings.add_argument("out", type=Path)
    spellings.add_argument("folders", type=Path, nargs="*", help="captured launches, or a file of an earlier call")
    spellings.add_argument("--seeds", type=int, nargs=2, default=(0, 0), metavar=("FIRST", "COUNT"))
    spellings.add_argument("--size", type=int, default=SIZE, help="number of statements in a random kernel")
    spellings.add_argument("--workers", type=int, default=os.cpu_count())
    spellings.add_argument("--variants", type=int, default=0, help="add spellings that differ in up to N bits")
    spellings.set_defaults(function=write_spellings)
    probe = commands.add_parser("probe")
    probe.add_argument("examples", type=Path, help="a file that `spellings` wrote")
    probe.add_argument("--out", type=Path, required=True)
    probe.add_argument("--workers", type=int, default=os.cpu_count())
    probe.add_argument("--seconds", type=float, default=300)
    probe.set_defaults(function=probe_spellings)
    arguments = parser.parse_args()
    status: int = arguments.function(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
