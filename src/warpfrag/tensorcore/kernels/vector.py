"""LLVM vectors, for loops that its own vectoriser does not compile well.

A vector has a number of lanes that suits the loop; LLVM splits it into as many registers as the machine needs, so the
same code is AVX-512, AVX2 or NEON. Operators work lane by lane; `splat` makes a vector of a scalar.

Each intrinsic is a function from numba's types of the arguments to the type of the result and to what emits the code.
Kernels call it with vectors, addresses and numbers, and see it as its decorator says.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from warpfrag.tensorcore.kernels import processor as target
from warpfrag.tensorcore.kernels.jit import Int, inlined, inner
from warpfrag.tensorcore.kernels.llvm_helpers import EmitCode, Lowering, Numba, Values


class Element(Protocol):
    """numba's type of a number, of which its classes declare little."""

    bitwidth: int
    signed: bool
    """True for signed integers; only integers have it."""


class Lanes(Protocol):
    """A vector, as kernels see it."""

    def __add__(self, other: Lanes, /) -> Lanes:
        """Return a + b, lane by lane."""

    def __sub__(self, other: Lanes, /) -> Lanes:
        """Return a - b, lane by lane."""

    def __mul__(self, other: Lanes, /) -> Lanes:
        """Return a * b, lane by lane."""

    def __and__(self, other: Lanes, /) -> Lanes:
        """Return the bits set in both integers."""

    def __or__(self, other: Lanes, /) -> Lanes:
        """Return the bits set in either integer."""

    def __xor__(self, other: Lanes, /) -> Lanes:
        """Return the bits in which the integers differ."""

    def __lshift__(self, other: Lanes, /) -> Lanes:
        """Shift integers to the left."""

    def __rshift__(self, other: Lanes, /) -> Lanes:
        """Shift integers to the right; signed ones keep their sign."""


class ElementPointer(Protocol):
    """The address of an array's first element, as kernels see it: elements by a flat index, and nothing else."""

    def __getitem__(self, index: Int, /) -> Int:
        """Return an element; the index is not checked."""

    def __setitem__(self, index: Int, element: Int, /) -> None:
        """Write an element."""


class VectorType(types.Type):
    """numba's type of a vector: a number of lanes of one element type."""

    def __init__(self, element: Element, lanes: int) -> None:
        """Name the type so that equal vectors are equal types."""
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vector({element} x {lanes})")


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """The data model: a vector is an LLVM value, in memory as in registers."""

    def __init__(self, manager: Numba, kind: VectorType) -> None:
        """Find LLVM's type by that of the element."""
        llvm = ir.VectorType(manager[kind.element].get_value_type(), kind.lanes)
        super().__init__(manager, kind, llvm)  # type: ignore[no-untyped-call] # of numba


# Integers that are known when an intrinsic is compiled come as literals: the number of lanes, a distance, a shift.


def vector_intrinsic(function: Callable[..., Lowering]) -> Callable[..., Lanes]:
    """Make an intrinsic whose result is a vector."""
    lowered: Callable[..., Lanes] = intrinsic(prefer_literal=True)(function)
    return lowered


def address_intrinsic(function: Callable[..., Lowering]) -> Callable[..., ElementPointer]:
    """Make an intrinsic whose result is an address."""
    lowered: Callable[..., ElementPointer] = intrinsic(prefer_literal=True)(function)
    return lowered


def scalar_intrinsic(function: Callable[..., Lowering]) -> Callable[..., Int]:
    """Make an intrinsic whose result is an integer, or nothing."""
    lowered: Callable[..., Int] = intrinsic(prefer_literal=True)(function)
    return lowered


# numba asks for a function of four arguments that emits code. Few intrinsics need more than two of them.


def _emits(code: Callable[[ir.IRBuilder, Values], ir.Value]) -> EmitCode:
    """Return the emitter that numba calls, for code that depends on the arguments alone."""

    def emit(_context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        return code(builder, arguments)

    return emit


def _emits_as(method: str, result: types.Type) -> EmitCode:
    """Return the emitter of an instruction that converts one value to LLVM's type of `result`: a cast or a bitcast."""

    def emit(context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        return getattr(builder, method)(arguments[0], context.get_value_type(result))

    return emit


# Memory. numba counts references whenever an array is passed on, which takes longer than a step; an address has none.


@address_intrinsic
def address(_context: Numba, array: types.Array) -> Lowering:
    """Return the address of a contiguous array's elements. The caller of the kernel must keep the array alive."""

    def emit(context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        return context.make_array(array)(context, builder, value=arguments[0]).data

    return types.CPointer(array.dtype)(array), emit


@address_intrinsic
def bitcast_address(_context: Numba, start: types.CPointer, like: types.NumberClass[Any]) -> Lowering:
    """Return the same address, of elements of another type."""
    result = types.CPointer(like.dtype)
    return result(start, like), _emits_as("bitcast", result)


@address_intrinsic
def element_address(_context: Numba, start: types.CPointer, at: types.Integer) -> Lowering:
    """Return the address of an element, in its own register, whose origin LLVM does not know.

    So it is computed where it is asked for, and loads from it need no index beside it: with an index, x86 processors
    split a multiply-add that loads in two.
    """

    def emit(context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values) -> ir.Value:
        index = context.cast(builder, arguments[1], signature.args[1], types.uintp)
        place = builder.gep(arguments[0], [index])
        return builder.asm(ir.FunctionType(place.type, [place.type]), "", "=r,0", [place], side_effect=True)

    return start(start, at), emit


def _vector_at(
    context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values, kind: VectorType
) -> ir.Value:
    """Return LLVM's pointer to the vector that starts `arguments[1]` elements after the address `arguments[0]`."""
    index = context.cast(builder, arguments[1], signature.args[1], types.uintp)
    return builder.bitcast(builder.gep(arguments[0], [index]), context.get_value_type(kind).as_pointer())


@vector_intrinsic
def load(_context: Numba, start: types.CPointer, at: types.Integer, lanes: types.IntegerLiteral) -> Lowering:
    """Load neighbours in memory, from element `at` on; the address need not be aligned to the vector."""
    kind = VectorType(start.dtype, lanes.literal_value)

    def emit(context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values) -> ir.Value:
        pointer = _vector_at(context, builder, signature, arguments, kind)
        return builder.load(pointer, align=start.dtype.bitwidth // 8)

    return kind(start, at, lanes), emit


@scalar_intrinsic
def store(_context: Numba, start: types.CPointer, at: types.Integer, vector: VectorType) -> Lowering:
    """Store a vector where `load` would read it."""

    def emit(context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values) -> ir.Value:
        pointer = _vector_at(context, builder, signature, arguments, vector)
        builder.store(arguments[2], pointer, align=vector.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(start, at, vector), emit


@scalar_intrinsic
def prefetch(_context: Numba, start: types.CPointer, at: types.Integer) -> Lowering:
    """Prefetch the line of an element to the nearest cache; the element need not exist."""

    def emit(context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values) -> ir.Value:
        at = context.cast(builder, arguments[1], signature.args[1], types.intp)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        place = builder.bitcast(builder.gep(arguments[0], [at]), byte)
        signature_of_llvm = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = get_or_insert_function(builder.module, signature_of_llvm, "llvm.prefetch.p0")
        builder.call(function, [place, word(0), word(3), word(1)])  # for reading, to be kept, data
        return context.get_dummy_value()

    return types.void(start, at), emit


# Lane by lane.


@vector_intrinsic
def splat(_context: Numba, number: types.Number, lanes: types.IntegerLiteral) -> Lowering:
    """Return the same number in every lane."""
    element = types.unliteral(number)
    kind = VectorType(element, lanes.literal_value)

    def emit(context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        scalar = context.cast(builder, arguments[0], number, element)
        undefined = ir.Constant(context.get_value_type(kind), ir.Undefined)
        first = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
        return _shuffle(builder, first, first, [0] * kind.lanes)

    return kind(number, lanes), emit


def _kind(element: Element) -> str:
    """Return the letter by which LLVM tells operations apart: float, signed or unsigned."""
    if isinstance(element, types.Float):
        return "f"
    return "s" if element.signed else "u"


def _lanewise(methods: dict[str, str]) -> EmitCode:
    """Return the emitter of an operator, by the method of llvmlite's builder for each element type."""

    def emit(_context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values) -> ir.Value:
        return getattr(builder, methods[_kind(signature.return_type.element)])(*arguments)

    return emit


def _integers(method: str) -> dict[str, str]:
    return {"s": method, "u": method}


OPERATORS: dict[Callable[..., object], dict[str, str]] = {
    operator.add: {**_integers("add"), "f": "fadd"},
    operator.sub: {**_integers("sub"), "f": "fsub"},
    operator.mul: {**_integers("mul"), "f": "fmul"},
    operator.and_: _integers("and_"),
    operator.or_: _integers("or_"),
    operator.xor: _integers("xor"),
    operator.lshift: _integers("shl"),
    operator.rshift: {"s": "ashr", "u": "lshr"},
}
for _operator, _methods in OPERATORS.items():

    @type_callable(_operator)
    def _type_operator(_context: Numba) -> Callable[[types.Type, types.Type], types.Type | None]:
        return lambda x, y: x if isinstance(x, VectorType) and x == y else None

    lower_builtin(_operator, VectorType, VectorType)(_lanewise(_methods))


def _call(builder: ir.IRBuilder, name: str, vectors: Values) -> ir.Value:
    """Call an LLVM intrinsic on vectors of one type."""
    llvm = vectors[0].type
    element = {"double": "f64", "float": "f32"}.get(str(llvm.element), str(llvm.element))
    signature = ir.FunctionType(llvm, [llvm] * len(vectors))
    function = get_or_insert_function(builder.module, signature, f"llvm.{name}.v{llvm.count}{element}")
    return builder.call(function, vectors)


@vector_intrinsic
def vmax(_context: Numba, x: VectorType, y: VectorType) -> Lowering:
    """Return the larger of two integers, in each lane."""
    return x(x, y), _emits(lambda builder, vectors: _call(builder, _kind(x.element) + "max", vectors))


@vector_intrinsic
def multiply_add(_context: Numba, x: VectorType, y: VectorType, z: VectorType) -> Lowering:
    """Return x * y + z, rounded once."""
    return x(x, y, z), _emits(lambda builder, vectors: _call(builder, "fma", vectors))


@vector_intrinsic
def popcount(_context: Numba, x: VectorType) -> Lowering:
    """Return the number of bits that are set, in each lane."""
    return x(x), _emits(lambda builder, vectors: _call(builder, "ctpop", vectors))


@vector_intrinsic
def cast(_context: Numba, x: VectorType, like: types.NumberClass[Any]) -> Lowering:
    """Return the same numbers in another type, rounded if it cannot hold them; floats to integers round towards zero.

    Of integers that a shorter type cannot hold, the lower bits.
    """
    result = VectorType(like.dtype, x.lanes)
    widen = {"ff": "fpext", "fs": "fptosi", "sf": "sitofp", "ss": "sext", "uu": "zext"}
    narrow = {"ff": "fptrunc", "ss": "trunc", "su": "trunc", "us": "trunc", "uu": "trunc"}
    methods = narrow if x.element.bitwidth > result.element.bitwidth else widen
    return result(x, like), _emits_as(methods[_kind(x.element) + _kind(result.element)], result)


@vector_intrinsic
def bitcast(_context: Numba, x: VectorType, like: types.NumberClass[Any]) -> Lowering:
    """Return the same bits as lanes of another type."""
    result = VectorType(like.dtype, x.lanes * x.element.bitwidth // like.dtype.bitwidth)
    return result(x, like), _emits_as("bitcast", result)


@vector_intrinsic
def shift_right_add(_context: Numba, x: VectorType, places: types.IntegerLiteral, y: VectorType) -> Lowering:
    """Return (x >> places) + y of 32-bit lanes, for an x below 2**31 whose lower half is 0, and fewer than 16 places.

    One instruction where there is one that multiplies the halves of words, and adds: the upper one by a power of two.
    """

    def code(builder: ir.IRBuilder, vectors: Values) -> ir.Value:
        words, total, count = vectors[0], vectors[2], WORDS_AT_ONCE or x.lanes
        kind = ir.VectorType(ir.IntType(32), count)
        if not WORDS_AT_ONCE:
            return builder.add(builder.lshr(words, ir.Constant(kind, [places.literal_value] * count)), total)
        name = f"llvm.x86.avx512.vpdpwssd.{32 * count}"
        multiply = get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        power = ir.Constant(kind, [1 << (32 - places.literal_value)] * count)
        parts = []
        for first in range(0, x.lanes, count):
            lanes = list(range(first, first + count))
            part = (_shuffle(builder, whole, whole, lanes) for whole in (total, words))
            parts.append(builder.call(multiply, [*part, power]))
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [_shuffle(builder, low, high, list(range(2 * low.type.count))) for low, high in pairs]
        return parts[0]

    return x(x, places, y), _emits(code)


# Between lanes.


def _shuffle(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, order: list[int]) -> ir.Value:
    """Return lanes of x, then of y, in the order of their numbers."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


@vector_intrinsic
def interleave(_context: Numba, x: VectorType, y: VectorType) -> Lowering:
    """Return x0, y0, x1, y1 and so on."""
    order = [lane + half for lane in range(x.lanes) for half in (0, x.lanes)]
    result = VectorType(x.element, 2 * x.lanes)
    return result(x, y), _emits(lambda builder, vectors: _shuffle(builder, vectors[0], vectors[1], order))


def _every_second(x: VectorType, first: int) -> Lowering:
    order = list(range(first, x.lanes, 2))
    result = VectorType(x.element, x.lanes // 2)
    return result(x), _emits(lambda builder, vectors: _shuffle(builder, vectors[0], vectors[0], order))


@vector_intrinsic
def deinterleave_low(_context: Numba, x: VectorType) -> Lowering:
    """Return x0, x2, x4 and so on: for 64-bit lanes read as 32-bit ones, the lower words."""
    return _every_second(x, 0)


@vector_intrinsic
def deinterleave_high(_context: Numba, x: VectorType) -> Lowering:
    """Return x1, x3, x5 and so on: for 64-bit lanes read as 32-bit ones, the upper words."""
    return _every_second(x, 1)


@vector_intrinsic
def splat_lane(_context: Numba, x: VectorType, lane: types.IntegerLiteral, lanes: types.IntegerLiteral) -> Lowering:
    """Return one lane of a vector in every lane of another."""
    order = [lane.literal_value] * lanes.literal_value
    result = VectorType(x.element, lanes.literal_value)
    return result(x, lane, lanes), _emits(lambda builder, vectors: _shuffle(builder, vectors[0], vectors[0], order))


@vector_intrinsic
def swap_lanes(_context: Numba, x: VectorType, distance: types.IntegerLiteral) -> Lowering:
    """Exchange lanes with those `distance` apart, a power of two."""
    order = [lane ^ distance.literal_value for lane in range(x.lanes)]
    return x(x, distance), _emits(lambda builder, vectors: _shuffle(builder, vectors[0], vectors[0], order))


# By comparison of integers.


def _greater(builder: ir.IRBuilder, x: VectorType, vectors: Values) -> ir.Value:
    """Return flags of the lanes in which the first is greater than the second."""
    compare = builder.icmp_signed if _kind(x.element) == "s" else builder.icmp_unsigned
    return compare(">", vectors[0], vectors[1])


@vector_intrinsic
def select_greater(_context: Numba, x: VectorType, y: VectorType, this: VectorType, that: VectorType) -> Lowering:
    """Return lanes of `this` if x is greater than y, else of `that`."""
    return this(x, y, this, that), _emits(
        lambda builder, vectors: builder.select(_greater(builder, x, vectors), vectors[2], vectors[3])
    )


@scalar_intrinsic
def greater_mask(_context: Numba, x: VectorType, y: VectorType) -> Lowering:
    """Return a bit for each lane of x that is greater than that of y, of 64 lanes at most."""

    def code(builder: ir.IRBuilder, vectors: Values) -> ir.Value:
        mask = builder.bitcast(_greater(builder, x, vectors), ir.IntType(x.lanes))
        return mask if x.lanes == ir.IntType(64).width else builder.zext(mask, ir.IntType(64))

    return types.uint64(x, y), _emits(code)


COLUMNS = 32 if target.has("avx512f") else 8
"""Lanes of float64 that four rows have registers for."""
WORDS_AT_ONCE = 16 if COLUMNS == 32 and target.has("avx512vnni") else 0
"""Words whose halves one instruction multiplies and adds, if there is such an instruction."""


Four: TypeAlias = "tuple[Int, Int, Int, Int]"
FourSums: TypeAlias = "tuple[Lanes, Lanes, Lanes, Lanes]"

STRIP = 4  # rows
MULTIPLIES_BY_LANE = target.machine() == "arm"
U1, U2 = np.uintp(1), np.uintp(2)


@inner
def splat_pair(a: ElementPointer, at: Int) -> tuple[Lanes, Lanes]:
    """Return two neighbours of A, each in every lane of a vector.

    ARM multiplies by one lane of a register: two elements are loaded at once, and none is spread over a vector, which
    would take as long there as a multiplication. x86 spreads an element while it loads it, at no cost.
    """
    if MULTIPLIES_BY_LANE:
        pair = load(a, at, 2)
        return splat_lane(pair, 0, COLUMNS), splat_lane(pair, 1, COLUMNS)
    return splat(a[at], COLUMNS), splat(a[at + U1], COLUMNS)


@inlined
def add_lines(
    sums: FourSums, a: ElementPointer, rows: Four, b: ElementPointer, at: Int, pitch: Int, count: Int
) -> FourSums:
    """Add the products of `count` k, an even number, to COLUMNS sums of each row, k ascending.

    `rows` are where the elements of each row begin in A; the first line of B is at `at`, and lines are `pitch` apart.
    """
    row0, row1, row2, row3 = rows
    sum0, sum1, sum2, sum3 = sums
    for k in range(np.uintp(0), np.uintp(count), U2):
        first0, second0 = splat_pair(a, row0 + k)
        first1, second1 = splat_pair(a, row1 + k)
        first2, second2 = splat_pair(a, row2 + k)
        first3, second3 = splat_pair(a, row3 + k)
        line = load(b, at, COLUMNS)
        sum0 = multiply_add(first0, line, sum0)
        sum1 = multiply_add(first1, line, sum1)
        sum2 = multiply_add(first2, line, sum2)
        sum3 = multiply_add(first3, line, sum3)
        line = load(b, at + pitch, COLUMNS)
        sum0 = multiply_add(second0, line, sum0)
        sum1 = multiply_add(second1, line, sum1)
        sum2 = multiply_add(second2, line, sum2)
        sum3 = multiply_add(second3, line, sum3)
        at += pitch + pitch
    return sum0, sum1, sum2, sum3
