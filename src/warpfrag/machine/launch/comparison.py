"""Compare two runs of one launch: the outputs that differ, and the instruction, block and lane of the first difference.

Both sides run wave after wave until their memory differs. That wave is then run again, one instruction at a time on
both sides (`debugger.lockstep`), to find the origin of the first byte that differs: an instruction with equal operands
and different results. Sides are two architectures, or two kernels that differ in a few instructions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, PtxError, WarpfragError, quote
from warpfrag.formats.float_environment import exact_floats
from warpfrag.machine.debugger.lockstep import MIN_LIKENESS, Divergence, Lockstep, Origin, Pairing
from warpfrag.machine.debugger.stepping import SteppedBatch, ThreadAt
from warpfrag.machine.interpreter.device_memory import Allocation, DeviceMemory
from warpfrag.machine.interpreter.warp_state import LaunchConfig, LaunchPart, LaunchTally
from warpfrag.machine.ir.program import Program, SourceLine
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

    `text` is the left side's instruction, `other` the right side's if it differs. `codes` are the contents of the
    register or memory `name`, as unsigned integers.
    """

    line: int
    text: str
    source: SourceLine | None
    thread: ThreadAt
    visit: int
    name: str
    codes: tuple[int, int]
    other: str = ""

    def __str__(self) -> str:
        """Format the difference as one line."""
        where = f" ({self.source})" if self.source is not None else ""
        changed = f"; the other side has {self.other}" if self.other else ""
        values = f"{self.name} is {self.codes[0]:#x} and {self.codes[1]:#x}"
        return f"line {self.line}{where}: {self.text}{changed}; {self.thread}, visit {self.visit}: {values}"


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

    def __init__(self, kernel: Kernel, args: Sequence[object], config: LaunchConfig, name: str) -> None:
        """Copy the memory that the arguments point to."""
        self.kernel, self.config, self.name = kernel, config, name
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
    kernel: Kernel | Sequence[Kernel],
    args: Sequence[object] = (),
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arch: str | Sequence[str] | None = None,
    shared: int = 0,
    seed: int | None = None,
    options: LaunchOptions = DEFAULT_OPTIONS,
) -> Comparison:
    """Compare a kernel on two architectures, or two kernels, and find where the runs first differ.

    Arguments are those of `Kernel.launch`; arrays are not changed. Two kernels must be the same except for a few
    instructions, such as one kernel before and after a change. The origin of the first output that differs is the
    instruction with equal operands and different results, with its block, warp and lane.
    """
    sides = _sides(kernel, args, arch, grid, block, shared, options)
    left, right = sides
    origin, note, is_traced = None, "", False
    waves: Waves = left.kernel.waves(left.config, seed)
    for _, wave in iter(waves.take, None):
        before = [] if is_traced else [detached(side.memory, len(side.program.instructions)) for side in sides]
        errors = [side.run(wave) for side in sides]
        if not is_traced and (any(errors) or differing(left.memory, right.memory)):
            is_traced = True
            origin, note = _origin(sides, wave, before)
        if any(errors):
            failed = next(number for number, error in enumerate(errors) if error is not None)
            note = f"{note + '; ' if note else ''}{sides[failed].name} ended with an error: {errors[failed]}"
            break
    return Comparison((left.name, right.name), _outputs(args, sides), origin, note)


def _sides(
    kernel: Kernel | Sequence[Kernel],
    args: Sequence[object],
    arch: str | Sequence[str] | None,
    grid: object,
    block: object,
    shared: int,
    options: LaunchOptions,
) -> tuple[Side, Side]:
    """Return the two runs to compare."""
    kernels = [kernel] if isinstance(kernel, Kernel) else list(kernel) if isinstance(kernel, Sequence) else []
    archs = (
        [arch] if arch is None or isinstance(arch, str) else list(arch) if isinstance(arch, Sequence) else [None] * 3
    )
    if not kernels or len(kernels) > 2 or not all(isinstance(item, Kernel) for item in kernels):
        raise InvalidOperand(f"expected a kernel, or two of them, got {quote(kernel)}")
    if len(archs) > 2 or {len(kernels), len(archs)} == {1}:
        raise InvalidOperand(
            f"expected two kernels, or two architectures such as arch=['sm_80', 'sm_90'], got arch={quote(arch)}"
        )
    pairs = list(zip(kernels * (3 - len(kernels)), archs * (3 - len(archs)), strict=True))[:2]
    made = []
    for number, (item, name) in enumerate(pairs):
        config = launch_config(item.program, grid, block, shared, name, options)
        label = config.arch if len(archs) == 2 else item.name
        if len(archs) < 2 and pairs[0][0].name == pairs[1][0].name:
            label = f"{item.name} ({('first', 'second')[number]})"
        made.append(Side(item, args, config, label))
    return made[0], made[1]


def differing(left: DeviceMemory, right: DeviceMemory) -> bool:
    """Return True if global memory differs."""
    others = {item.start: item.data for item in right.allocations}
    return any(item.start in others and not np.array_equal(item.data, others[item.start]) for item in left.allocations)


def _origin(
    sides: tuple[Side, Side], wave: Blocks, before: list[DeviceMemory]
) -> tuple[InstructionDifference | None, str]:
    """Return the origin of the first differing output, and a note about it."""
    pairing = Pairing.of(sides[0].program, sides[1].program)
    if pairing.likeness < MIN_LIKENESS:
        alike = f"{pairing.likeness:.0%}"
        return None, f"the kernels are too different to be run side by side: {alike} of their instructions are the same"
    batches = [side.stepped(wave, memory) for side, memory in zip(sides, before, strict=True)]
    lockstep = Lockstep(batches[0], batches[1], pairing)
    note = ""
    try:
        lockstep.run()
    except PtxError as error:
        note = f"the comparison ends with an error: {error}"
    origin = None if lockstep.origin is None else _inst(sides, batches[0], lockstep.origin)
    if lockstep.divergence is not None:
        note = _diverged(lockstep.divergence)
    elif origin is None and not note:
        note = "run side by side, the two leave the same memory: the difference depends on the order of warps"
    return origin, note


def _diverged(divergence: Divergence) -> str:
    if divergence.left == divergence.right:
        return f"the runs take different paths: line {divergence.left} is reached by different lanes"
    texts = [f"line {line}" if line else "its end" for line in divergence]
    return f"the runs take different paths: the first continues at {texts[0]}, the second at {texts[1]}"


def _inst(sides: tuple[Side, Side], batch: SteppedBatch, origin: Origin) -> InstructionDifference:
    """Convert an origin to the names that users know."""
    ran = [
        (side, side.program.instructions[at]) for side, at in zip(sides, origin.indices, strict=True) if at is not None
    ]
    side, own = ran[0]
    other = "nothing" if len(ran) == 1 else "" if ran[1][1].text == own.text else ran[1][1].text
    thread = ThreadAt(batch.blocks[int(batch.warp_block[origin.row])], int(batch.warp_index[origin.row]), origin.lane)
    source = side.kernel.module.sources.get(own.line)
    return InstructionDifference(own.line, own.text, source, thread, origin.visit, origin.name, origin.codes, other)


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
