"""Run random kernels under the checks and compare each verdict with an independent happens-before oracle.

    python -m tools.race_oracle FIRST COUNT [--engine reference] [--show]

A seed always makes the same kernel: a cluster of 1 to 4 blocks with up to 64 warps. Its lanes access words of shared
memory (also in neighbouring blocks) and of global memory, and synchronise with block, named, warp and cluster barriers,
mbarriers, flags and fences. They start asynchronous copies in both directions: cp.async, bulk copies and tensor boxes.

The oracle does not use vector clocks. Every access is an event; a thread has the set of events that happen before its
next instruction, and the part of that set with a proxy fence on the path. Two conflicting events are a race if neither
set contains the other. A wrong verdict is printed with its seed: `findings` for a kernel without a race, `clean` for a
kernel with one, or a finding about two instructions that do not race. `incomplete` verdicts are only counted.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

import warpfrag as wf
from tools.arguments import make_parser
from tools.race_oracle.kernel_text import Writer
from tools.race_oracle.oracle import LANES, REGION_BYTES, REGION_WORDS, REGIONS, judge
from tools.race_oracle.random_steps import FLAGS, Generator
from warpfrag.errors import PtxError


class Verdict(NamedTuple):
    """The verdict of the checks on a kernel, the oracle's verdict, and a description of a disagreement."""

    verdict: str
    is_racy: bool
    wrong: str = ""


def compare(seed: int, engine: Literal["auto", "reference", "compiled"] = "reference") -> Verdict:
    """Run the kernel of a seed under the checks, and compare the verdict with the oracle's."""
    generator = Generator(seed)
    shape, steps = generator.shape, generator.steps()
    oracle = judge(shape, steps)
    written = Writer(shape, steps, generator.counts)
    data, flags = np.zeros((REGIONS, REGION_BYTES // 4), np.uint32), np.zeros(FLAGS, np.uint32)
    box = wf.ptx.TensorMap(data, box=(1, REGION_WORDS))
    is_racy = bool(oracle.pairs or oracle.others)
    try:
        run = wf.ptx.load(written.text)["k"].launch(
            shape.blocks, shape.warps * LANES, [data, flags, box], checks="all", engine=engine, level="ptx",
            seed=seed if seed % 2 else None, options=wf.ptx.LaunchOptions(cluster=(shape.blocks, 1, 1), limit=200_000),
        )  # fmt: skip
    except PtxError as error:  # a kernel whose threads share a named barrier may never end
        return Verdict("error", is_racy, "" if oracle.others else repr(error))
    verdict = str(run.verdict)
    mistakes = f"{sorted(oracle.pairs)} {sorted(oracle.others)}"
    if verdict not in {"incomplete", "findings" if is_racy else "clean"}:
        return Verdict(verdict, is_racy, f"{verdict}, but the oracle has {mistakes}")
    for finding in run.findings:
        if finding.other is None or finding.kind == "barrier":
            continue
        pair = tuple(sorted(written.step_of.get(line, -1) for line in (finding.line, finding.other.line)))
        if pair not in oracle.pairs and not oracle.others:
            return Verdict(verdict, is_racy, f"{finding}: steps {pair}, but the oracle has {sorted(oracle.pairs)}")
    return Verdict(verdict, is_racy)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare many kernels; print those that differ, and the counts."""
    parser = make_parser("race_oracle", __doc__)
    parser.add_argument("first", type=int, metavar="FIRST", help="first seed")
    parser.add_argument("count", type=int, metavar="COUNT", help="number of kernels")
    parser.add_argument(
        "--engine", default="reference", choices=("auto", "reference", "compiled"), help="engine of the launches"
    )
    parser.add_argument("--show", action="store_true", help="print steps and PTX of the kernels")
    arguments = parser.parse_args(argv)
    counts: Counter[tuple[bool, str]] = Counter()
    wrong = 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        if arguments.show:
            generator = Generator(seed)
            steps = generator.steps()
            print(*(f"{number}: {step}" for number, step in enumerate(steps)), sep="\n")
            print(Writer(generator.shape, steps, generator.counts).text)
        try:
            verdict = compare(seed, arguments.engine)
        except Exception as error:  # noqa: BLE001 (one kernel must not end the run)
            verdict = Verdict("error", is_racy=False, wrong=repr(error))
        counts[verdict.is_racy, verdict.verdict] += 1
        if verdict.wrong:
            wrong += 1
            print(f"seed {seed}: {verdict.wrong}", flush=True)
    for (is_racy, name), count in sorted(counts.items()):
        print(f"{count} kernels {'with' if is_racy else 'without'} a race: {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
