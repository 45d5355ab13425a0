"""Random control flow: loops of different lengths, branches, early returns, barriers; both engines, several cores."""

import random

import numpy as np
import pytest

import warpfrag as wf
from slow_cases import sampled

pytestmark = pytest.mark.one_engine  # each launch names its own

SEEDS = 6


class Writer:
    """A body of random nested statements that compute with `%r4` to `%r11`."""

    def __init__(self, seed):
        self.rng, self.lines, self.labels = random.Random(seed), [], 0
        self.block(0, together=True)
        self.block(0, together=True)

    def register(self):
        return f"%r{self.rng.randrange(4, 12)}"

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    def condition(self):
        guard = f"%p{self.rng.randrange(1, 4)}"
        self.lines.append(f"and.b32 %t, {self.register()}, {self.rng.choice([1, 3, 7, 31])};")
        order = self.rng.choice(["eq", "ne", "lt", "gt"])
        self.lines.append(f"setp.{order}.u32 {guard}, %t, {self.rng.randrange(4)};")
        return guard

    def block(self, depth, *, together):
        """Return some statements; with `together`, all threads of a block reach them."""
        for _ in range(self.rng.randrange(2, 6)):
            kinds = ["compute", "compute", "memory", "atomic", "pause"]
            kinds += ["branch", "branch", "loop", "loop"] if depth < 3 else []
            kinds += ["barrier", "shuffle", "ballot"] if together else ["leave"] if depth > 1 else []
            getattr(self, self.rng.choice(kinds))(depth, together)

    def compute(self, _depth, _together):
        a, b, c = (self.register() for _ in range(3))
        choices = [f"mad.lo.s32 {a}, {b}, 5, {c};", f"xor.b32 {a}, {b}, {c};", f"@%p2 add.s32 {a}, {a}, {b};"]
        self.lines.append(self.rng.choice(choices))

    def memory(self, _depth, _together):
        self.lines.append(f"st.shared.u32 [%s], {self.register()}; ld.shared.u32 {self.register()}, [%s];")

    def atomic(self, _depth, _together):
        self.lines.append("red.global.add.u32 [%out], 1;")

    def pause(self, _depth, _together):
        self.lines.append("nanosleep.u32 20;")

    def branch(self, depth, _together):
        other, after = self.label(), self.label()
        self.lines.append(f"@{self.rng.choice(['', '!'])}{self.condition()} bra {other};")
        self.block(depth + 1, together=False)
        self.lines.append(f"bra {after};\n{other}:")
        self.block(depth + 1, together=False)
        self.lines.append(f"{after}:")

    def loop(self, depth, together):
        together = together and self.rng.random() < 0.5
        count, again = f"%c{depth}", self.label()
        self.lines.append(f"mov.u32 {count}, 3;" if together else f"and.b32 {count}, {self.register()}, 7;")
        self.lines.append(f"{again}:")
        self.block(depth + 1, together=together)
        self.lines.append(f"add.s32 {count}, {count}, -1; setp.gt.s32 %p9, {count}, 0; @%p9 bra {again};")

    def barrier(self, _depth, _together):
        self.lines.append("bar.sync 0;")

    def shuffle(self, _depth, _together):
        self.lines.append(f"shfl.sync.bfly.b32 {self.register()}, {self.register()}, 4, 31, -1;")

    def ballot(self, _depth, _together):
        self.lines.append(f"vote.sync.ballot.b32 {self.register()}, %p1, -1;")

    def leave(self, _depth, _together):
        self.lines.append(f"@{self.condition()} ret;")

    @property
    def text(self):
        stores = "\n".join(f"st.global.u32 [%o+{4 * place}], %r{4 + place};" for place in range(8))
        return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{{
  .reg .b32 %r<12>, %c<4>, %t, %s; .reg .b64 %out, %o, %w; .reg .pred %p<10>; .shared .align 4 .b8 tile[4096];
  ld.param.u64 %out, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
  mov.u32 %s, tile; shl.b32 %t, %r1, 2; add.s32 %s, %s, %t;
  mad.lo.s32 %r0, %r2, %r3, %r1; mul.wide.u32 %w, %r0, 32; add.s64 %o, %out, %w; add.s64 %o, %o, 32;
  mul.lo.s32 %r4, %r0, 7919; xor.b32 %r5, %r4, %r1; add.s32 %r6, %r5, %r2; mov.u32 %r7, 1; mov.u32 %r8, %r0;
  mov.u32 %r9, 3; mov.u32 %r10, %r1; mov.u32 %r11, %r2;
  setp.eq.u32 %p1, %r1, 3; setp.gt.u32 %p2, %r1, 40; setp.lt.u32 %p3, %r1, 9;
  {chr(10).join(self.lines)}
  {stores}
  ret;
}}"""


@pytest.mark.parametrize("seed", sampled(range(SEEDS), 3))
def test_both_engines_leave_and_count_the_same(seed):
    kernel = wf.ptx.load(Writer(seed).text)["k"]
    block, grid = [(32, 3), (100, 7), (128, 5), (33, 70)][seed % 4]
    found = []
    one, two = wf.ptx.LaunchOptions(threads=1), wf.ptx.LaunchOptions(threads=2)
    for options in ({"engine": "reference"}, {"options": one}, {"options": two}, {"options": two, "seed": 1}):
        out = np.zeros(8 + 8 * block * grid, np.uint32)
        run = kernel.launch(grid, block, [out], **({"engine": "compiled"} | options))
        found.append((out.tobytes(), run.counts))

    assert all(one == found[0] for one in found)
    assert any(found[0][0])
    assert kernel.is_shared_out
