"""Compare two runs of one launch: the outputs that differ, and the instruction, block and lane of the first difference.

Both sides run wave after wave until their memory differs. That wave is then run again, one instruction at a time on
both sides, to find the origin: the first instruction with equal operands and different results.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, PtxError, WarpfragError, quote
from warpfrag.formats.float_environment import exact_floats
from warpfrag.machine.debugger.stepping import SteppedBatch, ThreadAt
from warpfrag.machine.interpreter.device_memory import Allocation, DeviceMemory
from warpfrag.machine.interpreter.warp_state import LaunchConfig, LaunchPart, LaunchTally
from warpfrag.machine.ir.program import Program, SourceLine, registers_of
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.grid import Blocks, Waves, Work
from warpfrag.machine.launch.host_arrays import as_host_array
from warpfrag.machine.launch.kernel import Kernel
from warpfrag.machine.launch.options import DEFAULT_OPTIONS, LaunchOptions, launch_config
from warpfrag.machine.launch.tensor_map_argument import TensorMap
from warpfrag.machine.semantics.textures import Surface


@dataclass(frozen=True)
class OutputDifference:
    """An argument that differs after the two runs: the number of differing elements, and the first one's values."""

    argument: int
    name: str
    count: int
    index: tuple[int, ...]
    values: tuple[object, object]

    def __str__(self) -> str:
        """Format the difference as one line."""
        place = ", ".join(map(str, self.index))
        text = f"argument {self.argument} ({self.name}): {self.count} elements differ, the first at [{place}]"
        return f"{text}: {self.values[0]} and {self.values[1]}"


@dataclass(frozen=True)
class InstructionDifference:
    """The instruction at which two runs first differ, with its thread and both sides' results.

    `codes` are the contents of the register or memory `name`, as unsigned integers.
    """

    line: int
    text: str
    source: SourceLine | None
    thread: ThreadAt
    visit: int
    name: str
    codes: tuple[int, int]

    def __str__(self) -> str:
        """Format the difference as one line."""
        where = f" ({self.source})" if self.source is not None else ""
        values = f"{self.name} is {self.codes[0]:#x} and {self.codes[1]:#x}"
        return f"line {self.line}{where}: {self.text}; {self.thread}, visit {self.visit}: {values}"


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: the outputs that differ, and the origin of the first difference.

    The origin is the first instruction with different results although it read equal values; None if it was not found.
    """

    sides: tuple[str, str]
    outputs: tuple[OutputDifference, ...]
    origin: InstructionDifference | None = None
    note: str = ""

    @property
    def equal(self) -> bool:
        """True if both runs leave the same memory."""
        return not self.outputs and not self.note

    def __repr__(self) -> str:
        """Summarise the comparison in one line."""
        if self.equal:
            return f"<Comparison of {self.sides[0]} and {self.sides[1]}: equal>"
        where = f", from line {self.origin.line} on" if self.origin is not None else ""
        return f"<Comparison of {self.sides[0]} and {self.sides[1]}: {len(self.outputs)} arguments differ{where}>"

    def __str__(self) -> str:
        """Format the comparison as a report."""
        lines = [f"{self.sides[0]} and {self.sides[1]}: {'equal' if self.equal else 'different'}"]
        lines += [str(output) for output in self.outputs]
        lines += [f"origin: {self.origin}"] if self.origin is not None else []
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        """Return a card for notebooks."""
        from warpfrag.html import card, escape

        return card(*(f"<p>{escape(line)}</p>" for line in str(self).splitlines()))

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        origin = self.origin
        thread = None if origin is None else origin.thread._asdict()
        source = None if origin is None or origin.source is None else str(origin.source)
        return {
            "names": list(self.sides),
            "equal": self.equal,
            "outputs": [asdict(item) | {"values": [_plain(value) for value in item.values]} for item in self.outputs],
            "origin": None if origin is None else vars(origin) | {"thread": thread, "source": source},
            "note": self.note,
        }


def _plain(value: object) -> object:
    number = np.asarray(value)
    return number.item() if number.dtype.kind in "biuf" and np.isfinite(number) else str(value)


class Side:
    """One of the two runs: a kernel with its own copy of all memory."""

    def __init__(self, kernel: Kernel, args: Sequence[object], config: LaunchConfig) -> None:
        """Copy the memory that the arguments point to."""
        self.kernel, self.config = kernel, config
        memory = kernel.device_memory(args, config)
        self.originals = [(item.data.ctypes.data, len(item.data)) for item in memory.allocations]
        self.memory = detached(memory, len(kernel.program.instructions))

    @property
    def program(self) -> Program:
        """The side's program."""
        return self.kernel.program

    def run(self, wave: Blocks) -> WarpfragError | None:
        """Run a wave of blocks; return the error that ended it, if any."""
        work = Work(self.program, self.config, self.memory, self.kernel.compiled)
        work.run_wave(0, wave)
        return None if work.failure is None else work.failure[1]

    def stepped(self, wave: Blocks, memory: DeviceMemory) -> SteppedBatch:
        """Return a batch of a wave's blocks that runs one instruction at a time on `memory`."""
        instructions = len(self.program.instructions)
        tally = LaunchTally(np.zeros(instructions, np.int64), np.zeros(instructions, np.uint8))
        return SteppedBatch(LaunchPart(self.program, self.config, memory, wave, tally))


def detached(memory: DeviceMemory, instructions: int) -> DeviceMemory:
    """Return a deep copy of a memory."""
    own = DeviceMemory(memory.parameters.tobytes(), instructions)
    for item in memory.allocations:
        own.add(Allocation(item.start, item.data.copy(), item.name, item.writable))
    own.resources = {handle: _detached_resource(item) for handle, item in memory.resources.items()}
    own.are_linear, own.heap = dict(memory.are_linear), memory.heap.copy()
    return own


def _detached_resource(resource: Any) -> Any:  # noqa: ANN401 (a texture or a surface, as it came)
    if not isinstance(resource, Surface):
        return resource
    own = copy.copy(resource)
    own.array = resource.array.copy()
    return own


@exact_floats
def compare(
    kernel: Kernel,
    args: Sequence[object] = (),
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arch: Sequence[str],
    shared: int = 0,
    seed: int | None = None,
    options: LaunchOptions = DEFAULT_OPTIONS,
) -> Comparison:
    """Compare a kernel on two architectures, and find where the runs first differ.

    Arguments are those of `Kernel.launch`; arrays are not changed. The origin is the first instruction with equal
    operands and different results, with its block, warp and lane.
    """
    if not isinstance(kernel, Kernel):
        raise InvalidOperand(f"expected a kernel, got {quote(kernel)}")
    if not isinstance(arch, list | tuple) or len(arch) != 2:
        raise InvalidOperand(f"expected two architectures such as arch=['sm_80', 'sm_90'], got arch={quote(arch)}")
    configs = [launch_config(kernel.program, grid, block, shared, name, options) for name in arch]
    left, right = sides = Side(kernel, args, configs[0]), Side(kernel, args, configs[1])
    origin, note, is_traced = None, "", False
    waves: Waves = kernel.waves(left.config, seed)
    for _, wave in iter(waves.take, None):
        before = [] if is_traced else [detached(side.memory, len(kernel.program.instructions)) for side in sides]
        errors = [side.run(wave) for side in sides]
        if not is_traced and (any(errors) or differing(left.memory, right.memory)):
            is_traced = True
            origin, note = _origin(sides, wave, before)
        if any(errors):
            failed = next(number for number, error in enumerate(errors) if error is not None)
            note = f"{note + '; ' if note else ''}{sides[failed].config.arch} ended with an error: {errors[failed]}"
            break
    return Comparison((left.config.arch, right.config.arch), _outputs(args, sides), origin, note)


def differing(left: DeviceMemory, right: DeviceMemory) -> bool:
    """Return True if global memory differs."""
    others = {item.start: item.data for item in right.allocations}
    return any(item.start in others and not np.array_equal(item.data, others[item.start]) for item in left.allocations)


def _origin(
    sides: tuple[Side, Side], wave: Blocks, before: list[DeviceMemory]
) -> tuple[InstructionDifference | None, str]:
    """Return the first instruction that leaves different registers, and a note if there is none."""
    left, right = (side.stepped(wave, memory) for side, memory in zip(sides, before, strict=True))
    visits: Counter[int] = Counter()
    with np.errstate(all="ignore"):
        while (position := left.next_position()) is not None and right.next_position() is not None:
            inst = left.inst_at(position)
            try:
                left.advance()
                right.advance()
            except PtxError as error:
                return None, f"the comparison ends with an error: {error}"
            for register in (register for result in inst.results for register in registers_of(result)):
                mine, yours = left.registers[register.index], right.registers[register.index]
                if (mine != yours).any():
                    row, lane = (int(axis) for axis in np.argwhere(mine != yours)[0])
                    thread = ThreadAt(left.blocks[int(left.warp_block[row])], int(left.warp_index[row]), lane)
                    source = sides[0].kernel.module.sources.get(inst.line)
                    codes = int(mine[row, lane]), int(yours[row, lane])
                    visit = visits[position.at]
                    return InstructionDifference(inst.line, inst.text, source, thread, visit, register.name, codes), ""
            visits[position.at] += 1
    return None, "run side by side, the two leave the same memory: the difference depends on the order of warps"


def _outputs(args: Sequence[object], sides: tuple[Side, Side]) -> tuple[OutputDifference, ...]:
    """Return the arguments that differ between the two runs."""
    outputs = []
    parameters = sides[0].kernel.parameters
    for number, value in enumerate(args):
        array = value.array if isinstance(value, TensorMap | DeviceArray | Surface) else value
        array = array.array if isinstance(array, DeviceArray) else array
        host = as_host_array(array, f"argument {number}") if array is not None else None
        if host is None or not host.size or isinstance(value, Surface):
            continue
        mine, yours = (_left_in(side, host) for side in sides)
        if mine is None or yours is None:
            continue
        differs = (_bytes(mine) != _bytes(yours)).any(axis=-1)
        if differs.any():
            first = tuple(int(axis) for axis in np.unravel_index(int(differs.reshape(-1).argmax()), host.shape))
            name = parameters[number].name if number < len(parameters) else str(number)
            values = (mine[first], yours[first])
            outputs.append(OutputDifference(number, name, int(differs.sum()), first, values))
    return tuple(outputs)


def _left_in(side: Side, host: NDArray[Any]) -> NDArray[Any] | None:
    """Return a run's copy of an array, found by the array's host address."""
    place = host.__array_interface__["data"][0]
    for original, own in zip(side.originals, side.memory.allocations, strict=True):
        if original == (place, host.nbytes):
            return own.data[: host.nbytes].view(host.dtype).reshape(host.shape)
    return None


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """View an array as the bytes of its elements."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
