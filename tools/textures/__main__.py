"""Run the experiments on this machine's GPU, and compare the results."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tools.textures as package
from tools.arguments import report_parser
from tools.textures.driver import TextureDriver
from tools.textures.groups import experiments
from tools.textures.results import machine_result, write_kept
from warpfrag.errors import NoGpu
from warpfrag.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all experiments; the exit status is 1 if anything differs."""
    parser = report_parser("textures", package.__doc__, "only groups whose name contains this")
    parser.add_argument("--keep", type=Path, metavar="RESULTS.npz", help="write the GPU's results, for the tests")
    args = parser.parse_args(argv)
    try:
        driver = TextureDriver()
    except NoGpu as error:
        print(error, file=sys.stderr)
        return 2
    equal, different = Counter[str](), Counter[str]()
    results: dict[str, NDArray[Any]] = {}
    for experiment in experiments():
        if args.only not in experiment.group:
            continue
        result = driver.result(experiment)
        is_equal = np.array_equal(result, machine_result(experiment))
        (equal if is_equal else different)[experiment.group] += 1
        if not is_equal:
            print(f"different: {experiment}")
        results[experiment.name] = result
    if args.keep:
        write_kept(args.keep, results)
    lines = ["| experiments | equal | different |", "| --- | ---: | ---: |"]
    lines += [f"| {group} | {equal[group]} | {different[group]} |" for group in sorted(equal | different)]
    print("\n".join(lines))
    if args.report:
        write_atomically(args.report, "\n".join([*lines, ""]))
    return int(bool(different))


if __name__ == "__main__":
    raise SystemExit(main())
