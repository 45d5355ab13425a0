"""Call cublasLtMatmul with each auxiliary and gradient epilogue, and store digests, samples and probes.

    python -m tools.lt_epilogues OUT                                 # on a GPU
    python -m tools.lt_epilogues OUT --seed 7 --only cases           # other shapes and numbers
    warpfrag gpu --fast -- python -m tools.lt_epilogues OUT --only cases --compare RECORDED.json

For each call, OUT/cases.json has digests of D, the auxiliary buffer and the bias gradient, the configuration and the
kernels. OUT/samples.npz has all bias gradients, and the first columns of the other results. OUT/tables.npz has GELU and
its gradient for many numbers, and OUT/specials.npz for a NaN and infinities. OUT/kernels.json has the kernels of bias
gradients for many shapes. OUT/probes.npz shows the order of additions in bias gradients: each sum has a large number,
its negative, and small units, and the units that are lost were added between the two.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.arguments import make_parser
from tools.lt_epilogues.cases import run_cases
from tools.lt_epilogues.library import EpilogueLibrary
from tools.lt_epilogues.probes import run_kernels, run_probes, run_specials, run_tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts, or one; the exit status is 1 if a call differs from the stored one."""
    parser = make_parser("lt_epilogues", __doc__)
    parser.add_argument("folder", type=Path, metavar="OUT")
    parser.add_argument("--seed", type=int, default=0, help="0: the listed shapes; others: random ones")
    parser.add_argument("--only", choices=["tables", "cases", "probes", "kernels"], help="one part")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a cases.json to compare with")
    parser.add_argument("--seconds", type=float, default=25, help="the time limit for the cases, and for the probes")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    library = EpilogueLibrary()
    print(f"{library.gpu}, cuBLASLt {library.version}", flush=True)
    stored = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else {}
    wrong = 0
    if options.only in {None, "tables"}:
        run_tables(library, options.folder)
    if options.only in {None, "cases"}:
        stop = time.monotonic() + options.seconds
        wrong = run_cases(library, options.folder, options.seed, stop, stored)
    if options.only in {None, "kernels"}:
        run_kernels(library, options.folder)
        run_specials(library, options.folder)
    if options.only in {None, "probes"}:
        run_probes(library, options.folder, time.monotonic() + options.seconds)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
