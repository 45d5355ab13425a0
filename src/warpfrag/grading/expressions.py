"""Numpy expressions from a file, evaluated without Python's eval: a few node types, a table of functions.

    >>> import numpy as np
    >>> evaluate("a * x + arange(3)", {"a": 2, "x": np.array([1, 2, 3])}).tolist()
    [2, 5, 8]
    >>> evaluate("x.__class__", {"x": np.ones(3)})
    Traceback (most recent call last):
    ...
    warpfrag.errors.InvalidOperand: expression 'x.__class__': there is no attribute '__class__', but T, shape, size

Names are the arguments of the test. Attributes are those of `ATTRIBUTES`, calls go to `FUNCTIONS` and `METHODS`;
nothing else of Python can be reached. Arrays have at most `MAX_ELEMENTS`, and the process has a limit of memory.
"""

from __future__ import annotations

import ast
import operator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

MAX_ELEMENTS = 1 << 28
MAX_TEXT = 10_000  # characters of an expression
MAX_INTEGER = 1 << 64
FOREIGN_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn")
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(getattr(ml_dtypes, name)) for name in FOREIGN_DTYPES} | {
    name: np.dtype(name)
    for name in (
        "bool",
        "float16",
        "float32",
        "float64",
        *(f"{sign}int{8 << n}" for sign in ("", "u") for n in range(4)),
    )
}


def dtype_of(name: object) -> np.dtype[Any]:
    """A dtype by its name."""
    if not isinstance(name, str) or name not in DTYPES:
        msg = f"expected dtype of {', '.join(DTYPES)}, got {quote(name)}"
        raise InvalidOperand(msg)
    return DTYPES[name]


def _shape(extents: object) -> tuple[int, ...]:
    """A shape whose array is not too large."""
    sizes = tuple(extents) if isinstance(extents, list | tuple) else (extents,)
    if not all(isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0 for size in sizes):
        msg = f"expected a shape of positive integers, got {quote(extents)}"
        raise InvalidOperand(msg)
    count = 1
    for size in sizes:
        count *= int(size)
    if count > MAX_ELEMENTS:
        msg = f"expected at most {MAX_ELEMENTS} elements, got a shape of {count}"
        raise InvalidOperand(msg)
    return tuple(int(size) for size in sizes)


def _filled(value: float) -> Callable[..., NDArray[Any]]:
    return lambda shape, dtype="float64": np.full(_shape(shape), value, dtype_of(dtype))


def _range(*limits: float) -> NDArray[Any]:
    if not 1 <= len(limits) <= 3 or not limits[-1]:
        msg = f"arange: expected one to three numbers, the last not 0, got {quote(limits)}"
        raise InvalidOperand(msg)
    start, stop, step = (0, *limits, 1) if len(limits) == 1 else (*limits, 1)[:3]
    _shape(max(0, int((stop - start) / step)))
    return np.arange(start, stop, step)


def _integers(low: int, high: int, shape: object, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(low, high, _shape(shape))


PLAIN = """
    abs cos exp exp2 expm1 floor ceil isfinite isinf isnan log log1p log2 maximum minimum rint round sign sin sqrt
    square tanh trunc where clip sum prod mean max min argmax argmin cumsum cumprod sort argsort concatenate stack dot
    matmul transpose unique diff flip roll tril triu diag logical_and logical_or logical_not
"""
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in PLAIN.split()} | {
    "arange": _range,
    "zeros": _filled(0),
    "ones": _filled(1),
    "full": lambda shape, value, dtype="float64": np.full(_shape(shape), value, dtype_of(dtype)),
    "eye": lambda size: np.eye(_shape([size, size])[0]),
    "linspace": lambda start, stop, count: np.linspace(start, stop, _shape(count)[0]),
    "normal": lambda shape, seed=0: np.random.default_rng(seed).standard_normal(_shape(shape)),
    "uniform": lambda shape, seed=0: np.random.default_rng(seed).random(_shape(shape)),
    "integers": _integers,
    "cast": lambda array, dtype: np.asarray(array).astype(dtype_of(dtype)),
    "reshape": np.reshape,
    "broadcast_to": lambda array, shape: np.broadcast_to(array, _shape(shape)),
    "bincount": lambda array, bins: np.bincount(np.clip(array, 0, bins - 1), minlength=_shape(bins)[0]),
    "outer": lambda left, right: np.multiply.outer(np.ravel(left), np.ravel(right)),
}
ATTRIBUTES = ("T", "shape", "size")
METHODS = (
    "sum",
    "mean",
    "max",
    "min",
    "prod",
    "cumsum",
    "argmax",
    "argmin",
    "reshape",
    "transpose",
    "astype",
    "copy",
    "ravel",
)
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
CONSTANTS = {"pi": np.pi, "e": np.e, "inf": np.inf, "nan": np.nan}


def evaluate(text: str, names: Mapping[str, object]) -> Any:  # noqa: ANN401 # an array or a number
    """The value of an expression; InvalidOperand says which part of it is not understood."""
    what = f"expression {quote(text)}"
    if len(text) > MAX_TEXT:
        msg = f"{what}: expected at most {MAX_TEXT} characters"
        raise InvalidOperand(msg)
    try:
        tree = ast.parse(text.strip(), mode="eval")
        with np.errstate(all="ignore"):
            return _Evaluation(names).value(tree.body)
    except InvalidOperand as error:
        msg = f"{what}: {error}"
        raise InvalidOperand(msg) from None
    except (SyntaxError, RecursionError, MemoryError) as error:
        msg = f"{what} cannot be read: {getattr(error, 'msg', '') or type(error).__name__}"
        raise InvalidOperand(msg) from None
    except (TypeError, ValueError, ArithmeticError, IndexError) as error:
        msg = f"{what}: {error}"
        raise InvalidOperand(msg) from None


class _Evaluation:
    """The nodes of one expression, each by its type."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self.names = names

    def value(self, node: ast.AST) -> Any:  # noqa: ANN401 # whatever the expression says
        method: Callable[[ast.AST], object] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            msg = f"{type(node).__name__} is not understood here"
            raise InvalidOperand(msg)
        return method(node)

    def _constant(self, node: ast.Constant) -> object:
        value = node.value
        if isinstance(value, bool | int | float | str) or value is None:
            return _checked(value)
        msg = f"{quote(value)} is no number"
        raise InvalidOperand(msg)

    def _name(self, node: ast.Name) -> object:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        msg = f"there is no name {quote(node.id)}; the names are {', '.join([*self.names, *CONSTANTS])}"
        raise InvalidOperand(msg)

    def _tuple(self, node: ast.Tuple) -> tuple[object, ...]:
        return tuple(self.value(item) for item in node.elts)

    def _list(self, node: ast.List) -> list[object]:
        return [self.value(item) for item in node.elts]

    def _unaryop(self, node: ast.UnaryOp) -> object:
        return self._operator(node.op)(self.value(node.operand))

    def _binop(self, node: ast.BinOp) -> object:
        function, left, right = self._operator(node.op), self.value(node.left), self.value(node.right)
        if isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple):
            msg = "operators are for numbers and arrays"
            raise InvalidOperand(msg)
        if isinstance(node.op, ast.Pow | ast.LShift) and isinstance(right, int) and abs(right) > 64:
            msg = f"an exponent of {right} is too large"
            raise InvalidOperand(msg)
        return _checked(function(left, right))

    def _compare(self, node: ast.Compare) -> object:
        if len(node.ops) != 1:
            msg = "compare two values, and join comparisons by &"
            raise InvalidOperand(msg)
        return self._operator(node.ops[0])(self.value(node.left), self.value(node.comparators[0]))

    @staticmethod
    def _operator(node: ast.AST) -> Callable[..., object]:
        if type(node) not in OPERATORS:
            msg = f"the operator {type(node).__name__} is not understood here"
            raise InvalidOperand(msg)
        return OPERATORS[type(node)]

    def _subscript(self, node: ast.Subscript) -> object:
        return self.value(node.value)[self.value(node.slice)]

    def _slice(self, node: ast.Slice) -> slice:
        lower, upper, step = (
            None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)
        )
        return slice(lower, upper, step)

    def _attribute(self, node: ast.Attribute) -> object:
        value = self.value(node.value)
        if node.attr not in ATTRIBUTES or not isinstance(value, np.ndarray):
            msg = f"there is no attribute {quote(node.attr)}, but {', '.join(ATTRIBUTES)}"
            raise InvalidOperand(msg)
        return getattr(value, node.attr)

    def _call(self, node: ast.Call) -> object:
        args = [self.value(arg) for arg in node.args]
        if any(keyword.arg in {None, "out", "order", "like", "subok"} for keyword in node.keywords):
            msg = "only keywords such as axis, dtype and seed are understood here"
            raise InvalidOperand(msg)
        kwargs = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func, args, kwargs)
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name not in FUNCTIONS:
            near = get_close_matches(name, FUNCTIONS, n=1)
            hint = f"nearest {near[0]}" if near else f"functions are {' '.join(FUNCTIONS)}"
            msg = f"there is no function {quote(name)}; {hint}"
            raise InvalidOperand(msg)
        return _checked(FUNCTIONS[name](*args, **kwargs))

    def _method(self, node: ast.Attribute, args: list[Any], kwargs: dict[str, Any]) -> object:
        value = self.value(node.value)
        if node.attr not in METHODS or not isinstance(value, np.ndarray | np.generic):
            msg = f"there is no method {quote(node.attr)}; there are {', '.join(METHODS)} of arrays"
            raise InvalidOperand(msg)
        if node.attr == "astype":
            return value.astype(dtype_of(*args, **kwargs))
        return _checked(getattr(value, node.attr)(*args, **kwargs))


def _checked(value: Any) -> Any:  # noqa: ANN401 # whatever the expression says
    """A value that is not too large."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        msg = "an integer of more than 64 bits"
        raise InvalidOperand(msg)
    if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS:
        msg = f"expected at most {MAX_ELEMENTS} elements, got {value.size}"
        raise InvalidOperand(msg)
    return value
