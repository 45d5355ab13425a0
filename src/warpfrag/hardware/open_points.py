"""Open questions about tcgen05 that only a Blackwell GPU can settle: one kernel for each.

Every kernel runs on images. The expected result is that of the PTX machine: its reading of sources that disagree, or
the nearest published arithmetic. `settle` runs the kernels on a GPU and reports for each point how many words are as
expected. The words themselves go into a file, which shows the right reading if ours is wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.statement import identifier
from warpfrag.codegen.tcgen05_code import UNIT, module, probe_module, vector
from warpfrag.files import write_atomically
from warpfrag.hardware.gpu_device import Worker
from warpfrag.hardware.launches import TensorLaunch, random_images
from warpfrag.isa.immediates import Immediates
from warpfrag.ptx.module import load
from warpfrag.smem.descriptor import Descriptor
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.tcgen05_types import TensorMma

if TYPE_CHECKING:
    Words = NDArray[np.uint32]

PROBED_COLUMNS = 64
MMA = "tcgen05.mma"


@dataclass(frozen=True)
class OpenPoint:
    """A question, the expected answer, the targets that can answer it, and the launch that does."""

    name: str
    question: str
    expected: str
    targets: tuple[str, ...]
    make: Callable[[str], TensorLaunch]


@dataclass(frozen=True)
class Settled:
    """The GPU's answer to an open point: the number of words as expected, and the first that is not."""

    name: str
    question: str
    expected: str
    words: int = 0
    equal: int = 0
    first: str = ""
    skip_reason: str = ""

    def __str__(self) -> str:
        """One line."""
        if self.skip_reason:
            return f"{self.name}: {self.skip_reason}"
        if self.equal == self.words:
            return f"{self.name}: settled, all {self.words} words: {self.expected}"
        return f"{self.name}: {self.equal} of {self.words} words as expected ({self.expected}); {self.first}"


def _probe(by_thread: str = "", by_warps: str = "") -> Callable[[str], TensorLaunch]:
    """Return a function that launches statements on random images."""

    def make(target: str) -> TensorLaunch:
        random = np.random.default_rng(17)
        arrays = {
            "shared": random.integers(0, 1 << 32, UNIT // 4, dtype=np.uint32),
            "c": random.integers(0, 1 << 32, (128, PROBED_COLUMNS), dtype=np.uint32),
            "d": np.zeros((128, PROBED_COLUMNS), np.uint32),
        }
        text = probe_module(by_thread, by_warps, columns=PROBED_COLUMNS, target=target)
        return TensorLaunch(text, "probe", 1, arrays)

    return make


def _product(name: str, **shape: str | int) -> Callable[[str], TensorLaunch]:
    """Return a function that launches one mma on numbers that show how it rounds."""

    def make(target: str) -> TensorLaunch:
        asked: dict[str, Any] = {**shape}
        t = cast("TensorMma", get(name, **asked))
        images = random_images(t, "plain", np.random.default_rng(17))
        return TensorLaunch(module([t], target), f"{identifier(t)}_kernel", t.blocks, images)

    return make


PLAIN = Descriptor(leading=128, stride=256, kind="tcgen05").word
BLACKWELL = ("sm_100a", "sm_103a", "sm_110a")
POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "fp6 holder",
        "which bits of a byte hold an fp6 that cp widens?",
        "bits 5 to 0",
        BLACKWELL,
        _probe(f"add.u64 %rd6, %rd5, {PLAIN:#x}; tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b6x16_p32 [%r8], %rd6;"),
    ),
    OpenPoint(
        "fp4 holder",
        "which bits of a byte hold an fp4 that cp widens?",
        "bits 5 to 2",
        BLACKWELL,
        _probe(f"add.u64 %rd6, %rd5, {PLAIN:#x}; tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b4x16_p64 [%r8], %rd6;"),
    ),
    OpenPoint(
        "lanes of shift",
        "does shift move the 32 lanes that its address names, or all four groups of 32?",
        "all four groups",
        BLACKWELL,
        _probe("tcgen05.shift.cta_group::1.down [%r8+8];"),
    ),
    OpenPoint(
        "upper halves",
        "does st.unpack::16b leave the upper halves of its columns as they were?",
        "they stay",
        BLACKWELL,
        _probe(
            by_warps=f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {vector(8)}, [%r6]; tcgen05.wait::ld.sync.aligned; "
            f"tcgen05.st.sync.aligned.32x32b.x8.unpack::16b.b32 [%r6+16], {vector(8)};"
        ),
    ),
    OpenPoint(
        "pair of blocks",
        "are the sums of a pair those of one block?",
        "they are",
        BLACKWELL,
        _product(f"{MMA}.cta_group::2.kind::f16", m=256, n=64, a="f16", b="f16", d="f32"),
    ),
    *(
        OpenPoint(
            f"sparse {kind}",
            "are the selected products of a sparse step added as those of a dense one?",
            "they are",
            BLACKWELL,
            _product(f"{MMA}.sp.cta_group::1.kind::{kind}", m=128, n=64, a=a, b=a, d="f32"),
        )
        for kind, a in (("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"))
    ),
    OpenPoint(
        "sparse mxf4",
        "is a sparse step with scale factors the dense one with zeros?",
        "it is",
        BLACKWELL,
        _product(f"{MMA}.sp.cta_group::1.kind::mxf4.block_scale", m=128, n=64),
    ),
    *(
        OpenPoint(
            f"mma.ws {m}",
            "are the sums of mma.ws those of mma?",
            "they are",
            BLACKWELL,
            _product(f"{MMA}.ws.cta_group::1.kind::f16", m=m, n=64, a="f16", b="f16", d="f32"),
        )
        for m in (32, 64, 128)
    ),
    OpenPoint(
        "k 96",
        "are the six groups of k 96 added at once, as the four of k 64 are?",
        "they are",
        ("sm_103a",),
        _product(f"{MMA}.cta_group::1.kind::mxf4.block_scale", m=128, n=64, k=96),
    ),
)
"""The open points of GPUs that exist; sm_107 has none yet."""


def expected_words(launch: TensorLaunch, target: str) -> Words:
    """Return the words that the PTX machine computes."""
    arrays = {name: array.copy() for name, array in launch.arrays.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(launch.text)[launch.entry].launch(launch.blocks, 128, [*arrays.values()], arch=target)
    return arrays[launch.result]


def settle(
    *,
    device: int = 0,
    capture: str | PathLike[str] | None = None,
    progress: Callable[[int, int, Settled], None] | None = None,
) -> list[Settled]:
    """Run every open point on this machine's GPU; with `capture`, save its words and the images there."""
    answers: list[Settled] = []
    kept: dict[str, Words] = {}
    with Worker(device) as worker:
        target = worker.about["target"]
        for number, point in enumerate(POINTS):
            blank = Settled(point.name, point.question, point.expected)
            if target not in point.targets:
                answers.append(replace(blank, skip_reason=f"{target} cannot answer it; {', '.join(point.targets)} can"))
            else:
                launch = point.make(target)
                answer = worker.run(point.name, Immediates(), launch)
                answers.append(_judged(blank, launch, answer, target))
                if not isinstance(answer, str):
                    kept |= {f"{point.name}/{name}": array for name, array in launch.operands.items()}
                    kept[f"{point.name}/hardware"] = answer
            if progress is not None:
                progress(number + 1, len(POINTS), answers[-1])
    if capture is not None:
        content, arrays = BytesIO(), cast("dict[str, Any]", kept)
        np.savez_compressed(content, **arrays)
        write_atomically(capture, content.getvalue())
    return answers


def _judged(blank: Settled, launch: TensorLaunch, answer: Words | str, target: str) -> Settled:
    """Return the comparison of an answer with the expected words."""
    if isinstance(answer, str):
        return replace(blank, skip_reason=answer)
    expected = expected_words(launch, target)
    wrong = np.argwhere(answer != expected)
    first = ""
    if len(wrong):
        *block, lane, column = (int(index) for index in wrong[0])
        place = f"{f'block {block[0]}, ' if block else ''}lane {lane}, column {column}"
        pair = f"hardware {answer[tuple(wrong[0])]:08x}, expected {expected[tuple(wrong[0])]:08x}"
        first = f"first at {place}: {pair}"
    return replace(blank, words=answer.size, equal=answer.size - len(wrong), first=first)
