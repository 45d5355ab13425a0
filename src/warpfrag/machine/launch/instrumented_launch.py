"""Launches with checks: in compiled code if that can prove a launch clean, otherwise in the interpreter.

A kernel that is not compiled yet is interpreted until that has taken as long as compiling would. Every run starts from
the initial contents of memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.program import Program, SourceLine
from warpfrag.machine.jit.screening import LaunchScreen, ProgramScreen
from warpfrag.machine.launch.grid import Progress, Waves, Work
from warpfrag.machine.sanitizer.checked_batch import LaunchChecks


class InstrumentedLaunch:
    """A launch with checks; `screen` decides the checks in compiled code, or is None if they must be interpreted.

    The check "memory" alone needs no screen: if compiled code ends without an error, there was no bad access.
    """

    def __init__(
        self,
        program: Program,
        config: LaunchConfig,
        memory: DeviceMemory,
        checks: tuple[Check, ...],
        sources: Mapping[int, SourceLine],
        screen: ProgramScreen | None,
    ) -> None:
        """Prepare the launch; nothing runs yet."""
        self.program, self.config, self.memory = program, config, memory
        self.checks, self.sources = checks, sources
        self.is_plain = checks == ("memory",) and not memory.has_heap  # compiled code does not track freed memory
        is_used = screen is not None and (self.is_plain or screen.is_possible(config, memory, checks))
        self.screen = screen if is_used else None
        changed = memory.writable_buffers() if self.screen is not None else []
        self.before = [(buffer, buffer.copy()) for buffer in changed]

    def run(self, waves: Waves, threads: int | None, progress: Progress | None) -> Work:
        """Run all waves; `threads` applies only when compiled code runs without a screen."""
        screen = self.screen
        if screen is None:
            return self.interpret(waves, progress)
        if not self.is_plain and not screen.compiled.is_ready:
            work = self.interpret(waves.again(), progress, until_compiled=screen)
            if work.checks is None or not work.checks.is_stopped:
                return work
            screen.compiled.prepare()
            self.restore()
        if self.is_plain or screen.is_decided(self.checks):
            launch = None if self.is_plain else LaunchScreen(screen, self.memory, self.checks)
            work = Work(self.program, self.config, self.memory.fork(), screen.compiled, screen=launch)
            work.run_waves(waves.again(), threads if self.is_plain else 1, progress)
            is_judged = work.failure is None and (launch is None or not (work.divergent or launch.is_uncertain))
            if is_judged or self.config.is_late:
                return work
            self.restore()
        return self.interpret(waves, progress)

    def interpret(self, waves: Waves, progress: Progress | None, until_compiled: ProgramScreen | None = None) -> Work:
        """Run waves with the checks until none remains, or until the kernel is worth compiling."""
        checks = LaunchChecks(self.checks, self.sources)
        if until_compiled is not None:
            checks.stops = until_compiled.compiled.is_worthwhile_after
        work = Work(self.program, self.config, self.memory.fork(), None, checks)
        work.memory.is_checked = "memory" in self.checks
        work.run_waves(waves, 1, progress)
        if until_compiled is not None:
            until_compiled.compiled.interpreted_instructions += checks.order.now
        return work

    def restore(self) -> None:
        """Restore the initial contents of memory."""
        for buffer, data in self.before:
            buffer[...] = data
        self.memory.tags.forget()
