"""An IR builder for vectors of 32 lanes: it writes the text of one LLVM function, an instruction at a time.

Methods have the names of llvmlite's `IRBuilder` and of LLVM's instructions: `add`, `icmp`, `select`, `fpext`. Their
operands are vectors with one element for each lane of a warp, of integers (`IntLanes`) or floats (`FloatLanes`). Where
an integer is expected, a Python int means a constant in every lane (a splat), as wide as the other operand:

    ir.and_(a, 0xFF)    ->    %v1 = and <32 x i32> %a, splat (i32 255)

Text, and not llvmlite's objects, because it is several times quicker to make, and is what the object cache is keyed by.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from warpfrag.layout.coordinates import LANES
from warpfrag.layout.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FLOAT_TYPES = {16: "half", 32: "float", 64: "double"}


@frozen_dataclass
class LaneVector(ABC):
    """An element for every lane: an SSA name or a constant expression, and the bits of each element."""

    name: str
    bits: int

    @property
    @abstractmethod
    def type(self) -> str:
        """The LLVM type, such as <32 x i32>."""

    def __str__(self) -> str:
        """Type and name, as most instructions spell an operand."""
        return f"{self.type} {self.name}"


class IntLanes(LaneVector):
    """An integer in every lane."""

    @property
    def type(self) -> str:
        """<32 x i1> to <32 x i64>."""
        return f"<{LANES} x i{self.bits}>"


class FloatLanes(LaneVector):
    """A float in every lane."""

    @property
    def type(self) -> str:
        """<32 x half>, <32 x float> or <32 x double>."""
        return f"<{LANES} x {FLOAT_TYPES[self.bits]}>"


IntOperand = IntLanes | int
"""A vector, or a constant for every lane."""
AnyLanes = TypeVar("AnyLanes", bound=LaneVector)


def splat(code: int, bits: int) -> IntLanes:
    """One integer in every lane; more bits than there are get lost."""
    if bits == 1:
        return IntLanes(f"splat (i1 {'true' if code else 'false'})", 1)
    return IntLanes(f"splat (i{bits} {code & ((1 << bits) - 1)})", bits)


def float_constant(value: float, bits: int = 64) -> str:
    """A float constant as LLVM spells it, whatever its type: by the bits of a float64."""
    return f"{FLOAT_TYPES[bits]} 0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def float_splat(value: float, bits: int = 64) -> FloatLanes:
    """One float in every lane."""
    return FloatLanes(f"splat ({float_constant(value, bits)})", bits)


class IRBuilder:
    """Writes the instructions of one function; `declarations` are the module-level lines that it needs."""

    def __init__(self) -> None:
        """Start a function without instructions; the names of its values are numbered from %v1."""
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self._count = 0

    # --- lines of text

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{name}:")

    def assign(self, text: str) -> str:
        """Append an instruction with a result, and return the new SSA name of that."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    # --- integers

    def _int(self, opcode: str, a: IntLanes, b: IntOperand) -> IntLanes:
        right = b if isinstance(b, IntLanes) else splat(b, a.bits)
        return IntLanes(self.assign(f"{opcode} {a}, {right.name}"), a.bits)

    def add(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a + b, wrapping."""
        return self._int("add", a, b)

    def sub(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a - b, wrapping."""
        return self._int("sub", a, b)

    def mul(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """The low bits of a * b."""
        return self._int("mul", a, b)

    def div(self, a: IntLanes, b: IntOperand, *, signed: bool) -> IntLanes:
        """The quotient towards zero; undefined for a zero in b."""
        return self._int("sdiv" if signed else "udiv", a, b)

    def rem(self, a: IntLanes, b: IntOperand, *, signed: bool) -> IntLanes:
        """The remainder, with the sign of a; undefined for a zero in b."""
        return self._int("srem" if signed else "urem", a, b)

    def and_(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a & b."""
        return self._int("and", a, b)

    def or_(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a | b."""
        return self._int("or", a, b)

    def xor(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a ^ b."""
        return self._int("xor", a, b)

    def not_(self, a: IntLanes) -> IntLanes:
        """~a, bit by bit."""
        return self._int("xor", a, -1)

    def neg(self, a: IntLanes) -> IntLanes:
        """-a modulo 2**bits."""
        return self._int("sub", splat(0, a.bits), a)

    def shl(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a << b; poison from the width of a on."""
        return self._int("shl", a, b)

    def lshr(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a >> b with zeros from above; poison from the width of a on."""
        return self._int("lshr", a, b)

    def ashr(self, a: IntLanes, b: IntOperand) -> IntLanes:
        """a >> b with the sign from above; poison from the width of a on."""
        return self._int("ashr", a, b)

    def icmp(self, predicate: str, a: IntLanes, b: IntOperand) -> IntLanes:
        """One bit per lane: whether an LLVM predicate (eq, ult, sge, ...) holds."""
        right = b if isinstance(b, IntLanes) else splat(b, a.bits)
        return IntLanes(self.assign(f"icmp {predicate} {a}, {right.name}"), 1)

    def select(self, condition: IntLanes, a: AnyLanes, b: AnyLanes) -> AnyLanes:
        """a where the condition holds, else b."""
        return type(a)(self.assign(f"select {condition}, {a}, {b}"), a.bits)

    def select_where(self, predicate: str, a: IntLanes, code: int, then: IntOperand, otherwise: IntLanes) -> IntLanes:
        """`then` where a compares so with a constant, else `otherwise`."""
        value = then if isinstance(then, IntLanes) else splat(then, otherwise.bits)
        return self.select(self.icmp(predicate, a, code), value, otherwise)

    def resize(self, a: IntLanes, bits: int, *, signed: bool = False) -> IntLanes:
        """Truncated, or extended by zeros or the sign, to a width; unchanged where it has that already."""
        if a.bits == bits:
            return a
        opcode = "trunc" if bits < a.bits else "sext" if signed else "zext"
        return IntLanes(self.assign(f"{opcode} {a} to <{LANES} x i{bits}>"), bits)

    # --- intrinsics

    def intrinsic(self, name: str, a: AnyLanes, *rest: AnyLanes, flag: str = "") -> AnyLanes:
        """Call an LLVM intrinsic whose operands and result have one type; `flag` is a last operand of one bit."""
        operands = (a, *rest)
        full_name = f"llvm.{name}.v{LANES}{'i' if isinstance(a, IntLanes) else 'f'}{a.bits}"
        types = ", ".join([a.type] * len(operands) + (["i1"] if flag else []))
        self.declarations.add(f"declare {a.type} @{full_name}({types})")
        args = ", ".join([*map(str, operands), *([f"i1 {flag}"] if flag else [])])
        return type(a)(self.assign(f"call {a.type} @{full_name}({args})"), a.bits)

    def minimum(self, a: IntLanes, b: IntOperand, *, signed: bool) -> IntLanes:
        """The smaller integer: llvm.smin or llvm.umin."""
        right = b if isinstance(b, IntLanes) else splat(b, a.bits)
        return self.intrinsic("smin" if signed else "umin", a, right)

    def maximum(self, a: IntLanes, b: IntOperand, *, signed: bool) -> IntLanes:
        """The larger integer: llvm.smax or llvm.umax."""
        right = b if isinstance(b, IntLanes) else splat(b, a.bits)
        return self.intrinsic("smax" if signed else "umax", a, right)

    def fma(self, a: FloatLanes, b: FloatLanes, c: FloatLanes) -> FloatLanes:
        """a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def floor(self, a: FloatLanes) -> FloatLanes:
        """The largest integral number that is not above."""
        return self.intrinsic("floor", a)

    # --- floats: registers hold codes, which are floats for the length of an operation

    def as_float(self, a: IntLanes) -> FloatLanes:
        """Bitcast codes to floats of the same width."""
        name = self.assign(f"bitcast {a} to <{LANES} x {FLOAT_TYPES[a.bits]}>")
        return FloatLanes(name, a.bits)

    def as_int(self, a: FloatLanes) -> IntLanes:
        """Bitcast floats to codes of the same width."""
        return IntLanes(self.assign(f"bitcast {a} to <{LANES} x i{a.bits}>"), a.bits)

    def _float(self, opcode: str, a: FloatLanes, b: FloatLanes) -> FloatLanes:
        return FloatLanes(self.assign(f"{opcode} {a}, {b.name}"), a.bits)

    def fadd(self, a: FloatLanes, b: FloatLanes) -> FloatLanes:
        """a + b to nearest even."""
        return self._float("fadd", a, b)

    def fsub(self, a: FloatLanes, b: FloatLanes) -> FloatLanes:
        """a - b to nearest even."""
        return self._float("fsub", a, b)

    def fmul(self, a: FloatLanes, b: FloatLanes) -> FloatLanes:
        """a * b to nearest even."""
        return self._float("fmul", a, b)

    def fdiv(self, a: FloatLanes, b: FloatLanes) -> FloatLanes:
        """a / b to nearest even."""
        return self._float("fdiv", a, b)

    def fcmp(self, predicate: str, a: FloatLanes, b: FloatLanes) -> IntLanes:
        """One bit per lane: whether an LLVM predicate (oeq, uno, olt, ...) holds."""
        return IntLanes(self.assign(f"fcmp {predicate} {a}, {b.name}"), 1)

    def fpext(self, a: FloatLanes, bits: int) -> FloatLanes:
        """Exact conversion to a wider format."""
        return FloatLanes(self.assign(f"fpext {a} to <{LANES} x {FLOAT_TYPES[bits]}>"), bits)

    def fptrunc(self, a: FloatLanes, bits: int) -> FloatLanes:
        """Conversion to a narrower format, to nearest even."""
        return FloatLanes(self.assign(f"fptrunc {a} to <{LANES} x {FLOAT_TYPES[bits]}>"), bits)

    def int_to_float(self, a: IntLanes, bits: int, *, signed: bool) -> FloatLanes:
        """sitofp or uitofp, to nearest even."""
        name = self.assign(f"{'sitofp' if signed else 'uitofp'} {a} to <{LANES} x {FLOAT_TYPES[bits]}>")
        return FloatLanes(name, bits)

    def float_to_int(self, a: FloatLanes, bits: int, *, signed: bool) -> IntLanes:
        """fptosi or fptoui, towards zero; poison where the integer type does not hold the result."""
        return IntLanes(self.assign(f"fpto{'s' if signed else 'u'}i {a} to <{LANES} x i{bits}>"), bits)

    # --- memory: pointers are SSA names or globals

    def gep(self, pointer: str, offset: int) -> str:
        """A pointer so many bytes further."""
        return self.assign(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, pointer: str, bits: int, align: int) -> IntLanes:
        """The lanes at a pointer."""
        return IntLanes(self.assign(f"load <{LANES} x i{bits}>, ptr {pointer}, align {align}"), bits)

    def store(self, value: IntLanes, pointer: str, align: int) -> None:
        """Write the lanes to a pointer."""
        self.line(f"store {value}, ptr {pointer}, align {align}")

    def gather_ints(self, table: str, values: Sequence[int], index: IntLanes) -> IntLanes:
        """For each lane one of the 32-bit entries of a constant table, which the module gets under this name."""
        self._global_table(table, "i32", [f"i32 {value}" for value in values])
        return IntLanes(self._gather(table, "i32", "i32", 4, index), 32)

    def gather_doubles(self, table: str, values: Sequence[float], index: IntLanes) -> FloatLanes:
        """For each lane one of the doubles of a constant table, which the module gets under this name."""
        self._global_table(table, "double", [float_constant(value) for value in values])
        return FloatLanes(self._gather(table, "double", "f64", 8, index), 64)

    def _global_table(self, name: str, element: str, entries: list[str]) -> None:
        self.declarations.add(f"@{name} = internal constant [{len(entries)} x {element}] [{', '.join(entries)}]")

    def _gather(self, table: str, element: str, suffix: str, size: int, index: IntLanes) -> str:
        kind, name = f"<{LANES} x {element}>", f"llvm.masked.gather.v{LANES}{suffix}.v{LANES}p0"
        self.declarations.add(f"declare {kind} @{name}(<{LANES} x ptr>, i32, <{LANES} x i1>, {kind})")
        pointers = self.assign(f"getelementptr {element}, ptr @{table}, {index}")
        return self.assign(f"call {kind} @{name}(<{LANES} x ptr> {pointers}, i32 {size}, {splat(1, 1)}, {kind} poison)")

    # --- lanes

    def lane_mask(self, predicate: IntLanes) -> str:
        """One bit per lane as a scalar of 32 bits."""
        return self.assign(f"bitcast {predicate} to i{LANES}")

    def predicate_of(self, mask: str) -> IntLanes:
        """A scalar of 32 bits as one bit per lane."""
        return IntLanes(self.assign(f"bitcast i{LANES} {mask} to <{LANES} x i1>"), 1)

    def permute(self, value: IntLanes, lanes: Iterable[int]) -> IntLanes:
        """In each lane the element of another, by a shuffle with constants."""
        indices = ", ".join(f"i32 {lane}" for lane in lanes)
        return IntLanes(self.assign(f"shufflevector {value}, {value}, <{LANES} x i32> <{indices}>"), value.bits)

    # --- functions

    def call_once(self, name: str, body: IRBuilder, result: IntLanes, argument: IntLanes) -> IntLanes:
        """Call a function of one argument %a, which the module gets once, whoever calls it."""
        self.declarations |= body.declarations
        text = "\n".join(body.lines)
        head = f"define internal {result.type} @{name}({argument.type} %a) noinline"
        self.declarations.add(f"{head} {{\n{text}\n  ret {result}\n}}")
        return IntLanes(self.assign(f"call {result.type} @{name}({argument})"), result.bits)


def splat_lines(name: str, scalar: str, bits: int = 64, count: int = LANES) -> str:
    """Two lines of assembly that put a scalar into every lane of %name, for functions that are written as text."""
    kind = f"<{count} x i{bits}>"
    return (
        f"  %{name}_first = insertelement {kind} poison, i{bits} {scalar}, i64 0\n"
        f"  %{name} = shufflevector {kind} %{name}_first, {kind} poison, <{count} x i32> zeroinitializer"
    )


def next_lane_lines(left: str, values: str, value: str, prefix: str = "") -> str:
    """Lines that take the first %lane of a mask, leave the others in %..._after, and load its value of an i64 array."""
    return f"""  %{prefix}lane = call i32 @llvm.cttz.i32(i32 %{left}, i1 true)
  %{prefix}less = sub i32 %{left}, 1
  %{left}_after = and i32 %{left}, %{prefix}less
  %{value}_at = getelementptr i64, ptr %{values}, i32 %{prefix}lane
  %{value} = load i64, ptr %{value}_at"""
