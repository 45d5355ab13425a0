"""The typed attributes of an instruction, parsed from the qualifiers of its opcode.

`mad.hi.cc.u32` is the opcode `mad` with half="hi", carry_out=True and the type u32. The qualifiers are parsed once,
when an instruction is decoded (`ops.opcode_rows.match`); all passes and both engines use these fields, never the text.
A field that the instruction omits has its default value: None, False, or the generic state space.
"""

from dataclasses import dataclass
from typing import Literal

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
Geometry = Literal["1d", "2d", "3d", "a1d", "a2d", "cube", "acube"]
Boundary = Literal["trap", "clamp", "zero"]
Lod = Literal["base", "level", "grad"]
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
    narrow: tuple[Literal["u", "s"], int] | None = None  # the target of cvt.pack: signedness and bits
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
