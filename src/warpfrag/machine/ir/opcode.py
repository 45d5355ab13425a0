"""Decoded opcodes: the row of the opcode table, the attributes, and the action that is bound to them.

A row consists of the opcode; its types, by position; its modifiers, each a set of alternatives; `bind`, which creates
an action from the attributes; and the source of the semantics. A modifier has the name of the `Attributes` field that
it sets; modifiers in `HINTS` are accepted, but set no field.

`Attributes` are parsed from the qualifiers: `mad.hi.cc.u32` is the opcode `mad` with half="hi", carry_out=True and the
type u32. The qualifiers are parsed once, when an instruction is decoded (`ops.opcode_rows.match`); all passes and both
engines use these fields, never the text. A field that no qualifier sets has its default value, such as None, False, or
the generic state space.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from warpfrag.machine.ir.actions import Action, Boundary, Geometry, Lod, Refused
from warpfrag.machine.ir.scalar_types import Type
from warpfrag.machine.ir.state_spaces import StateSpace

Rounding = Literal["rn", "rz", "rm", "rp", "rna"]
IntegralRounding = Literal["rni", "rzi", "rmi", "rpi"]
Half = Literal["lo", "hi", "wide"]
Comparison = Literal[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"
]
BooleanOp = Literal["and", "or", "xor"]
PermuteMode = Literal["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]
FloatClass = Literal["finite", "infinite", "number", "notanumber", "normal", "subnormal"]
MemoryOrder = Literal["weak", "relaxed", "acquire", "release", "acq_rel", "volatile"]


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of one instruction; `name` is the whole opcode as written, for messages and counts."""

    name: str
    opcode: str
    types: tuple[Type, ...] = ()
    operand_count: int = 0

    # rounding and clamping
    rounding: Rounding | None = None
    integral: IntegralRounding | None = None  # rounding to an integer
    accuracy: Literal["approx", "full"] | None = None  # None means correctly rounded
    ftz: bool = False  # flush subnormals to zero
    sat: bool = False  # clamp to the range of integers, or to 0..1
    satfinite: bool = False  # clamp overflow to the largest finite number
    relu: bool = False
    nan: bool = False  # min and max return NaN if an operand is NaN
    xorsign: bool = False
    oob: bool = False  # fma: 0 if a factor is the NaN that tensor copies use as fill value
    abs: bool = False

    # integers and bits
    half: Half | None = None  # the half of a product, or of dp2a's second operand
    carry_in: bool = False
    carry_out: bool = False
    direction: Literal["l", "r"] | None = None  # the direction of a funnel shift
    wraps: bool = False  # shift amounts are taken modulo the width, not clamped
    shift_amount: bool = False  # bfind: return the shift amount instead of the bit position
    permute: PermuteMode | None = None
    accumulate: bool = False  # video instructions: add the sum of the results to c
    increment: bool = False  # vmad.po: add 1 to the sum
    shift_right: Literal["shr7", "shr15"] | None = None  # vmad: shift the sum right by 7 or 15 before clamping it

    # comparisons and conversions
    comparison: Comparison | None = None
    combine: BooleanOp | None = None  # how setp combines the comparison with a predicate
    float_class: FloatClass | None = None  # the class that testp tests for
    packs: bool = False  # True for cvt.pack
    narrow: tuple[Literal["u", "s"], int] | None = None  # the result type of cvt.pack: signedness and bits
    to_space: bool = False  # cvta.to: convert from a generic address

    # memory
    space: StateSpace = "generic"
    vector: int = 1
    ordering: MemoryOrder | None = None
    parity: bool = False  # mbarrier: the operand is a phase parity, not a state
    arrival: Literal["expect_tx", "noComplete"] | None = None
    noinc: bool = False

    # bulk copies and tensor maps
    destination: StateSpace | None = None
    origin: StateSpace | None = None
    axes: int = 0  # the rank of the tensor map
    load_mode: Literal["tile", "im2col", "im2col_no_offs"] | None = None
    multicast: bool = False  # copy to several blocks of a cluster
    map_field: str | None = None  # the field that tensormap.replace changes

    # textures and surfaces
    geometry: Geometry = "1d"  # a1d and a2d are arrays of layers
    boundary: Boundary = "trap"  # the handling of coordinates outside a surface
    lod: Lod | None = None  # the way to select a mipmap level
    channel: Literal["r", "g", "b", "a"] | None = None  # the channel that tld4 gathers

    # operations across lanes
    operation: str | None = None  # as in atom.add, redux.min, shfl.up, mbarrier.init, bar.red
    reduction: Literal["popc", "and", "or"] | None = None  # the reduction of bar.red
    sync: bool = False
    aligned: bool = False


Level = Literal["specified", "measured", "approximate"]
"""The basis of an opcode's results: the ISA, a table measured on one architecture, or an approximation."""
Binder: TypeAlias = "Callable[[Attributes], Action]"
Types: TypeAlias = tuple[Type, ...]

HINTS = frozenset((
    "scope", "cache", "level1", "level2", "prefetch", "cache_hint", "coherent", "unified",  # cache hints
    "uniform", "cta", "warp", "indexed", "event_mask",  # qualifiers without alternatives
    "asynchronous", "to", "source", "group", "mbarrier", "arrive", "b64", "noftz", "unformatted", "memory_mapped",
    "bulk", "reduces", "completion", "prefetches", "reads", "tensor", "cluster", "map_bits", "value_bits",
))  # fmt: skip


class Modifier(NamedTuple):
    """The alternatives of a modifier; an instruction has at most one of them, or exactly one if `is_required`."""

    words: tuple[str, ...]
    is_required: bool


@dataclass(frozen=True)
class OpcodeRow:
    """A row of the opcode table, for an opcode or one of its type families."""

    opcode: str
    types: tuple[Types, ...]  # the allowed types at each position
    modifiers: Mapping[str, Modifier]
    bind: Binder
    source: str
    level: Level = "specified"
    has_result: bool = True  # True if the first operand is written
    may_contract: bool = False  # True if ptxas may contract an instruction that has no rounding mode
    any_words: bool = False  # True if any qualifiers are accepted, as for hints, fences, and matrix instructions
    cases: int = 0  # the number of inputs whose results were compared with a GPU
    implies: Mapping[str, object] = field(default_factory=dict)  # attributes that the opcode itself implies

    def __post_init__(self) -> None:
        """Raise an error for a modifier that sets no attribute."""
        known = {attribute.name for attribute in fields(Attributes)} | HINTS
        unknown = sorted((self.modifiers.keys() | self.implies.keys()) - known)
        if unknown:
            raise ValueError(
                f"{self.opcode}: expected modifiers that are attributes or hints, got {', '.join(unknown)}"
            )


@dataclass(frozen=True)
class DecodedOpcode:
    """An opcode with its qualifiers parsed; its action is bound once its attributes are final."""

    row: OpcodeRow | None
    attributes: Attributes
    refusal: str = ""  # the reason why no row matches

    @cached_property
    def action(self) -> Action:
        """The action for the opcode's attributes."""
        return Refused(self.refusal) if self.row is None else self.row.bind(self.attributes)
