"""Write the steps of a kernel as PTX."""

from collections.abc import Callable, Sequence

from tools.race_oracle.oracle import LANES, REGION_BYTES, REGION_WORDS, REGIONS, Shape, Step, Word
from tools.race_oracle.random_steps import MBARRIERS

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flags, .param .align 64 .b8 map[128])
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
.shared .align 128 .b8 sm[384]; .shared .align 8 .b64 mb[6];
ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [flags]; mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3;
mov.u32 %r1, %tid.x; mov.u32 %r2, sm; mov.u32 %r3, mb; mov.u32 %r4, %cluster_ctarank; and.b32 %r6, %r1, 31;
mov.u32 %r7, 1; shl.b32 %r7, %r7, %r6; shr.u32 %r5, %r1, 5; mad.lo.u32 %r5, %r4, WARPS, %r5;
mad.lo.u32 %r8, %r5, 32, %r6; mul.lo.u32 %r8, %r8, 256;
setp.ne.u32 %p1, %r1, 0; @%p1 bra START;
"""
ARRIVE = "mbarrier.arrive.{0}.shared::{1}.b64 _, [{2}];"
COPIES: dict[str, Callable[[str, str, str], str]] = {
    "cp.async": lambda source, target, _: f"cp.async.cg.shared.global [{target}], [{source}], 16;",
    "bulk": lambda source, target, barrier: (
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{target}], [{source}], 16, [{barrier}];"
        if barrier else f"cp.async.bulk.global.shared::cta.bulk_group [{target}], [{source}], 16;"
    ),
    "neighbour": lambda source, target, barrier: (
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        f"[{target}], [{source}], 16, [{barrier}];"
    ),
    "tensor": lambda source, target, barrier: (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[{target}], {source}, [{barrier}];"
        if barrier else f"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group {target}, [{source}];"
    ),
}  # fmt: skip


class Writer:
    """Writes steps as PTX; every access is on its own line, so that a line number identifies a step."""

    def __init__(self, shape: Shape, steps: Sequence[Step], counts: dict[tuple[int, int], int]) -> None:
        """Write the whole kernel; `counts` has the arrivals that each mbarrier expects."""
        self.shape = shape
        self.lines = HEAD.replace("WARPS", str(shape.warps)).splitlines()
        self.step_of: dict[int, int] = {}
        for word in range(REGIONS * REGION_WORDS):
            self.lines.append(f"st.shared.u32 [%r2+{_offset(word)}], 0;")
        for block in range(shape.blocks):
            lines = [
                f"mbarrier.init.shared::cta.b64 [%r3+{8 * number}], {counts.get((block, number), 1)};"
                for number in range(MBARRIERS)
            ]
            self.lines += [f"setp.ne.u32 %p2, %r4, {block}; @%p2 bra I{block};", *lines, f"I{block}:"]
        self.lines += ["fence.mbarrier_init.release.cluster;", "fence.proxy.async;", "START:", *self.everyone()]
        for number, step in enumerate(steps):
            self.write(number, step)
        self.lines += ["ret;", "}"]
        self.text = "\n".join(self.lines) + "\n"

    def everyone(self, relaxed: str = "") -> list[str]:
        """Return the instructions for a barrier of all threads."""
        if self.shape.blocks == 1:
            return ["bar.sync 0;"]
        return [f"barrier.cluster.arrive{relaxed}.aligned;", "barrier.cluster.wait.aligned;"]

    def write(self, number: int, step: Step) -> None:
        """Write one step, in a branch that only its threads execute."""
        end = f"E{number}"
        if step.name == "cluster":
            self.lines += self.everyone(".relaxed" * step.relaxed)
        elif step.name == "block":
            self.lines += [f"setp.ne.u32 %p1, %r4, {step.block}; @%p1 bra {end};", "bar.sync 0;", f"{end}:"]
        elif step.name == "named":
            count = LANES * (len(step.waiters) + len(step.arrivers))
            for name, warps in (("sync", step.waiters), ("arrive", step.arrivers)):
                for warp in warps:
                    self.lines += [
                        f"setp.ne.u32 %p1, %r5, {warp}; @%p1 bra {end}w{warp};",
                        f"bar.{name} {step.barrier}, {count};",
                        f"{end}w{warp}:",
                    ]
        else:
            self.lines += [
                f"setp.eq.u32 %p1, %r5, {step.warp}; and.b32 %r9, %r7, {step.lanes:#x};",
                "setp.ne.and.u32 %p1, %r9, 0, %p1;",
                f"@!%p1 bra {end};",
            ]
            *before, access = self.instructions(number, step)
            self.lines += [*before, access]
            self.step_of[len(self.lines)] = number
            if step.name == "poll":
                self.lines.append(f"setp.eq.u32 %p2, %r12, 0; @%p2 bra W{number};")
            elif step.name == "wait":
                self.lines.append(f"@!%p2 bra W{number};")
            elif step.name == "copy" and step.mbarrier is None:
                self.lines.append("cp.async.commit_group;" if step.way == "cp.async" else "cp.async.bulk.commit_group;")
            self.lines.append(f"{end}:")

    def address(self, word: Word, warp: int, register: str) -> tuple[list[str], str, str]:
        """Return the instructions for an address, the address and its state space."""
        space, block, index = word
        if space == "global":
            return [], f"%rd1+{_offset(index)}", "global"
        if block == self.shape.block_of(warp):
            return [], f"%r2+{_offset(index)}", "shared"
        return (
            [f"mapa.shared::cluster.u32 {register}, %r2, {block};"],
            f"{register}+{_offset(index)}",
            "shared::cluster",
        )

    def barrier(self, step: Step, register: str = "%r14") -> tuple[list[str], str, str]:
        """Return the instructions for the address of an mbarrier, the address and its space."""
        if step.block == self.shape.block_of(step.warp):
            return [], f"%r3+{8 * step.mbarrier}", "cta"
        mapped = f"mapa.shared::cluster.u32 {register}, %r3, {step.block};"
        return [mapped], f"{register}+{8 * step.mbarrier}", "cluster"

    def instructions(self, number: int, step: Step) -> list[str]:
        """Return the instructions of a step; the last one is the access."""
        name = step.name
        if name in {"ld", "st", "red"}:
            before, address, space = self.address(step.word, step.warp, "%r13")
            value = f"add.u32 %r10, %r8, {number + 1};"
            access = {
                "ld": f"ld.{space}.u32 %r11, [{address}];",
                "st": f"st.{space}.u32 [{address}], %r10;",
                "red": f"red.{space}.add.u32 [{address}], %r10;",
            }[name]
            return [*before, value, access]
        if name in {"warp", "fence", "proxy"}:
            texts = {"warp": f"bar.warp.sync {step.lanes:#x};", "proxy": "fence.proxy.async;"}
            return [texts.get(name) or f"fence.acq_rel.{step.scope};"]
        if name in {"send", "poll"}:
            return _flag(number, step)
        return self.copy(step) if name == "copy" else self.wait(number, step)

    def wait(self, number: int, step: Step) -> list[str]:
        """Return the instructions of an arrival or a wait."""
        name = step.name
        scope = "cluster" if self.shape.blocks > 1 else "cta"
        if name == "arrive":
            before, address, space = self.barrier(step)
            if "bytes" in step.more:
                return [*before, f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{address}], {step.bytes};"]
            return [*before, ARRIVE.format(f"{'relaxed' if step.relaxed else 'release'}.{scope}", space, address)]
        if name == "wait":
            _, address, _ = self.barrier(step)
            order = f"{'relaxed' if step.relaxed else 'acquire'}.{scope}"
            return [f"W{number}:", f"mbarrier.try_wait.parity.{order}.shared::cta.b64 %p2, [{address}], 0;"]
        if name == "wait_group":
            if step.way == "cp.async":
                return [f"cp.async.wait_group {step.left};"]
            return [f"cp.async.bulk.wait_group{'.read' * step.reads} {step.left};"]
        raise ValueError(name)

    def copy(self, step: Step) -> list[str]:
        """Return the instructions of an asynchronous copy."""
        before: list[str] = []
        ends = []
        for register, (space, block, region) in (("%r12", step.source), ("%r13", step.target)):
            if step.way == "tensor" and space == "global":
                before += ["mov.u32 %r10, 0;", f"mov.u32 %r11, {region};"]
                ends.append("[%rd3, {%r10, %r11}]")
                continue
            own, address, _ = self.address((space, block, REGION_WORDS * region), step.warp, register)
            before += own
            ends.append(address)
        barrier = ""
        if step.mbarrier is not None:
            own, barrier, _ = self.barrier(step)
            before += own
        return [*before, COPIES[step.way](ends[0], ends[1], barrier)]


def _flag(number: int, step: Step) -> list[str]:
    """Return the instructions that set a flag or load it."""
    address = f"[%rd2+{4 * step.flag}]"
    if step.name == "send":
        return [f"st.{'release' if step.releases else 'relaxed'}.{step.scope}.global.u32 {address}, 1;"]
    return [f"W{number}:", f"ld.{'acquire' if step.acquires else 'relaxed'}.{step.scope}.global.u32 %r12, {address};"]


def _offset(word: int) -> int:
    """Return the byte offset of a word."""
    return word // REGION_WORDS * REGION_BYTES + word % REGION_WORDS * 4
