"""Run many interleavings of one launch and compare the final memory.

Each run starts from the same memory. Its seed permutes the blocks and chooses, every few instructions, the warp that
continues. A different result shows that the order matters: there is a race, or atomics compute a float sum.
Equal results prove nothing; the check "races" determines which accesses are ordered.
"""

from collections.abc import Callable
from dataclasses import dataclass

from warpfrag.machine.interpreter.device_memory import DeviceMemory, MemorySnapshot


@dataclass(frozen=True)
class Exploration:
    """The results of other interleavings: the number of runs, and the seeds and arrays whose results differ."""

    runs: int
    seeds: tuple[int, ...] = ()
    """Seeds whose final memory differs from the launch's."""
    arrays: tuple[str, ...] = ()
    """The arrays whose contents differ."""
    errors: tuple[str, ...] = ()
    """The distinct messages of runs that ended with an error."""

    @property
    def agrees(self) -> bool:
        """True if every run ends without an error and with the same memory."""
        return not self.seeds and not self.errors

    def __str__(self) -> str:
        """Describe the result in one sentence."""
        if self.agrees:
            return f"all {self.runs} interleavings end with the same memory"
        parts = []
        if self.seeds:
            more = ", ..." if len(self.seeds) > 5 else ""
            named = ", ".join(map(str, self.seeds[:5]))
            count = f"{len(self.seeds)} of {self.runs} interleavings"
            parts.append(f"{count} differ in {', '.join(self.arrays)} (seeds {named}{more})")
        parts += [f"one ended with: {error}" for error in self.errors[:1]]
        return "; ".join(parts)


def explore(memory: DeviceMemory, before: MemorySnapshot, runs: int, run: Callable[[int], str]) -> Exploration:
    """Run a launch with `runs` different seeds from its initial memory, then restore its final memory.

    `run(seed)` runs the launch and returns the message of the error that ended it, or an empty string.
    """
    names = [allocation.name for allocation in memory.allocations if allocation.writable]
    after = memory.snapshot()
    seeds: list[int] = []
    arrays: dict[str, None] = {}
    errors: dict[str, None] = {}
    for seed in range(runs):
        before.restore()
        error = run(seed)
        if error:
            errors[error] = None
            continue
        if differing := after.changed():
            seeds.append(seed)
            arrays |= dict.fromkeys(names[at] if at < len(names) else "a surface" for at in differing)
    after.restore()
    return Exploration(runs, tuple(seeds), tuple(arrays), tuple(errors))
