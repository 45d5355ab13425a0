"""Random kernels of two warpgroups that store tiles, multiply them with wgmma, and may lack synchronisation.

`text_of(seed)` is always the same kernel. Some instructions that order the others are left out or put elsewhere.
"""

import random

TILE = 2304  # bytes: A of 64 x 16, then B of 16 x 8, both f16
TILES = 3
HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{
.shared .align 128 .b8 sm[8192];
.reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<16>; .reg .pred %p<8>; .reg .b16 %h<4>;
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, 127;
shr.u32 %r3, %r1, 7;
mov.u32 %r4, sm;
shl.b32 %r5, %r2, 4;
add.u32 %r5, %r4, %r5;
setp.lt.u32 %p1, %r2, 16;
setp.eq.u32 %p2, %r3, 0;
setp.eq.u32 %p3, %r1, 0;
setp.lt.u32 %p4, %r1, 32;
ld.param.u64 %rd1, [x];
mul.wide.u32 %rd2, %r2, 16;
add.u64 %rd1, %rd1, %rd2;
ld.param.u64 %rd3, [y];
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd3, %rd2;
cvt.u64.u32 %rd4, %r4;
shr.u64 %rd4, %rd4, 4;
or.b64 %rd4, %rd4, 0x0000000800080000;
"""
SETUP = "".join(f"mov.f32 %f{number}, 0f00000000;\n" for number in range(8))


class Kernel:
    """The steps of one kernel; `rng` decides which of them order the others."""

    def __init__(self, seed):
        """Begin the kernel of a seed."""
        self.rng = random.Random(seed)
        self.lines, self.labels = [], 0
        self.care = self.rng.choice([1.0, 1.0, 0.96, 0.85])  # the share of orders that are kept

    def maybe(self, text):
        """Append an instruction that orders others, or omit it."""
        if self.rng.random() < self.care:
            self.lines.append(text)

    def only(self, who, lines):
        """Append instructions for all threads, one warpgroup, or one of the predicates."""
        if who is None:
            self.lines += lines
            return
        self.labels += 1
        self.lines += [f"@{'' if who.startswith('!') else '!'}{who.removeprefix('!')} bra L{self.labels};", *lines]
        self.lines.append(f"L{self.labels}:")

    def store(self, tile, who=None):
        """Store a whole tile by one warpgroup: A by all of its threads, B by 16 of them."""
        at = tile * TILE
        zero = "{%r10, %r10, %r10, %r10}"
        value = self.rng.choice(["0", "0", "%r1", str(len(self.lines))])
        lines = [f"mov.u32 %r10, {value};", f"st.shared.v4.b32 [%r5+{at}], {zero};"]
        self.only(who or "%p2", [*lines, f"@%p1 st.shared.v4.b32 [%r5+{at + 2048}], {zero};"])

    def copy(self, tile):
        """Copy a whole tile by cp.async, and wait for it."""
        at = tile * TILE
        lines = [f"cp.async.cg.shared.global [%r5+{at}], [%rd1], 16;"]
        lines += [f"@%p1 cp.async.cg.shared.global [%r5+{at + 2048}], [%rd1], 16;"]
        self.only("%p2", lines)
        self.maybe("cp.async.commit_group;")
        self.maybe(self.rng.choice(["cp.async.wait_group 0;", "cp.async.wait_all;", "cp.async.wait_group 1;"]))

    def fence(self):
        """Append fence.proxy.async, for all threads or for some."""
        who = self.rng.choice([None, None, None, None, "%p2", "!%p2", "%p4", "%p3"])
        if self.rng.random() < self.care:
            self.only(who, ["fence.proxy.async;"])

    def multiply(self, tile, group, number):
        """Multiply a tile with wgmma in one warpgroup or both, and wait for it in some cases."""
        at = tile * TILE
        registers = ", ".join(f"%f{4 * number + index}" for index in range(4))
        issue = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        lines = [f"add.u64 %rd6, %rd4, {at >> 4};", f"add.u64 %rd7, %rd4, {at + 2048 >> 4};"]
        if self.rng.random() < self.care:
            lines.append("wgmma.fence.sync.aligned;")
        lines += [f"{issue} {{{registers}}}, %rd6, %rd7, 1, 1, 1, 0, 0;"]
        if self.rng.random() < self.care:
            lines.append("wgmma.commit_group.sync.aligned;")
        self.only(group, lines)

    def steps(self):
        """Append a random sequence of steps."""
        rng = self.rng
        for tile in range(TILES):
            self.copy(tile) if rng.random() < 0.3 else self.store(tile)
        self.fence()
        self.maybe("bar.sync 0;")
        turns = rng.choice([0, 0, 2])
        self.lines += ["mov.u32 %r20, 0;", "AGAIN:"]
        for _ in range(rng.randrange(1, 6)):
            tile, number = rng.randrange(TILES), rng.randrange(2)
            group = rng.choice([None, "%p2", "!%p2"])
            self.multiply(tile, group, number)
            if rng.random() < 0.7:
                self.only(group, [f"wgmma.wait_group.sync.aligned {rng.choice([0, 0, 0, 1])};"])
                self.maybe("bar.sync 0;")
            step = rng.choice(["store", "copy", "load", "add", "none", "far store"])
            if step in {"store", "far store"}:
                self.store(rng.randrange(TILES) if step == "far store" else tile, rng.choice(["%p2", "!%p2"]))
            elif step == "copy":
                self.copy(tile)
            elif step == "load":
                self.lines += [f"ld.shared.b32 %r11, [%r5+{tile * TILE}];", "st.global.b32 [%rd3], %r11;"]
            elif step == "add":
                self.lines.append(f"add.f32 %f{4 * number}, %f{4 * number}, 0f00000000;")
            if step in {"store", "far store", "copy"}:
                self.fence()
                self.maybe("bar.sync 0;")
        if turns:
            self.lines += ["add.u32 %r20, %r20, 1;", f"setp.lt.u32 %p5, %r20, {turns};", "@%p5 bra AGAIN;"]
        self.maybe("wgmma.wait_group.sync.aligned 0;")
        self.lines += ["mov.b32 %r12, %f0;", "st.global.b32 [%rd3], %r12;"]


def text_of(seed):
    """Return the kernel of a seed."""
    kernel = Kernel(seed)
    kernel.steps()
    return HEAD + SETUP + "\n".join(kernel.lines) + "\nret;\n}\n"
