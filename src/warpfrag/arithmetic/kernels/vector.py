"""Vectors in the words of LLVM, for loops that its own vectoriser does not make well.

A vector has a number of lanes that suits the loop; LLVM splits it into as many registers as the machine needs, so the
same code is AVX-512, AVX2 or NEON. Operators work lane by lane; a scalar is made a vector with `spread`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

if TYPE_CHECKING:
    from collections.abc import Callable

Build: TypeAlias = "tuple[Any, Callable[..., Any]]"
Lanes: TypeAlias = Any
"""A vector, to mypy."""


class Vector(types.Type):
    """So many lanes of one number type."""

    def __init__(self, element: Any, lanes: int) -> None:  # noqa: ANN401
        """Named so that equal vectors are equal types."""
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vector({element} x {lanes})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is a value of LLVM's, in memory as in registers."""

    def __init__(self, manager: Any, kind: Vector) -> None:  # noqa: ANN401
        """LLVM's type."""
        llvm = ir.VectorType(manager[kind.element].get_value_type(), kind.lanes)
        super().__init__(manager, kind, llvm)  # type: ignore[no-untyped-call]


def vector_intrinsic(function: Callable[..., Build]) -> Any:  # noqa: ANN401
    """An intrinsic; whole numbers that are known when it is compiled come as such."""
    return intrinsic(prefer_literal=True)(function)


@vector_intrinsic
def address(_typing_context: Any, array: Any) -> Build:  # noqa: ANN401
    """Where the elements of a contiguous array are. The array must be kept by the caller of the function.

    numba counts references to an array whenever it is passed on, which takes longer than a step; not to an address.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return context.make_array(array)(context, builder, value=arguments[0]).data

    return _address_of(array.dtype)(array), generate


def _address_of(element: Any) -> Any:  # noqa: ANN401
    """numba's type of an address."""
    return types.CPointer(element)  # type: ignore[no-untyped-call]


def _place(context: Any, builder: Any, signature: Any, arguments: Any, kind: Vector) -> Any:  # noqa: ANN401
    """Where a vector is that starts at an element from an address on."""
    index = context.cast(builder, arguments[1], signature.args[1], types.uintp)
    return builder.bitcast(builder.gep(arguments[0], [index]), context.get_value_type(kind).as_pointer())


@vector_intrinsic
def load(_typing_context: Any, start: Any, at: Any, lanes: Any) -> Build:  # noqa: ANN401
    """Neighbours in memory, from element `at` on."""
    kind = Vector(start.dtype, lanes.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        place = _place(context, builder, signature, arguments, kind)
        return builder.load(place, align=start.dtype.bitwidth // 8)

    return kind(start, at, lanes), generate


@vector_intrinsic
def store(_typing_context: Any, start: Any, at: Any, vector: Any) -> Build:  # noqa: ANN401
    """Put a vector where `load` would find it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        place = _place(context, builder, signature, arguments, vector)
        builder.store(arguments[2], place, align=vector.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(start, at, vector), generate


@vector_intrinsic
def read_from(_typing_context: Any, start: Any, like: Any) -> Build:  # noqa: ANN401
    """The same address, of elements of another type."""
    kind = _address_of(like.dtype)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.bitcast(arguments[0], context.get_value_type(kind))

    return kind(start, like), generate


@vector_intrinsic
def spread(_typing_context: Any, number: Any, lanes: Any) -> Build:  # noqa: ANN401
    """The same number in every lane."""
    element = types.unliteral(number)  # type: ignore[no-untyped-call]
    kind = Vector(element, lanes.literal_value)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        llvm = context.get_value_type(kind)
        one = context.cast(builder, arguments[0], number, element)
        first = builder.insert_element(ir.Constant(llvm, ir.Undefined), one, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.lanes), [0] * kind.lanes)
        return builder.shuffle_vector(first, first, zeros)

    return kind(number, lanes), generate


def _lanewise(names: dict[str, str]) -> Callable[..., Any]:
    """What makes the code of an operator: an instruction by kind of element ("s", "u" or "f")."""

    def generate(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return getattr(builder, names[_kind(signature.return_type.element)])(*arguments)

    return generate


def _kind(element: Any) -> str:  # noqa: ANN401
    if isinstance(element, types.Float):
        return "f"
    return "s" if element.signed else "u"


def _both(word: str) -> dict[str, str]:
    return {"s": word, "u": word}


OPERATORS: dict[Any, dict[str, str]] = {
    operator.add: {**_both("add"), "f": "fadd"},
    operator.sub: {**_both("sub"), "f": "fsub"},
    operator.mul: {**_both("mul"), "f": "fmul"},
    operator.and_: _both("and_"),
    operator.or_: _both("or_"),
    operator.xor: _both("xor"),
    operator.lshift: _both("shl"),
    operator.rshift: {"s": "ashr", "u": "lshr"},
}
for _operator, _names in OPERATORS.items():

    @type_callable(_operator)
    def _type(_context: Any) -> Callable[..., Any]:  # noqa: ANN401
        return lambda x, y: x if isinstance(x, Vector) and x == y else None

    lower_builtin(_operator, Vector, Vector)(_lanewise(_names))  # type: ignore[no-untyped-call]


def _call(builder: Any, name: str, vectors: Any) -> Any:  # noqa: ANN401
    """An intrinsic function of LLVM's on vectors of one type."""
    llvm = vectors[0].type
    element = {"double": "f64", "float": "f32"}.get(str(llvm.element), str(llvm.element))
    signature = ir.FunctionType(llvm, [llvm] * len(vectors))
    function = get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, signature, f"llvm.{name}.v{llvm.count}{element}"
    )
    return builder.call(function, vectors)


@vector_intrinsic
def larger(_typing_context: Any, x: Any, y: Any) -> Build:  # noqa: ANN401
    """The larger of two integers, in each lane."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return _call(builder, _kind(x.element) + "max", arguments)

    return x(x, y), generate


@vector_intrinsic
def multiply_add(_typing_context: Any, x: Any, y: Any, z: Any) -> Build:  # noqa: ANN401
    """x * y + z, rounded once."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return _call(builder, "fma", arguments)

    return x(x, y, z), generate


@vector_intrinsic
def ones_of(_typing_context: Any, x: Any) -> Build:  # noqa: ANN401
    """How many bits are set, in each lane."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return _call(builder, "ctpop", arguments)

    return x(x), generate


@vector_intrinsic
def converted(_typing_context: Any, x: Any, like: Any) -> Build:  # noqa: ANN401
    """The same numbers in another type; what it has not is rounded, a float to an integer of its size towards zero.

    Of integers that a shorter type has not, the lower bits.
    """
    kind = Vector(like.dtype, x.lanes)
    wider = {"ff": "fpext", "fs": "fptosi", "sf": "sitofp", "ss": "sext", "uu": "zext"}
    shorter = {"ff": "fptrunc", "ss": "trunc", "su": "trunc", "us": "trunc", "uu": "trunc"}
    way, narrows = _kind(x.element) + _kind(kind.element), x.element.bitwidth > kind.element.bitwidth
    word = (shorter if narrows else wider)[way]

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return getattr(builder, word)(arguments[0], context.get_value_type(kind))

    return kind(x, like), generate


@vector_intrinsic
def read_as(_typing_context: Any, x: Any, like: Any) -> Build:  # noqa: ANN401
    """The same bits as lanes of another type, as many as they fill."""
    element = like.dtype
    kind = Vector(element, x.lanes * x.element.bitwidth // element.bitwidth)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.bitcast(arguments[0], context.get_value_type(kind))

    return kind(x, like), generate


def _shuffle(builder: Any, x: Any, y: Any, order: list[int]) -> Any:  # noqa: ANN401
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


@vector_intrinsic
def interleaved(_typing_context: Any, x: Any, y: Any) -> Build:  # noqa: ANN401
    """x0, y0, x1, y1 and so on."""
    kind = Vector(x.element, 2 * x.lanes)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        order = [lane + half for lane in range(x.lanes) for half in (0, x.lanes)]
        return _shuffle(builder, arguments[0], arguments[1], order)

    return kind(x, y), generate


@vector_intrinsic
def shifted_plus(_typing_context: Any, x: Any, places: Any, y: Any) -> Build:  # noqa: ANN401
    """(x >> places) + y of 32-bit lanes, for an x below 2**31 whose lower half is 0, and fewer than 16 places.

    One instruction where there is one that multiplies the halves of words, and adds: the upper one by a power of two.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        words, total, count = arguments[0], arguments[2], WORDS_AT_ONCE or x.lanes
        kind = ir.VectorType(ir.IntType(32), count)
        if not WORDS_AT_ONCE:
            return builder.add(builder.lshr(words, ir.Constant(kind, [places.literal_value] * count)), total)
        name = f"llvm.x86.avx512.vpdpwssd.{32 * count}"
        multiply = get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(kind, [kind] * 3), name
        )
        power = ir.Constant(kind, [1 << (32 - places.literal_value)] * count)
        parts = []
        for first in range(0, x.lanes, count):
            some = list(range(first, first + count))
            part = (_shuffle(builder, whole, whole, some) for whole in (total, words))
            parts.append(builder.call(multiply, [*part, power]))
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [_shuffle(builder, low, high, list(range(2 * low.type.count))) for low, high in pairs]
        return parts[0]

    return x(x, places, y), generate


@vector_intrinsic
def even_lanes(_typing_context: Any, x: Any) -> Build:  # noqa: ANN401
    """Every second lane, from the first on."""
    return _every_second(x, 0)


@vector_intrinsic
def odd_lanes(_typing_context: Any, x: Any) -> Build:  # noqa: ANN401
    """Every second lane, from the second on."""
    return _every_second(x, 1)


@vector_intrinsic
def neighbours(_typing_context: Any, x: Any, distance: Any) -> Build:  # noqa: ANN401
    """Lanes that far apart, a power of two, have changed places."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        order = [lane ^ distance.literal_value for lane in range(x.lanes)]
        return _shuffle(builder, arguments[0], arguments[0], order)

    return x(x, distance), generate


def _every_second(x: Any, first: int) -> Build:  # noqa: ANN401
    kind = Vector(x.element, x.lanes // 2)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return _shuffle(builder, arguments[0], arguments[0], list(range(first, x.lanes, 2)))

    return kind(x), generate


def _above(builder: Any, x: Any, arguments: Any) -> Any:  # noqa: ANN401
    """In which lanes the first is larger than the second; integers."""
    compare = builder.icmp_signed if x.element.signed else builder.icmp_unsigned
    return compare(">", arguments[0], arguments[1])


@vector_intrinsic
def where_above(_typing_context: Any, x: Any, y: Any, this: Any, that: Any) -> Build:  # noqa: ANN401
    """Lanes of `this` where x is larger than y, else of `that`."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.select(_above(builder, x, arguments), arguments[2], arguments[3])

    return this(x, y, this, that), generate


@vector_intrinsic
def bits_above(_typing_context: Any, x: Any, y: Any) -> Build:  # noqa: ANN401
    """A bit for each lane of x that is larger than that of y, of 64 lanes at most."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        mask = builder.bitcast(_above(builder, x, arguments), ir.IntType(x.lanes))
        return mask if x.lanes == ir.IntType(64).width else builder.zext(mask, ir.IntType(64))

    return types.uint64(x, y), generate


_FEATURES = get_host_cpu_features()
COLUMNS = 32 if _FEATURES.get("avx512f") else 8
"""Lanes of float64 that four rows have registers for."""
WORDS_AT_ONCE = 16 if COLUMNS == 32 and _FEATURES.get("avx512vnni") else 0
"""Words whose halves one instruction multiplies and adds, if there is such an instruction."""
