"""Measure the CPU time of look-ups (limit: 0.9 times that of `import numpy`) and shell completions (limit: 0.1 s).

Run it with the interpreter that warpfrag is installed for: `.venv/bin/python benchmarks/lookup.py`. The commands take
turns for several rounds, and each figure is the minimum. The first round writes bytecode: without it, Python would
compile warpfrag in every process, but not numpy, which is installed with bytecode.
"""

import os
import subprocess
import sys
import tempfile
from resource import RUSAGE_CHILDREN, getrusage

ROUNDS = 15
LONGEST = 0.9  # relative to `import numpy`
LONGEST_COMPLETION = 100  # milliseconds
NAME = "mma.m16n8k16.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.m64n64k16.f32.f16.f16"
YARDSTICK = "import numpy"
COMMANDS = {
    "at": ["at", NAME, "a", "5"],
    "where": ["where", NAME, "a", "9", "3"],
    "where, wgmma": ["where", WGMMA, "d", "9", "3"],
    "legal": ["legal", NAME, "--arch", "sm_90"],
    "table": ["table", NAME, "a"],
    "aliases": ["aliases", NAME],
    "get": ["get", NAME],
    "find": ["find", "--arch", "sm_90"],
    "--version": ["--version"],
    "no such instruction": ["get", f"{NAME}x"],
    "no such option": ["where", "--nothing"],
    "no such verb": ["wher"],
}
COMPLETIONS = {
    "a verb": ["whe"],
    "an option": ["where", "--"],
    "an instruction": ["where", "mma.m16n8k"],
    "a short name": ["where", "mma.m16n8k16.f32.f"],
    "a sample": ["predict", "sample:"],
    "a target": ["find", "--arch", "sm_"],
}


def cpu_ms(arguments: list[str], variables: dict[str, str], status: int) -> float:
    """Return the user and system time of a Python process with these arguments and exit status, in milliseconds."""
    before = getrusage(RUSAGE_CHILDREN)
    process = subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = getrusage(RUSAGE_CHILDREN)
    if process.returncode != status:
        sys.exit(f"{arguments}: expected exit status {status}, got {process.returncode}")
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> int:
    """Print a line for each command; return 1 if a look-up, an error or a completion takes too long."""
    jobs: dict[str, tuple[list[str], dict[str, str], int]] = {YARDSTICK: (["-c", YARDSTICK], {}, 0)}
    for label, words in COMMANDS.items():
        jobs[label] = (["-m", "warpfrag", *words], {}, 2 if label.startswith("no such") else 0)
    jobs["wf.get"] = (["-c", f"import warpfrag as wf; wf.get({NAME!r})"], {}, 0)
    for label, words in COMPLETIONS.items():
        asked = {"COMP_WORDS": " ".join(["warpfrag", *words]), "COMP_CWORD": str(len(words))}
        jobs[label] = (["-m", "warpfrag"], {**asked, "_WARPFRAG_COMPLETE": "bash_complete"}, 0)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    spent = dict.fromkeys(jobs, float("inf"))
    with tempfile.TemporaryDirectory() as bytecode:
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode  # the first round writes bytecode
        for _ in range(1 + ROUNDS):
            spent = {label: min(spent[label], cpu_ms(*job)) for label, job in jobs.items()}
    slow = []
    for label, milliseconds in spent.items():
        ratio = milliseconds / spent[YARDSTICK]
        print(f"{label:<20}{milliseconds:6.0f} ms  {ratio:.2f} times")
        too_long = milliseconds > LONGEST_COMPLETION if label in COMPLETIONS else ratio > LONGEST
        slow += [label] if too_long and label != YARDSTICK else []
    if slow:
        print(f"too long: {', '.join(slow)}")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
