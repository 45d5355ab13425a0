"""Sweep plans: a TOML file names instructions, architectures, shapes, data and orders; every combination is a case.

    instruction = ["mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k16.f32.bf16.bf16.f32"]
    arch = ["sm_80", "sm_90"]
    shape = [[64, 64, 256], [64, 64, 4096]]         # M, N, K
    data = ["normal", "wide"]
    order = [{}, { split_k = 4, unit = 64 }]        # default: {}, k ascending
    seed = [0, 1]                                   # default: 0
    backend = "cpu"                                 # the default
    block = [256, 256]                              # rows and columns of D per task; the default

Most keys are arguments of `wf.gemm`. Every key except `block` is one value or a list.

Operands are random codes. Each row of A and each column of B has its own generator, seeded with the seed, the operand,
the index of the row or column, and the name of the distribution. Operands therefore do not depend on the block size,
the architecture or the order; the format only affects the rounding:

    normal    standard normal
    uniform   uniform between -1 and 1, or over all integers
    positive  uniform between 0 and 1, or over all non-negative integers
    powers    powers of two with a random sign, from 2**-8 to 2**8

Values are rounded to nearest even and clipped to the range of the format. For integers, the standard deviation of
`normal` is a quarter of the largest integer. `bits`, `finite`, `narrow`, `wide`, `special`, `tiny` and `extreme` are
the classes of `warpfrag.formats.random_codes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache, cached_property
from hashlib import sha256
from itertools import product
from math import prod
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.gemm import gemm
from warpfrag.blas.gemm_backend import BACKENDS
from warpfrag.blas.order import TENSOR_CORE_FIELDS, Order
from warpfrag.errors import FileError, WarpfragError, quote
from warpfrag.files import read_toml
from warpfrag.formats.codes import code_dtype, to_codes
from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.formats.random_codes import FLOAT_CLASSES, INTEGER_CLASSES, random_codes
from warpfrag.isa.legality import form_of
from warpfrag.isa.operands import operands
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.sparsity_patterns import Pattern, pattern_of
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.array_types import Scaled
from warpfrag.tensorcore.registry import get

MAX_CASES = 100_000
MAX_EXTENT = 1 << 24
MAX_POWER = 8
SCALE_SPREAD = 6  # the largest difference between the code of a scale factor and the code of 1
ROLES = ("A", "B")


def _draw_values(number_format: Format, data: str, size: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return random values, not yet rounded, from a distribution in `VALUES`."""
    if data == "normal":
        values = random.standard_normal(size)
        return values if number_format.is_float else np.rint(values * (float(number_format.max) / 4))
    if data == "powers":
        low = max(-MAX_POWER, number_format.emin) if number_format.is_float else 0
        high = min(MAX_POWER, int(np.log2(float(number_format.max))))
        signs = np.where(random.random(size) < 0.5, -1.0, 1.0)
        return signs * np.exp2(random.integers(low, high, size, endpoint=True))
    if number_format.is_float:
        return random.uniform(-1, 1, size) if data == "uniform" else random.random(size)
    integers = random.integers(int(number_format.min), int(number_format.max), size, endpoint=True).astype(np.float64)
    return integers if data == "uniform" else np.abs(integers)


VALUES = ("normal", "uniform", "positive", "powers")
DISTRIBUTIONS = tuple(dict.fromkeys((*VALUES, *FLOAT_CLASSES, *INTEGER_CLASSES)))


def data_refusal(form: Form, data: str) -> str:
    """Return the reason why a distribution does not suit an instruction's operands, or an empty string."""
    fits = (*VALUES, *(FLOAT_CLASSES if FORMATS[form.a].is_float else INTEGER_CLASSES))
    return "" if data in fits else f"data {data!r} does not fit {form.a}; expected one of {', '.join(fits)}"


def draw(
    form: Form, data: str, seed: int, role: str, lines: range, depth: int
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the codes of some rows of A or columns of B, [line, k], and the codes of their scale factors, if any."""
    number_format = FORMATS[form.a if role == "A" else form.b]
    codes = np.empty((len(lines), depth), code_dtype(number_format))
    scales = None
    if form.block_scale:
        scale = operands(form, "")[f"scale_{role.lower()}"]
        block = form.shape.k // scale.layout.outs["scale"]  # the number of elements that share a scale factor
        scales = np.empty((len(lines), -(-depth // block)), np.uint8)
    pruned = pattern_of(form) if role == "A" else None
    for index, line in enumerate(lines):
        random = np.random.default_rng([seed, ROLES.index(role), line, *data.encode()])
        codes[index] = _codes(number_format, data, depth, random)
        if pruned is not None:
            codes[index] *= _pruning_mask(pruned, depth, random)
        if scales is not None:
            scales[index] = _scales(scale.format, data, scales.shape[1], random)
    return codes, scales


def _codes(number_format: Format, data: str, size: int, random: np.random.Generator) -> NDArray[Any]:
    if data in VALUES:
        values = np.clip(
            _draw_values(number_format, data, size, random), float(number_format.min), float(number_format.max)
        )
        return to_codes(number_format, values, rounding="rne")
    if data == "bits":
        return random.integers(0, number_format.codes - 1, size, dtype=np.uint64, endpoint=True)
    return random_codes(number_format, data, (size,), random)


def _pruning_mask(pruned: Pattern, size: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return a random mask of the elements that pruning keeps."""
    choices = np.array([[column in kept for column in range(pruned.chunk)] for kept in pruned.rising.values()])
    return choices[random.integers(0, len(choices), -(-size // pruned.chunk))].reshape(-1)[:size]


def _scales(number_format: Format, data: str, size: int, random: np.random.Generator) -> NDArray[Any]:
    if data == "bits":
        return random.integers(0, number_format.codes, size)
    return number_format.encode(1.0) + random.integers(-SCALE_SPREAD, SCALE_SPREAD, size, endpoint=True)


class SweepBlock(NamedTuple):
    """A range of rows and columns of D: one task, and one chunk of the store."""

    rows: range
    columns: range


@dataclass(frozen=True)
class Case:
    """One GEMM of a sweep."""

    instruction: str
    arch: str
    shape: tuple[int, int, int]
    data: str
    order: Order
    seed: int
    backend: str

    @cached_property
    def form(self) -> Form:
        """The parsed instruction name."""
        return form_of(self.instruction)

    @property
    def refusal(self) -> str:
        """The reason why this GEMM cannot be computed (illegal, not modelled, wrong data), or an empty string."""
        smallest = replace(self, shape=(1, 1, self.shape[2]), data="normal", seed=0, backend="cpu")
        return data_refusal(self.form, self.data) or _refusal(smallest)

    def operands(self, block: SweepBlock | None = None) -> dict[str, Any]:
        """Return the codes of A and B, and of their scale factors if there are any, for `wf.gemm(raw=True)`."""
        rows, columns = block or SweepBlock(range(self.shape[0]), range(self.shape[1]))
        a, scale_a = draw(self.form, self.data, self.seed, "A", rows, self.shape[2])
        b, scale_b = draw(self.form, self.data, self.seed, "B", columns, self.shape[2])
        operands = {"A": a, "B": np.ascontiguousarray(b.T)}
        if scale_a is not None and scale_b is not None:
            operands |= {"scale_a": scale_a, "scale_b": np.ascontiguousarray(scale_b.T)}
        return operands

    def options(self) -> dict[str, Any]:
        """Return the remaining arguments of `wf.gemm`."""
        options: dict[str, Any] = {"instruction": self.instruction, "arch": self.arch, "order": self.order}
        return options if self.backend == "cpu" else options | {"backend": self.backend}

    def blocks(self, size: tuple[int, int]) -> Iterator[tuple[tuple[int, int], SweepBlock]]:
        """Yield each block of D, preceded by its index in the grid of chunks."""
        rows, columns = (
            [range(first, min(first + step, extent)) for first in range(0, extent, step)]
            for extent, step in zip(self.shape[:2], size, strict=True)
        )
        for row, column in product(range(len(rows)), range(len(columns))):
            yield (row, column), SweepBlock(rows[row], columns[column])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON-compatible values."""
        return {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}

    def texts(self, *names: str) -> list[str]:
        """Return the fields with these names as short strings."""
        special = {
            "instruction": self.instruction.replace(".sync.aligned", ""),
            "shape": "x".join(map(str, self.shape)),
            "order": ",".join(f"{name}={value}" for name, value in _changed_fields(self.order).items()) or "ascending",
        }
        return [special.get(name, str(getattr(self, name))) for name in names]

    def __str__(self) -> str:
        """Return all fields in one line."""
        return " ".join(self.texts(*(field.name for field in fields(self))))


def matrices_of(operands: dict[str, Any]) -> list[Any]:
    """Return A and B as `wf.gemm` takes them: as `Scaled` if they have scale factors."""
    if "scale_a" not in operands:
        return [operands["A"], operands["B"]]
    return [Scaled(operands[role], operands[f"scale_{role.lower()}"]) for role in "AB"]


@cache
def _refusal(case: Case) -> str:
    """Return the error message of this GEMM, or "" if it can be computed; try it without rows and columns."""
    try:
        gemm(*matrices_of(case.operands(SweepBlock(range(0), range(0)))), **case.options(), raw=True)
    except WarpfragError as error:
        return str(error)
    return ""


def _changed_fields(order: Order) -> dict[str, int]:
    """Return the fields in which an order differs from the default."""
    return {name: number for name, number in asdict(order).items() if number != getattr(Order(), name)}


def _to_json(value: object) -> object:
    """Return a value converted to JSON-compatible values."""
    if isinstance(value, Order):
        return _changed_fields(value)
    return [_to_json(entry) for entry in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class SweepPlan:
    """The contents of a sweep's TOML file; every combination of its values is a case."""

    instruction: tuple[str, ...]
    arch: tuple[str, ...]
    shape: tuple[tuple[int, int, int], ...]
    data: tuple[str, ...]
    order: tuple[Order, ...] = (Order(),)
    seed: tuple[int, ...] = (0,)
    backend: tuple[str, ...] = ("cpu",)
    block: tuple[int, int] = (256, 256)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> SweepPlan:
        """Read a TOML file; raise a FileError that names the wrong key if it is not a plan."""
        table = read_toml(path)
        try:
            return cls.of_table(table)
        except WarpfragError as error:
            raise FileError(f"{quote(str(path))}: {error}") from None

    @classmethod
    def of_table(cls, table: dict[str, Any]) -> SweepPlan:
        """Create the plan that a TOML table describes."""
        for name in table:
            if name not in READERS:
                near = get_close_matches(name, READERS, n=1)
                hint = f"the nearest is {near[0]!r}" if near else f"the keys are {', '.join(READERS)}"
                raise FileError(f"unknown key {quote(name)}: {hint}")
        missing = [name for name in ("instruction", "arch", "shape", "data") if name not in table]
        if missing:
            raise FileError(f"the key {missing[0]!r} is missing: expected {READERS[missing[0]].expected}")
        values: dict[str, Any] = {name: READERS[name].read(name, value) for name, value in table.items()}
        plan = cls(**values)
        axes = [getattr(plan, name) for name in READERS if name != "block"]
        if prod(map(len, axes)) > MAX_CASES:
            raise FileError(f"the plan has {prod(map(len, axes))} cases; expected at most {MAX_CASES}")
        if all(case.refusal for case in plan.cases):
            raise FileError(f"no case can be computed; the first is {plan.cases[0]}: {plan.cases[0].refusal}")
        return plan

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All combinations of the values; the last key varies fastest."""
        return tuple(Case(*values) for values in product(*[getattr(self, field.name) for field in fields(Case)]))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, including defaults, as JSON-compatible values."""
        return {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}

    @property
    def digest(self) -> str:
        """A hash of the values; comments, spaces and the order of the keys do not change it."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


class KeyReader(NamedTuple):
    """The reader of a key: a description of the expected value, and the function that checks and converts it."""

    expected: str
    read_value: Callable[[Any], Any]
    is_list: bool = True

    def read(self, name: str, value: object) -> object:
        """Return a value after checking and converting it; raise FileError with the expected value if it is invalid."""
        if not self.is_list:
            return self._read_entry(name, value)
        is_shape = name == "shape" and isinstance(value, list) and bool(value) and list not in map(type, value)
        listed = value if isinstance(value, list) and not is_shape else [value]
        if not listed:
            raise FileError(f"{name}: expected {self.expected}, or a list of them; got an empty list")
        entries = tuple(
            self._read_entry(name if len(listed) == 1 else f"{name}[{index}]", entry)
            for index, entry in enumerate(listed)
        )
        firsts: dict[Any, int] = {}
        for index, entry in enumerate(entries):
            if firsts.setdefault(entry, index) != index:
                raise FileError(f"{name}[{index}] repeats {name}[{firsts[entry]}]: {quote(_to_json(entry))}")
        return entries

    def _read_entry(self, name: str, value: object) -> object:
        try:
            return self.read_value(value)
        except WarpfragError as error:
            raise FileError(f"{name}: {error}") from None
        except (TypeError, ValueError):
            raise FileError(f"{name}: expected {self.expected}; got {quote(value)}") from None


def _integer(value: object, minimum: int = 1, maximum: int = MAX_EXTENT) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise TypeError
    return value


def _integers_of(count: int) -> Callable[[Any], tuple[int, ...]]:
    def read(value: list[object]) -> tuple[int, ...]:
        if len(value) != count:
            raise TypeError
        return tuple(map(_integer, value))

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


READERS = {
    "instruction": KeyReader("the name of an instruction", lambda value: get(_text(value)).name),
    "arch": KeyReader("the name of an architecture, such as 'sm_90'", lambda value: read_target(_text(value), "").name),
    "shape": KeyReader(f"three integers M, N, K from 1 to {MAX_EXTENT}, such as [64, 64, 256]", _integers_of(3)),
    "data": KeyReader(f"one of {', '.join(DISTRIBUTIONS)}", lambda value: DISTRIBUTIONS[DISTRIBUTIONS.index(value)]),
    "order": KeyReader(
        f"a table such as {{ split_k = 4, unit = 64 }} with the keys {', '.join(TENSOR_CORE_FIELDS)}",
        lambda value: Order(**value),
    ),
    "seed": KeyReader("a non-negative integer", lambda value: _integer(value, 0, (1 << 63) - 1)),
    "backend": KeyReader(f"one of {', '.join(BACKENDS)}", lambda value: BACKENDS[BACKENDS.index(value)]),
    "block": KeyReader(f"two integers from 1 to {MAX_EXTENT}, such as [256, 256]", _integers_of(2), is_list=False),
}
