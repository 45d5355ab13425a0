"""LLVM instructions that numba does not offer: bits of floats, population count, fused multiply-add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from warpfrag.tensorcore.kernels.jit import Array, Float, Int

Numba: TypeAlias = Any
"""An object of a numba class that its extension interface passes but does not export: a context, a signature."""
Values: TypeAlias = Sequence[ir.Value]
EmitCode: TypeAlias = Callable[[Numba, ir.IRBuilder, Numba, Values], ir.Value]
"""The function that numba calls to emit the code of an intrinsic."""
Lowering: TypeAlias = tuple[Numba, EmitCode]
"""An intrinsic for arguments of some types: its signature, and the function that emits its code."""


def typed_intrinsic(function: Callable[..., Lowering]) -> Callable[..., Int]:
    """Make an intrinsic on numbers. Kernels call it without the typing context, which numba passes first."""
    lowered: Callable[..., Int] = intrinsic(function)
    return lowered


def _reinterpret(source: types.Type, target: types.Type, llvm_target: ir.Type) -> Callable[[Int | Float], Int | Float]:
    """Make an intrinsic that reads the bits of a `source` as a `target`."""

    def bitcast(_typing_context: Numba, _number: types.Number) -> Lowering:
        def emit(_context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
            return builder.bitcast(arguments[0], llvm_target)

        return target(source), emit

    return typed_intrinsic(bitcast)


@typed_intrinsic
def fused_multiply_add(_typing_context: Numba, _x: types.Float, _y: types.Float, _z: types.Float) -> Lowering:
    """Return x * y + z in float64, rounded once."""

    def emit(_context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), emit


@typed_intrinsic
def count_ones(_typing_context: Numba, word: types.Integer) -> Lowering:
    """Return the number of bits that are set in an unsigned integer."""

    def emit(_context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        return builder.ctpop(arguments[0])

    return word(word), emit


def _first_elements(_typing_context: Numba, array: types.Array, count: types.IntegerLiteral) -> Lowering:
    """See `first_elements`."""

    def emit(context: Numba, builder: ir.IRBuilder, signature: Numba, arguments: Values) -> ir.Value:
        data = context.make_array(array)(context, builder, arguments[0]).data
        places = (ir.Constant(ir.IntType(64), place) for place in range(count.literal_value))
        elements = [builder.load(builder.gep(data, [place])) for place in places]
        return context.make_tuple(builder, signature.return_type, elements)

    return types.UniTuple(array.dtype, count.literal_value)(array, count), emit


first_elements = cast("Callable[[Array, int], tuple[Int, ...]]", intrinsic(prefer_literal=True)(_first_elements))
"""The first elements of a contiguous array as a tuple, whose length is a constant of the kernel."""
bits_of_f32 = _reinterpret(types.float32, types.int32, ir.IntType(32))
f32_of_bits = _reinterpret(types.int32, types.float32, ir.FloatType())
bits_of_f64 = _reinterpret(types.float64, types.int64, ir.IntType(64))
f64_of_bits = _reinterpret(types.int64, types.float64, ir.DoubleType())
