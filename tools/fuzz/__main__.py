"""Run random kernels, and compare the memory that a GPU leaves with that of the PTX machine.

    python -m tools.fuzz run FIRST COUNT --out FOLDER     with a GPU: compare kernels, explain differences, report
    python -m tools.fuzz record FIRST COUNT --out FOLDER  with a GPU: record its results, to compare them later
    python -m tools.fuzz execute FIRST COUNT --out FOLDER with a GPU: execute the cubins on it and on the machine
    python -m tools.fuzz report FOLDER                    write the report of a run that ended before writing one
    python -m tools.fuzz probe --out FOLDER               with a GPU: compare each spelling alone, in several contexts
    python -m tools.fuzz check FIRST COUNT [--coverage]   without a GPU: assemble kernels, and list unused opcode rows
    python -m tools.fuzz show SEED                        print a kernel
    python -m tools.fuzz spellings                        query ptxas again for the spellings of every row
    python -m tools.fuzz keep FOLDER                      install what `run --keep N` chose as the tests' fixed set

A seed and a size always give the same kernel. `run` writes counts, causes and the coverage of the opcode rows to
fuzz.json and fuzz.md, and every kernel that differs to differing.zip. The exit status is 1 if a kernel differs although
none of its lines is uncertain.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import make_parser
from tools.fuzz import fixed_set
from tools.fuzz.assembler import assemble
from tools.fuzz.campaign import (
    CALLED_CERTAIN,
    KINDS,
    compare_all,
    compare_engines,
    explain,
    probe_all,
    read_answers,
    write_report,
)
from tools.fuzz.coverage import missing, rows_of
from tools.fuzz.generate import SIZE, generate
from tools.fuzz.pool import work
from tools.fuzz.record import Recorded, write
from tools.fuzz.spellings import TARGETS, write_table

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence


def run(arguments: Namespace) -> int:
    """Compare many kernels, explain the differences, and write the report."""
    began = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.count)
    tally = compare_all(
        seeds,
        arguments.size,
        arguments.workers,
        arguments.seconds,
        arguments.out,
        on_gpu=not arguments.without_gpu,
        kept=arguments.keep,
    )
    tally.counts["seconds"] = round(time.monotonic() - began)
    if arguments.engines:
        compare_engines(tally, seeds[:: arguments.engines], arguments.size, arguments.workers, arguments.seconds)
    write_report(arguments.out, tally, {}, arguments.size)
    wrong = sorted(tally.seeds[CALLED_CERTAIN])
    causes = explain(wrong, arguments.size, arguments.workers, arguments.explain) if wrong else {}
    tally.counts["seconds with causes"] = round(time.monotonic() - began)
    print(write_report(arguments.out, tally, causes, arguments.size))
    return int(bool(tally.counts[CALLED_CERTAIN]))


def record(arguments: Namespace) -> int:
    """Record the results of many kernels on the GPU."""
    seeds = range(arguments.first, arguments.first + arguments.count)
    options = {
        "size": arguments.size,
        "keeps": arguments.bytes,
        "favour": arguments.favour,
        "uses_driver": not arguments.cubin_only,
    }
    jobs = [{"do": "record", "seed": seed, **options} for seed in seeds]
    states: Counter[str] = Counter()
    records = []
    for answer in work(jobs, arguments.workers, seconds_each=20, seconds=arguments.seconds):
        states[answer["state"]] += 1
        if "record" in answer:
            records.append(Recorded(*answer["record"]))
        else:
            print(json.dumps(answer))
    records.sort()
    write(arguments.out, records)
    same = sum(item.left[0] == item.left_by_driver for item in records)
    repeated = sum(item.left[0] == item.left[1] for item in records)
    print(f"{dict(states)}; {repeated} repeat, {same} equal the results of the driver's code")
    return 0


def execute(arguments: Namespace) -> int:
    """Execute the machine code of many kernels here and on the GPU, and count those reported as exact."""
    seeds = range(arguments.first, arguments.first + arguments.count)
    jobs = [{"do": "execute", "seed": seed, "size": arguments.size} for seed in seeds]
    states: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "executed.jsonl").open("w", encoding="utf-8") as lines:
        for answer in work(jobs, arguments.workers, seconds_each=120, seconds=arguments.seconds):
            lines.write(json.dumps(answer) + "\n")
            states[answer["state"]] += 1
            exact[answer["state"]] += answer.get("exact", False)
            if answer["state"] != "equal" or not answer["exact"]:
                print(json.dumps(answer)[:600], flush=True)
    print(f"{dict(states)}; called exact: {dict(+exact)}")
    return int(bool(exact["differs"]))


def report(arguments: Namespace) -> int:
    """Write the report for the stored answers of a run."""
    tally = read_answers(arguments.folder)
    print(write_report(arguments.folder, tally, {}, arguments.size))
    return int(bool(tally.counts[CALLED_CERTAIN]))


def probe(arguments: Namespace) -> int:
    """Compare every spelling alone, in several contexts."""
    found = probe_all(arguments.workers, arguments.seconds, arguments.targets.split(","), arguments.only)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "probes.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    for item in found["differences"]:
        known = "called certain" if item["certain"] else "uncertain"
        where = f"{known} {item['target']} {item['context']}"
        print(f"{where}: {item['text']} {item['operands']} gpu {item['gpu']} here {item['here']}")
    wrong = sum(item["certain"] for item in found["differences"])
    print(
        f"{found['probes']} probes, {len(found['differences'])} differ, {wrong} of them called certain;"
        f" {len(found['failed'])} modules failed"
    )
    return int(bool(wrong))


def check_seed(job: tuple[int, int, bool]) -> tuple[int, str, list[str]]:
    """Return the lines of a seed's kernel that ptxas rejects, and its opcode rows."""
    seed, size, assembled = job
    kernel = generate(seed, size)
    text = kernel.text()
    refused = assemble(text, kernel.target) if assembled else {}
    lines = ["", *text.split("\n")]
    return seed, "; ".join(f"{lines[line]}: {why}" for line, why in refused.items()), sorted(rows_of(kernel))


def check(arguments: Namespace) -> int:
    """Assemble every kernel and count the opcode rows."""
    rows: Counter[str] = Counter()
    bad = 0
    jobs = [
        (seed, arguments.size, not arguments.coverage)
        for seed in range(arguments.first, arguments.first + arguments.count)
    ]
    with ProcessPoolExecutor(arguments.workers) as pool:
        for seed, refused, used in pool.map(check_seed, jobs, chunksize=4):
            rows.update(used)
            if refused:
                bad += 1
                print(f"seed {seed}: {refused[:600]}")
    lacking = missing(rows)
    print(f"{len(jobs)} kernels, {bad} rejected by ptxas; {len(rows)} rows used, {len(lacking)} not:")
    print("\n".join(f"    {name}" for name in lacking))
    return int(bool(bad))


def show(arguments: Namespace) -> int:
    """Print a kernel."""
    kernel = generate(arguments.seed, arguments.size)
    print(f"// grid {kernel.grid}, block {kernel.block}\n{kernel.text(traced=arguments.traced)}")
    return 0


def keep(arguments: Namespace) -> int:
    """Install the kernels that a run kept as the tests' fixed set."""
    chosen = list(fixed_set.read(arguments.folder / "kept.tar.xz"))
    fixed_set.write(fixed_set.FILE, chosen)
    print(f"{len(chosen)} kernels, {fixed_set.FILE.stat().st_size} bytes")
    return 0


def spellings(_arguments: Namespace) -> int:
    """Write the table of spellings that ptxas accepts."""
    write_table()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in the first argument."""
    parser = make_parser("fuzz", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object) -> ArgumentParser:
        made = commands.add_parser(name, help=(function.__doc__ or "").strip())
        made.set_defaults(function=function)
        made.add_argument("--size", type=int, default=SIZE, help="number of statements in a kernel")
        made.add_argument("--workers", type=int, default=os.cpu_count(), help="number of processes")
        return made

    for name, function in (("run", run), ("record", record), ("execute", execute), ("check", check)):
        seeded = command(name, function)
        seeded.add_argument("first", type=int, help="the first seed")
        seeded.add_argument("count", type=int, help="number of seeds")
    timed = [commands.choices["run"], command("probe", probe), commands.choices["record"], commands.choices["execute"]]
    for made in timed:
        made.add_argument("--out", type=Path, default=Path("out"), help="the folder of the report")
        made.add_argument("--seconds", type=float, default=600, help="start no new work after this time, in seconds")
    timed[0].add_argument("--explain", type=float, default=120, help="seconds for finding the causes of differences")
    timed[0].add_argument("--engines", type=int, default=0, metavar="N", help="run every Nth kernel in both engines")
    timed[0].add_argument("--keep", type=int, default=0, metavar="N", help="choose a fixed set from N kernels")
    timed[0].add_argument("--without-gpu", action="store_true", help="run only the machine")
    timed[2].add_argument("--favour", default="", help="a recipe to use often, or `each` for every recipe in turn")
    timed[2].add_argument("--cubin-only", action="store_true", help="do not run the code that the driver compiles")
    timed[2].add_argument("--bytes", action="store_true", help="keep the output bytes, not only their digests")
    timed[1].add_argument("--targets", default=",".join(TARGETS), help="comma-separated targets")
    timed[1].add_argument("--only", choices=KINDS, help="probe only lane instructions, or only matrix instructions")
    commands.choices["check"].add_argument("--coverage", action="store_true", help="only count rows, without ptxas")
    shown = command("show", show)
    shown.add_argument("seed", type=int)
    shown.add_argument("--traced", action="store_true", help="store every result")
    command("spellings", spellings)
    command("report", report).add_argument("folder", type=Path, help="the folder that `run` wrote")
    command("keep", keep).add_argument("folder", type=Path, help="the folder that `run --keep` wrote")
    arguments = parser.parse_args(argv)
    result: int = arguments.function(arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
