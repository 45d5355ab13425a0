"""What LLVM can do and numba has no word for: bits of floats, counting bits, fused multiply-add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable


def typed_intrinsic(function: Callable[..., Any]) -> Any:  # noqa: ANN401 (called by kernels, without the typing context)
    """An intrinsic whose arguments mypy does not count: numba adds the first."""
    return intrinsic(function)


def _reinterpret(source: Any, target: Any, llvm_target: ir.Type) -> Any:  # noqa: ANN401
    """An intrinsic that reads the bits of a `source` as a `target`."""

    @intrinsic
    def cast(_typing_context: Any, _number: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
            return builder.bitcast(arguments[0], llvm_target)

        return target(source), generate

    return cast


@typed_intrinsic
def fused_multiply_add(_typing_context: Any, _x: Any, _y: Any, _z: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
    """x * y + z in float64, rounded once."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@typed_intrinsic
def count_ones(_typing_context: Any, word: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
    """How many bits of an unsigned integer are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.ctpop(arguments[0])

    return word(word), generate


bits_of_f32 = _reinterpret(types.float32, types.int32, ir.IntType(32))
f32_of_bits = _reinterpret(types.int32, types.float32, ir.FloatType())
bits_of_f64 = _reinterpret(types.float64, types.int64, ir.IntType(64))
f64_of_bits = _reinterpret(types.int64, types.float64, ir.DoubleType())
