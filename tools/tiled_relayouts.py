"""Execute the relayout of every tiled pair of wgmma, mma and tcgen05 fragments up to a width.

    python -m tools.tiled_relayouts [--width 256] [--only wgmma] [--part 1/4]

A pair is two fragments of one matrix, each tiled along its columns, and along its rows if equal extents require that.
The plan runs on random codes, and every bit of the target registers must be the one that `pack` writes. Plans that
differ are printed; rejected pairs are counted by reason.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, product
from math import lcm
from typing import Literal, NamedTuple

import numpy as np

from tools.arguments import make_parser
from warpfrag.errors import WarpfragError
from warpfrag.formats.codes import code_dtype
from warpfrag.plans.relayout import Relayout, fragments
from warpfrag.plans.relayout_execution import convert_codes
from warpfrag.plans.relayout_operations import conversions
from warpfrag.plans.tensor_relayout import TensorRelayout, relayout
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import find, get

WIDTH = 256
FAMILIES = ("wgmma", "mma", "tcgen05")


class TiledPair(NamedTuple):
    """Two operands, the extents to which both are tiled (None: not tiled), and the dimension that may be permuted."""

    source: Operand
    target: Operand
    extents: tuple[int, int] | None = None
    permute: Literal["row", "col"] | None = None

    @property
    def ends(self) -> tuple[Operand, Operand]:
        """Both operands, tiled to the extents."""
        if self.extents is None:
            return self.source, self.target
        rows, cols = self.extents
        source, target = (
            end.tiled(row=rows // end.shape[0], col=cols // end.shape[1]) for end in (self.source, self.target)
        )
        return source, target

    def plan(self) -> Relayout:
        """Return the plan from the source to the target."""
        source, target = self.ends
        return relayout(source, target, permute=self.permute) if self.permute else relayout(source, target)

    def __str__(self) -> str:
        """Show roles, instructions and extents."""
        ends = " -> ".join(f"{end.role} of {end.instruction}" for end in (self.source, self.target))
        return f"{ends}, tiled to {self.extents}" + (f", permute={self.permute}" if self.permute else "")


@cache
def warpgroup_operands() -> tuple[Operand, ...]:
    """Return the A, C and D of wgmma at every n, one for each layout and format."""
    distinct: dict[object, Operand] = {}
    for instruction in find(op="wgmma.mma_async"):
        for operand in (instruction.a, instruction.d):
            if operand is not None and operand.storage != "shared":
                distinct.setdefault((operand.layout, operand.format), operand)
    return tuple(distinct.values())


def register_pairs(operands: Sequence[Operand], width: int) -> Iterator[TiledPair]:
    """Yield every pair with a known conversion, at every common number of columns."""
    for source, target in product(operands, repeat=2):
        if list(source.layout.outs) != ["row", "col"] or list(target.layout.outs) != ["row", "col"]:
            continue
        if source.format != target.format and (source.format.name, target.format.name) not in conversions():
            continue
        (rows, cols), (other_rows, other_cols) = source.shape, target.shape
        height, step = lcm(rows, other_rows), lcm(cols, other_cols)
        for total in range(step, width + 1, step):
            yield TiledPair(source, target, (height, total))
            if source.role == "d" and target.role == "a":
                yield TiledPair(source, target, (height, total), permute="col")


def tensor_pairs(width: int) -> Iterator[TiledPair]:
    """Yield D of one tcgen05.mma with A of another one, at every n."""
    kinds = {"f16": "f16", "bf16": "f16", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "s8": "i8", "u8": "i8"}
    for (m, blocks), d, a in product(((64, 1), (128, 1), (128, 2), (256, 2)), ("f32", "f16", "s32"), kinds):
        if d != a and (d, a) not in conversions():
            continue
        kind, operands = ("i8", "s8") if d == "s32" else ("f16", "f16")
        for n in range(8, width + 1, 8):
            name = "tcgen05.mma.cta_group::"
            try:
                source = get(f"{name}{blocks}.kind::{kind}", m=m, n=n, a=operands, b=operands, d=d).d
                accumulator = "s32" if kinds[a] == "i8" else "f32"
                target = get(f"{name}{blocks}.kind::{kinds[a]}", m=m, n=64, a=a, b=a, d=accumulator).a
            except WarpfragError:
                continue  # n is not legal
            yield TiledPair(source, target)


def tiled_pairs(family: str, width: int = WIDTH) -> Iterator[TiledPair]:
    """Yield every pair of a family."""
    if family == "tcgen05":
        return tensor_pairs(width)
    return register_pairs(warpgroup_operands() if family == "wgmma" else fragments(), width)


def differences(plan: Relayout, seed: int) -> int:
    """Return the number of target words that differ from those of `pack`, on random codes."""
    source, target = plan.source, plan.target
    random = np.random.default_rng(seed)
    codes = random.integers(0, source.format.codes, source.shape, np.uint64).astype(code_dtype(source.format))
    expected = convert_codes(source.format.name, target.format.name, codes)
    if isinstance(plan, TensorRelayout):
        return _tensor_differences(plan, codes, expected)
    if plan.permutation is not None:
        expected = expected[..., list(plan.permutation)]
    found = plan(source.pack(codes, raw=True))
    return int((found != target.pack(expected, raw=True)).sum())


def _tensor_differences(plan: TensorRelayout, codes: np.ndarray, expected: np.ndarray) -> int:
    """Return the number of elements of A that differ; D begins at column 0, and A follows it."""
    packed, (k, columns) = plan.source.pack(codes, raw=True), (plan.target.shape[1], plan.target.columns)
    before = np.zeros((*packed.shape[:-1], 512), np.uint32)
    before[..., : packed.shape[-1]] = packed
    first = 256
    after = plan(before, source=0, target=first)
    parts = [
        plan.target.unpack(after[..., first + at * columns :][..., :columns], raw=True)
        for at in range(expected.shape[1] // k)
    ]
    return int((np.concatenate(parts, axis=1) != expected).sum())


def check(pair: TiledPair, seed: int = 0) -> str:
    """Plan and execute one pair; return "right", "wrong: ..." or the reason why there is no plan."""
    try:
        plan = pair.plan()
    except WarpfragError as error:
        return "refused: " + re.sub(r"\d+", "#", str(error))[:60]
    wrong = differences(plan, seed)
    return f"wrong: {wrong} words" if wrong else "right"


def main(argv: Sequence[str] | None = None) -> int:
    """Check every pair; print the wrong ones, and the counts of each family."""
    parser = make_parser("tiled_relayouts", __doc__)
    parser.add_argument("--width", type=int, default=WIDTH, metavar="N", help=f"widest matrix (default {WIDTH})")
    parser.add_argument("--only", choices=FAMILIES, action="append", help="check these families")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="check every Nth pair, from the Ith on")
    arguments = parser.parse_args(argv)
    part, parts = map(int, arguments.part.split("/"))
    wrong = 0
    for family in arguments.only or FAMILIES:
        counts: Counter[str] = Counter()
        for number, pair in enumerate(islice(tiled_pairs(family, arguments.width), part - 1, None, parts)):
            verdict = check(pair, number)
            counts[verdict] += 1
            if verdict.startswith("wrong"):
                wrong += 1
                print(f"{pair}: {verdict}")
        print(f"{family}: " + "; ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
