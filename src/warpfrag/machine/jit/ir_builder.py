"""An IR builder for scalars and for vectors of lanes: llvmlite's builder, which also accepts Python numbers.

Per-lane computations use vectors of GROUP lanes, which fill one or two machine registers; operations across lanes use
vectors of all lanes. A Python number used as an operand becomes a constant of the other operand's type, in every lane
if that is a vector:

    ir.and_(a, 0xFF)    ->    %1 = and <8 x i32> %a, splat (i32 255)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from llvmlite import binding, ir

from warpfrag.layout.coordinates import LANES

GROUP = 16 if binding.get_host_cpu_features().get("avx512f") else 8
"""The number of lanes in a vector for per-lane computations."""
I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
POINTER, VOID = ir.PointerType(), ir.VoidType()
Value = ir.Value
"""A scalar, or a vector with one element per lane."""
FLOATS = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}


@cache
def vector(bits: int, count: int = LANES) -> ir.VectorType:
    """Return the vector type of `count` integers."""
    return ir.VectorType(ir.IntType(bits), count)


@cache
def float_vector(bits: int, count: int = GROUP) -> ir.VectorType:
    """Return the vector type of `count` floats."""
    return ir.VectorType(FLOATS[bits], count)


def width(value: ir.Value) -> int:
    """Return the width in bits of an integer, or of an integer vector's elements."""
    return getattr(value.type, "element", value.type).width


class SplatConstant(ir.Constant):  # type: ignore[misc] # llvmlite has no types
    """A vector constant whose elements are all equal, written in LLVM's short `splat` syntax."""

    def __init__(self, kind: ir.VectorType, element: ir.Constant) -> None:
        """Create the constant from one element."""
        self.type, self.constant = kind, f"splat ({element})"

    def _get_reference(self) -> str:
        return str(self.constant)


def constant(kind: ir.Type, number: float) -> ir.Constant:
    """Return a number as a constant of a type, in every lane if that is a vector type; integers wrap."""
    if isinstance(kind, ir.VectorType):
        return SplatConstant(kind, constant(kind.element, number))
    return ir.Constant(kind, int(number) & ((1 << kind.width) - 1) if isinstance(kind, ir.IntType) else number)


@cache
def splat(code: int, bits: int, count: int = GROUP) -> ir.Constant:
    """Return a vector with the same integer in every lane."""
    return constant(vector(bits, count), code)


@cache
def float_splat(number: float, bits: int = 64) -> ir.Constant:
    """Return a vector with the same float in every lane of a group."""
    return constant(float_vector(bits), number)


def integers(numbers: Iterable[int], bits: int = 64) -> ir.Constant:
    """Return a constant vector of integers."""
    items = list(numbers)
    return ir.Constant(vector(bits, len(items)), [ir.Constant(ir.IntType(bits), number) for number in items])


LANE_NUMBERS = integers(range(LANES))


def operand(kind: ir.Type, value: ir.Value | float) -> ir.Value:
    """Return an IR value unchanged, or a Python number as a constant of type `kind`."""
    return constant(kind, value) if isinstance(value, int | float) else value


def with_constants(name: str) -> Callable[..., Any]:
    """Wrap a binary method of llvmlite's builder so that its second operand may be a Python number."""
    emit = getattr(ir.IRBuilder, name)
    return lambda builder, a, b: emit(builder, a, operand(a.type, b))


class Variable:
    """A stack variable, which LLVM promotes to a register."""

    def __init__(self, ir: IRBuilder, initial: ir.Value) -> None:
        """Allocate the variable in the entry block and initialise it at the current position."""
        self.ir, self.type = ir, initial.type
        self.address = ir.entry_alloca(initial.type)
        self.set(initial)

    def get(self) -> ir.Value:
        """Load the variable."""
        return self.ir.load(self.address, typ=self.type)

    def set(self, value: ir.Value | int) -> None:
        """Store a value in the variable."""
        self.ir.store(operand(self.type, value), self.address)


class IRBuilder(ir.IRBuilder):  # type: ignore[misc] # llvmlite has no types
    """Appends instructions to a function."""

    add, sub, mul, udiv, urem, sdiv, srem = map(with_constants, ("add", "sub", "mul", "udiv", "urem", "sdiv", "srem"))
    and_, or_, xor, shl, lshr, ashr = map(with_constants, ("and_", "or_", "xor", "shl", "lshr", "ashr"))
    fadd, fsub, fmul, fdiv = map(with_constants, ("fadd", "fsub", "fmul", "fdiv"))

    def not_(self, a: ir.Value) -> ir.Value:
        """Return ~a."""
        return self.xor(a, -1)

    def neg(self, a: ir.Value) -> ir.Value:
        """Return -a modulo 2**bits."""
        return self.sub(constant(a.type, 0), a)

    def icmp(self, predicate: str, a: ir.Value, b: ir.Value | int) -> ir.Value:
        """Compare integers by an LLVM predicate, such as eq, ult or sge."""
        return self._insert_compare(ir.instructions.ICMPInstr(self.block, predicate, a, operand(a.type, b)))

    def fcmp(self, predicate: str, a: ir.Value, b: ir.Value | float) -> ir.Value:
        """Compare floats by an LLVM predicate, such as oeq, uno or olt."""
        return self._insert_compare(ir.instructions.FCMPInstr(self.block, predicate, a, operand(a.type, b)))

    def _insert_compare(self, instruction: ir.Instruction) -> ir.Value:
        self._insert(instruction)
        return instruction

    def select_where(
        self, predicate: str, a: ir.Value, code: int, then: ir.Value | int, otherwise: ir.Value
    ) -> ir.Value:
        """Return `then` in lanes where the comparison of `a` with a constant is true, and `otherwise` elsewhere."""
        return self.select(self.icmp(predicate, a, code), operand(otherwise.type, then), otherwise)

    def resize(self, a: ir.Value, bits: int, *, signed: bool = False) -> ir.Value:
        """Truncate, zero-extend or sign-extend integers to `bits` bits."""
        kind = vector(bits, a.type.count) if isinstance(a.type, ir.VectorType) else ir.IntType(bits)
        if width(a) >= bits:
            return self.trunc(a, kind)
        return self.sext(a, kind) if signed else self.zext(a, kind)

    def intrinsic(
        self, name: str, *operands: ir.Value, result: ir.Type | None = None, flag: bool | None = None
    ) -> ir.Value:
        """Call an LLVM intrinsic that is overloaded on its first operand; `flag` adds a final i1 operand."""
        kind = operands[0].type
        element = getattr(kind, "element", kind)
        suffix = f"i{element.width}" if isinstance(element, ir.IntType) else element.intrinsic_name
        count = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        arguments = [*operands, *([] if flag is None else [ir.Constant(I1, flag)])]
        return self.call_named(f"llvm.{name}.{count}{suffix}", result or kind, *arguments)

    def reduce(self, name: str, a: ir.Value) -> ir.Value:
        """Reduce a vector of integers to a scalar; `name` is an LLVM reduction, such as or, add or umin."""
        return self.intrinsic(f"vector.reduce.{name}", a, result=a.type.element)

    def call_named(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call a function that another module defines, declaring it on first use."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [value.type for value in arguments]), name)
        return self.call(function, arguments)

    def minimum(self, a: ir.Value, b: ir.Value | int, *, signed: bool) -> ir.Value:
        """Return the smaller integer."""
        return self.intrinsic("smin" if signed else "umin", a, operand(a.type, b))

    def maximum(self, a: ir.Value, b: ir.Value | int, *, signed: bool) -> ir.Value:
        """Return the larger integer."""
        return self.intrinsic("smax" if signed else "umax", a, operand(a.type, b))

    # --- floats: registers contain codes, which are bitcast to floats for each operation

    def as_float(self, a: ir.Value) -> ir.Value:
        """Bitcast codes to floats of the same width."""
        return self.bitcast(a, float_vector(width(a), a.type.count))

    def as_int(self, a: ir.Value) -> ir.Value:
        """Bitcast floats to codes of the same width."""
        bits = next(bits for bits, kind in FLOATS.items() if kind == a.type.element)
        return self.bitcast(a, vector(bits, a.type.count))

    def fpext(self, a: ir.Value, bits: int) -> ir.Value:
        """Convert floats to a wider format, exactly."""
        return super().fpext(a, float_vector(bits, a.type.count))

    def fptrunc(self, a: ir.Value, bits: int) -> ir.Value:
        """Convert floats to a narrower format, rounding to nearest even."""
        return super().fptrunc(a, float_vector(bits, a.type.count))

    def to_float(self, a: ir.Value, bits: int, *, signed: bool) -> ir.Value:
        """Convert integers to floats, rounding to nearest even."""
        return (self.sitofp if signed else self.uitofp)(a, float_vector(bits, a.type.count))

    def to_int(self, a: ir.Value, bits: int, *, signed: bool) -> ir.Value:
        """Convert floats to integers, rounding towards zero; poison if the result does not fit."""
        return (self.fptosi if signed else self.fptoui)(a, vector(bits, a.type.count))

    # --- memory

    def entry_alloca(self, kind: ir.Type, align: int | None = None) -> ir.Value:
        """Allocate stack space in the entry block."""
        here, entry = self.block, self.function.entry_basic_block
        self.position_at_start(entry)
        space = self.alloca(kind)
        space.align, space.type = align, POINTER
        self.position_at_end(here)
        return space

    def at(self, pointer: ir.Value, index: ir.Value | int, kind: ir.Type = I64) -> ir.Value:
        """Return the address of an array element."""
        return self.gep(pointer, [operand(I64, index)], source_etype=kind)

    def element(self, pointer: ir.Value, index: ir.Value | int, kind: ir.Type = I64) -> ir.Value:
        """Load an array element."""
        return self.load(self.at(pointer, index, kind), typ=kind, align=1 if kind is I8 else None)

    def add_to(self, pointer: ir.Value, index: ir.Value | int, more: ir.Value) -> None:
        """Add `more` to an element of an array of 64-bit integers."""
        place = self.at(pointer, index)
        self.store(self.add(self.load(place, typ=I64), more), place)

    def gather(self, table: str, kind: ir.Type, numbers: Sequence[float], index: ir.Value) -> ir.Value:
        """Load one table entry per lane; the constant table is a global variable with the given name."""
        array = self.module.globals.get(table)
        if array is None:
            array = ir.GlobalVariable(self.module, ir.ArrayType(kind, len(numbers)), table)
            array.initializer = ir.Constant(array.value_type, list(numbers))
            array.linkage, array.global_constant = "internal", True
        pointers = self.gep(array, [index], source_etype=kind)
        count = index.type.count
        pointers.type = ir.VectorType(POINTER, count)
        suffix, size = ("i32", 4) if kind is I32 else ("f64", 8)
        result = ir.VectorType(kind, count)
        return self.call_named(
            f"llvm.masked.gather.v{count}{suffix}.v{count}p0", result, pointers, ir.Constant(I32, size),
            splat(1, 1, count), ir.Constant(result, ir.Undefined),
        )  # fmt: skip

    # --- lanes

    def lane_mask(self, predicate: ir.Value) -> ir.Value:
        """Convert a predicate to a lane mask with one bit per element."""
        return self.bitcast(predicate, ir.IntType(predicate.type.count))

    def predicate_of(self, mask: ir.Value) -> ir.Value:
        """Convert a 32-bit lane mask to a predicate."""
        return self.bitcast(mask, vector(1))

    def any(self, predicate: ir.Value) -> ir.Value:
        """Return True if a predicate is true in at least one lane."""
        return self.icmp("ne", self.lane_mask(predicate), 0)

    def broadcast(self, scalar: ir.Value, count: int = LANES) -> ir.Value:
        """Return a vector with a scalar in every lane."""
        nothing = ir.Constant(ir.VectorType(scalar.type, count), ir.Undefined)
        return self.permute(self.insert_element(nothing, scalar, ir.Constant(I32, 0)), [0] * count)

    def permute(self, value: ir.Value, lanes: Iterable[int], other: ir.Value | None = None) -> ir.Value:
        """Return the elements of one or two vectors in a constant order."""
        rest = ir.Constant(value.type, ir.Undefined) if other is None else other
        return self.shuffle_vector(value, rest, integers(lanes, 32))

    # --- control flow

    @contextmanager
    def while_(self, condition: Callable[[], ir.Value]) -> Iterator[None]:
        """Emit a loop that runs while a condition is true; the condition is evaluated before each iteration."""
        head, body, after = (self.append_basic_block(name) for name in ("while", "do", "done"))
        self.branch(head)
        self.position_at_end(head)
        self.cbranch(condition(), body, after)
        self.position_at_end(body)
        yield
        self.branch(head)
        self.position_at_end(after)

    @contextmanager
    def each_bit(self, mask: ir.Value) -> Iterator[ir.Value]:
        """Emit a loop over the set bits of a mask, lowest first; yield the bit number."""
        left = Variable(self, mask)
        with self.while_(lambda: self.icmp("ne", left.get(), 0)):
            before = left.get()
            left.set(self.and_(before, self.sub(before, 1)))
            yield self.intrinsic("cttz", before, flag=True)

    @contextmanager
    def count_to(self, end: ir.Value | int, first: ir.Value | int = 0) -> Iterator[ir.Value]:
        """Emit a loop over the 64-bit integers from `first` to `end` - 1; yield the integer."""
        index = Variable(self, operand(I64, first))
        with self.while_(lambda: self.icmp("ult", index.get(), end)):
            yield index.get()
            index.set(self.add(index.get(), 1))


@contextmanager
def define(module: ir.Module, name: str, result: ir.Type, *parameters: ir.Type, attribute: str = "") -> Iterator[Any]:
    """Define a function, internal if it has an attribute; yield a builder at its entry, and its parameters."""
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    if attribute:
        function.linkage = "internal"
        function.attributes.add(attribute)
    builder = IRBuilder(function.append_basic_block("entry"))
    yield builder, *function.args
    if not builder.block.is_terminated:
        builder.ret_void()
