"""The actions of decoded instructions, which both engines execute.

An opcode row converts an instruction's qualifiers to one of these actions. `results` and `sources` are the types of its
register operands in order; a `LaneOp` computes a function of arrays of codes, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias, dataclass_transform

from warpfrag.isa.qualifiers import Form
from warpfrag.isa.tcgen05_spelling import TensorSpelling
from warpfrag.machine.ir.scalar_types import Codes, Type
from warpfrag.machine.ir.state_spaces import StateSpace

Geometry = Literal["1d", "2d", "3d", "a1d", "a2d", "cube", "acube"]
Boundary = Literal["trap", "clamp", "zero"]
Lod = Literal["base", "level", "grad"]
CodeFunction: TypeAlias = "Callable[..., Codes]"
"""A function from arrays of codes, with one element per lane, to an array of result codes."""
LaneFunction: TypeAlias = "Callable[..., Codes | tuple[Codes, ...]]"
"""A function like CodeFunction that may return several results."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Action:
    """The base class of all actions; each subclass is a frozen dataclass."""

    ends_block: ClassVar[bool] = False
    is_collective: ClassVar[bool] = False  # True if all lanes of a member mask take part together

    def __init_subclass__(cls, **flags: bool) -> None:
        """Make a subclass a dataclass, and set its flags."""
        for name, flag in flags.items():
            setattr(cls, name, flag)
        dataclass(frozen=True)(cls)


class FusedProduct(NamedTuple):
    """A multiply that contraction fused into an add: its opcode, and flags that negate the product and the addend."""

    opcode: str
    negates_product: bool
    negates_addend: bool


class LaneOp(Action):
    """A per-lane operation on registers. A source of None is an immediate, passed as an int.

    `nan_order` lists operand numbers of an f64 operation: the result is the first of these operands that is a NaN.
    """

    results: tuple[Type, ...]
    sources: tuple[Type | None, ...]
    function: LaneFunction
    extends: bool = False  # True if the result is extended to the width of its register
    fused: FusedProduct | None = None
    nan_order: tuple[int, ...] = ()
    is_nan_order_certain: bool = False  # if False, results that depend on the order are recorded as uncertain


class Move(Action):
    """mov: copy a register, pack a vector into one register, or unpack a register into a vector."""

    type: Type


class NoOp(Action):
    """An instruction without a visible effect, such as a hint, a fence or a pause."""

    pauses: bool = False  # True for nanosleep, at which the warp yields to other warps


class MemoryLoad(Action):
    """ld, ldu and ld.global.nc: load registers from memory."""

    space: StateSpace
    type: Type
    count: int
    polls: bool = False  # True for volatile, relaxed and acquire loads, which a warp may use to poll


class MemoryStore(Action):
    """st: store registers to memory."""

    space: StateSpace
    type: Type
    count: int


class Allocate(Action):
    """alloca: allocate stack space; sources are the size, the alignment, the bytes in use and the stack start."""


class Atomic(Action):
    """atom and red: replace a value with `function(old, b, c)`; `returns` is True if the old value is used.

    For generic addresses in the shared or local window, `in_window` replaces `function` unless it is None.
    """

    space: StateSpace
    type: Type
    count: int
    name: str
    function: LaneFunction
    returns: bool
    is_float: bool
    in_window: LaneFunction | None = None


class TextureFetch(Action):
    """tex and tld4: read four elements; tld4 gathers one channel of the four texels around a coordinate."""

    geometry: Geometry
    coordinates: Type
    lod: Lod | None = None
    channel: Literal["r", "g", "b", "a"] | None = None


class SurfaceLoad(Action):
    """suld.b: load elements from a surface; the x coordinate is in bytes."""

    geometry: Geometry
    type: Type
    count: int
    boundary: Boundary


class SurfaceStore(Action):
    """sust.b: store registers to a surface; the x coordinate is in bytes."""

    geometry: Geometry
    type: Type
    count: int
    boundary: Boundary


class SurfaceReduction(Action):
    """sured.b: replace an element of a surface with `function(old, b)`; the x coordinate is in bytes."""

    geometry: Geometry
    type: Type
    boundary: Boundary
    function: CodeFunction


SurfaceOp: TypeAlias = SurfaceLoad | SurfaceStore | SurfaceReduction


class AsyncCopy(Action):
    """cp.async: copy from global to shared memory, padding with zeros."""


class BulkCopy(Action):
    """cp.async.bulk and cp.reduce.async.bulk: copy or reduce consecutive bytes, lane by lane.

    The copy signals an mbarrier or the thread's bulk group; `function(old, b)` reduces elements of type `type`.
    """

    target: StateSpace
    source: StateSpace
    tells_mbarrier: bool
    is_multicast: bool = False
    type: Type | None = None
    function: CodeFunction | None = None


class TensorCopy(Action):
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: copy or reduce a tensor-map box, lane by lane.

    `reduction` names the operation; the tensor map determines the element type.
    """

    rank: int
    direction: Literal["load", "store"]
    mode: Literal["tile", "im2col", "im2col_no_offs"] = "tile"
    is_multicast: bool = False
    reduction: str = ""

    @property
    def tells_mbarrier(self) -> bool:
        """True if the copy signals an mbarrier instead of the bulk group."""
        return self.direction == "load"


class AsyncStore(Action):
    """st.async and red.async: store registers to shared memory in the cluster, and signal an mbarrier."""

    type: Type
    count: int
    function: CodeFunction | None = None
    is_ordered: bool = False  # True if the result depends on the order of the stores


class TensorMapReplace(Action):
    """tensormap.replace: change one field of a tensor map in memory."""

    space: StateSpace
    field: str
    has_axis: bool


class TensorMapCopy(Action, is_collective=True):
    """tensormap.cp_fenceproxy: copy a tensor map from shared to global memory; executed by a whole warp."""


class ClusterBarrier(Action, ends_block=True):
    """barrier.cluster: the threads of a cluster arrive at a barrier, or wait for it."""

    waits: bool


class Branch(Action, ends_block=True):
    """bra and brx.idx: jump to a label, or to one label of a list."""

    indexed: bool = False


class DirectCall(Action, ends_block=True):
    """A call to a function by name."""


class IndirectCall(Action, ends_block=True):
    """A call by address.

    `addresses` lists the possible functions; the instruction's `targets` are direct calls of them, in the same order.
    """

    addresses: tuple[int, ...]


class SystemFunction(NamedTuple):
    """The signature of a function that the driver provides: sizes of arguments and results in bytes."""

    arguments: tuple[int, ...]
    results: tuple[int, ...] = ()


SYSTEM_FUNCTIONS = {
    "vprintf": SystemFunction((8, 8), (4,)),
    "__assertfail": SystemFunction((8, 8, 4, 8, 8)),
    "malloc": SystemFunction((8,), (8,)),
    "free": SystemFunction((8,)),
}


class SystemCall(Action):
    """A call to a function that the driver provides."""

    name: str


class Return(Action, ends_block=True):
    """ret and exit: return from a function, or end the thread."""

    whole_thread: bool = False


class Trap(Action):
    """trap and brkpt: end the launch with an error."""


class Barrier(Action, ends_block=True):
    """bar and barrier: arrive at a block barrier and, if `waits` is set, wait for the other threads."""

    waits: bool = True
    reduction: str = ""
    aligned: bool = True


class WarpWait(Action, is_collective=True):
    """bar.warp.sync: wait for other lanes of the warp."""


class Reconverge(Action, ends_block=True):
    """BSYNC: wait for the live lanes that belong to a convergence barrier."""


class LeaveBarrier(Action):
    """BREAK: remove lanes from a convergence barrier of their warp."""


class Jump(Action, ends_block=True):
    """BRX, RET and CALL.ABS: jump to an address; `starts` maps valid addresses to instruction indices."""

    starts: Mapping[int, int]


class WarpCollective(Action, is_collective=True):
    """A shuffle, vote, match or reduction: `function(mask, *codes)` takes the codes of all 32 lanes of every warp.

    `mask` is bool[warps, 32] and selects the participating lanes. With `synced`, the last source is the mask of lanes
    to wait for; with `by_members`, lanes that pass the same mask take part together.
    """

    results: tuple[Type, ...]
    sources: tuple[Type, ...]
    function: LaneFunction
    synced: bool = True
    by_members: bool = True


class MemoryBarrier(Action):
    """mbarrier: an operation on a 64-bit barrier object in shared memory."""

    name: str
    space: StateSpace = "shared"
    counts: bool = False
    parity: bool = False
    waits: bool = False
    transaction: bool = False
    drops: bool = False
    completes: bool = True


class MatrixOp(Action, is_collective=True):
    """A matrix instruction (mma, wmma, wgmma, ldmatrix, stmatrix or movmatrix); `name` is its name in `isa`."""

    name: str
    operation: str
    form: Form = field(compare=False)  # the parsed qualifiers of the name
    space: StateSpace = "generic"


class TensorThreadOp(Action):
    """A tcgen05 instruction that a single thread issues: mma, cp, shift, commit, fences."""

    spelling: TensorSpelling


class TensorWarpOp(TensorThreadOp, is_collective=True):
    """A tcgen05 instruction that a whole warp issues: ld, st, wait, alloc, dealloc."""


class Unbound(Action):
    """The placeholder action of an instruction whose opcode is not bound yet."""


class Refused(Action, ends_block=True):
    """An unsupported instruction and the reason; executing it raises an error."""

    reason: str
