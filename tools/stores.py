"""Compare the PTX machine with a GPU when several lanes of one instruction store to the same address.

    python -m tools.stores [REPORT.md] [--only PREFIX]

Every warp runs one pattern of addresses: each lane stores its own number (stmatrix: an element derived from it), and
then reads its address. The stores are all widths of st in shared, global and generic memory, and stmatrix. Every
pattern runs REPEATS times.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.arguments import report_parser
from warpfrag.files import write_atomically
from warpfrag.hardware.gpu_device import Gpu, open_gpu
from warpfrag.ptx.ptx_module import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

PATTERNS = 4096
REPEATS = 40
REGION = 4096  # bytes per warp
WIDTHS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 2), (4, 4), (8, 2))
SPACES = {  # the instructions that compute the address, the address register, and the qualifiers
    "shared": ("add.u32 %place, %base, %offset;", "%place", ".shared"),
    "global": ("cvt.u64.u32 %wide, %offset;\n  add.u64 %wide, %wide, %memory;", "%wide", ".global"),
    "gshared": (
        "add.u32 %place, %base, %offset;\n  cvt.u64.u32 %wide, %place;\n  cvta.shared.u64 %wide, %wide;",
        "%wide",
        "",
    ),
    "gglobal": ("cvt.u64.u32 %wide, %offset;\n  add.u64 %wide, %wide, %memory;", "%wide", ""),
}
TEXT = """.version 8.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 offsets, .param .u64 masks, .param .u64 memory)
{{
  .reg .pred %p; .reg .b16 %h; .reg .b32 %r, %lane, %warp, %base, %offset, %mask, %place, %twice;
  .reg .b32 %m<4>, %seen<4>; .reg .b64 %d, %wide, %memory, %out, %at;
  .shared .align 16 .b8 cells[4096];
  mov.u32 %lane, %tid.x; mov.u32 %warp, %ctaid.x; mov.u32 %base, cells;
  ld.param.u64 %at, [offsets]; mul.wide.u32 %wide, %warp, 128; add.u64 %at, %at, %wide;
  mul.wide.u32 %wide, %lane, 4; add.u64 %at, %at, %wide; ld.global.u32 %offset, [%at];
  ld.param.u64 %at, [masks]; mul.wide.u32 %wide, %warp, 4; add.u64 %at, %at, %wide; ld.global.u32 %mask, [%at];
  shr.u32 %mask, %mask, %lane; and.b32 %mask, %mask, 1; setp.ne.u32 %p, %mask, 0;
  ld.param.u64 %memory, [memory]; mul.wide.u32 %wide, %warp, 4096; add.u64 %memory, %memory, %wide;
  ld.param.u64 %out, [out]; mul.wide.u32 %wide, %warp, 512; add.u64 %out, %out, %wide;
  mul.wide.u32 %wide, %lane, 16; add.u64 %out, %out, %wide;
  mul.lo.u32 %r, %lane, 0x01010101; cvt.u16.u32 %h, %r; mov.b64 %d, {{%r, %r}}; shl.b32 %twice, %lane, 1;
  mov.u32 %seen0, 0; mov.u32 %seen1, 0; mov.u32 %seen2, 0; mov.u32 %seen3, 0;
  {store}
  bar.warp.sync -1;
  membar.gl;
  {read}
  st.global.v4.u32 [%out], {{%seen0, %seen1, %seen2, %seen3}};
  ret;
}}
"""


@dataclass(frozen=True)
class Store:
    """One store: `parts` has the size and number of elements, or the number of matrices and .trans for stmatrix."""

    opcode: str
    space: str
    parts: tuple[int, int]

    @property
    def key(self) -> str:
        """The name in files."""
        return f"{self.opcode}_{self.space}_{self.parts[0]}_{self.parts[1]}"

    @property
    def size(self) -> int:
        """The number of bytes that a lane stores."""
        return 16 if self.opcode == "stmatrix" else self.parts[0] * self.parts[1]

    @property
    def lanes(self) -> int:
        """The number of lanes that supply an address."""
        return 8 * self.parts[0] if self.opcode == "stmatrix" else 32

    def text(self, target: str) -> str:
        """Return the kernel, which outputs the value that each lane reads at its address."""
        address, place, space = SPACES[self.space]
        words = max(1, self.size // 4)
        seen = ", ".join(f"%seen{word}" for word in range(words))
        kind = f"u{8 * self.size}" if self.size < 4 else f"v{words}.b32" if words > 1 else "b32"
        read = f"@%p ld.volatile{space}.{kind} {'{' * (words > 1)}{seen}{'}' * (words > 1)}, [{place}];"
        if self.opcode == "stmatrix":
            return TEXT.format(target=target, store=f"{address}\n  {self.stmatrix(place)}", read=read)
        unit, count = self.parts
        item = {1: "%h", 2: "%h", 4: "%r", 8: "%d"}[unit]
        items = item if count == 1 else f"{{{', '.join([item] * count)}}}"
        store = f"@%p st{space}{'' if count == 1 else f'.v{count}'}.b{8 * unit} [{place}], {items};"
        return TEXT.format(target=target, store=f"{address}\n  {store}", read=read)

    def stmatrix(self, place: str) -> str:
        """Return the stmatrix instructions; each element's code is its matrix, lane and half."""
        count, is_transposed = self.parts
        lines = [
            f"or.b32 %m{index}, %twice, {index << 8}; shl.b32 %r, %m{index}, 16; or.b32 %m{index}, %m{index}, %r; "
            f"or.b32 %m{index}, %m{index}, 65536;"
            for index in range(count)
        ]
        registers = ", ".join(f"%m{index}" for index in range(count))
        trans = ".trans" * is_transposed
        return "\n  ".join(
            [*lines, f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [{place}], {{{registers}}};"]
        )


def stores(prefix: str = "") -> Iterator[Store]:
    """Return an iterator over the stores to measure whose keys start with a prefix."""
    every = [Store("st", space, parts) for space in SPACES for parts in WIDTHS]
    every += [Store("stmatrix", "shared", (count, trans)) for count in (1, 2, 4) for trans in (0, 1)]
    return (store for store in every if store.key.startswith(prefix))


def patterns(store: Store, rng: np.random.Generator) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return offsets [PATTERNS, 32], from all equal to all distinct, and lane masks."""
    slots = REGION // store.size
    count = rng.choice([1, 2, 4, 8, 16, 32, slots], PATTERNS)
    some = rng.integers(slots, size=(PATTERNS, min(64, slots)))
    chosen = np.take_along_axis(some, rng.integers(np.minimum(count, some.shape[1])[:, None], size=(PATTERNS, 32)), 1)
    offsets = (chosen * store.size).astype(np.uint32)
    masks = np.where(rng.random(PATTERNS) < 0.5, 0xFFFFFFFF, rng.integers(1, 1 << 32, size=PATTERNS)).astype(np.uint32)
    return offsets, np.full_like(masks, 0xFFFFFFFF) if store.opcode == "stmatrix" else masks


def emulate(store: Store, offsets: NDArray[np.uint32], masks: NDArray[np.uint32], **options: str) -> NDArray[np.uint32]:
    """Return the bytes that lanes read after the store on the machine, [patterns, 32, 4]."""
    out = np.zeros((len(masks), 32, 4), np.uint32)
    memory = np.zeros((len(masks), REGION), np.uint8)
    load(store.text("sm_90"))["k"].launch(len(masks), 32, [out, offsets, masks, memory], **options)  # type: ignore[arg-type] # the name of an engine
    return out


def measure(gpu: Gpu, store: Store) -> tuple[int, int]:
    """Return the number of patterns that ran on a GPU, and the number of those that differ from the machine."""
    offsets, masks = patterns(store, np.random.default_rng([27, *store.key.encode()]))
    module = gpu.load(store.text(gpu.target))
    arrays = [np.zeros((PATTERNS, 32, 4), np.uint32), offsets, masks, np.zeros((PATTERNS, REGION // 4), np.uint32)]
    expected, different = emulate(store, offsets, masks)[:, : store.lanes], 0
    for _ in range(REPEATS):
        actual = np.asarray(gpu.run_blocks(module, "k", PATTERNS, arrays)).reshape(PATTERNS, 32, 4)[:, : store.lanes]
        different += int((actual != expected).any(axis=(1, 2)).sum())
    return PATTERNS * REPEATS, different


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all stores, and print and write a report; the exit status is 1 if anything differs."""
    arguments = report_parser("stores", __doc__, "only keys that start with this text").parse_args(argv)
    gpu = open_gpu()
    lines = [f"{gpu.name}, driver {gpu.driver}", "", "| store | patterns | different |", "| --- | ---: | ---: |"]
    total = 0
    for store in stores(arguments.only):
        count, different = measure(gpu, store)
        total += different
        lines.append(f"| `{store.key}` | {count:,} | {different:,} |")
        print(lines[-1])
    if arguments.report:
        write_atomically(arguments.report, "\n".join([*lines, ""]).encode())
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
