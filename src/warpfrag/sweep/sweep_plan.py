"""What a study is: a TOML file that names instructions, architectures, shapes, data, orders; and the cases they make.

    instruction = ["mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k16.f32.bf16.bf16.f32"]
    arch = ["sm_80", "sm_90"]
    shape = [[64, 64, 256], [64, 64, 4096]]         # M, N, K
    data = ["normal", "wide"]
    order = [{}, { split_k = 4, unit = 64 }]        # {} without it: k ascending
    seed = [0, 1]                                   # 0 without it
    backend = "cpu"                                 # that without it
    block = [256, 256]                              # rows and columns of D that one task computes; that without it

The words are those of `wf.gemm`. Each but `block` is one or a list, and every combination is a case.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from functools import cache, cached_property
from hashlib import sha256
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from warpfrag.blas.gemm import gemm
from warpfrag.blas.gemm_backend import BACKENDS
from warpfrag.blas.order import Order
from warpfrag.errors import FileError, WarpfragError, quote
from warpfrag.files import read_bytes
from warpfrag.isa.legality import form_of
from warpfrag.isa.targets import read_target
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.sweep.sweep_data import DISTRIBUTIONS, draw, refusal
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from warpfrag.isa.qualifiers import Form

MAX_BYTES = 1 << 20
MAX_CASES = 100_000
MAX_EXTENT = 1 << 24


class StudyBlock(NamedTuple):
    """Some rows and columns of D: one task, and one chunk of the store."""

    rows: range
    columns: range


@frozen_dataclass
class Case:
    """One product of a study."""

    instruction: str
    arch: str
    shape: tuple[int, int, int]
    data: str
    order: Order
    seed: int
    backend: str

    @cached_property
    def form(self) -> Form:
        """What the instruction's name says."""
        return form_of(self.instruction)

    @property
    def refusal(self) -> str:
        """Why this product cannot be made: not legal there, not modelled, data that the format has not; or nothing."""
        any_such = replace(self, shape=(1, 1, self.shape[2]), data="normal", seed=0, backend="cpu")
        return refusal(self.form, self.data) or _refusal(any_such)

    def operands(self, block: StudyBlock | None = None) -> dict[str, Any]:
        """Codes, as `wf.gemm(raw=True)` takes them: A and B, and scale_a and scale_b where there are any."""
        rows, columns = block or StudyBlock(range(self.shape[0]), range(self.shape[1]))
        a, scale_a = draw(self.form, self.data, self.seed, "A", rows, self.shape[2])
        b, scale_b = draw(self.form, self.data, self.seed, "B", columns, self.shape[2])
        operands = {"A": a, "B": np.ascontiguousarray(b.T)}
        if scale_a is not None and scale_b is not None:
            operands |= {"scale_a": scale_a, "scale_b": np.ascontiguousarray(scale_b.T)}
        return operands

    def options(self) -> dict[str, Any]:
        """What else `wf.gemm` takes."""
        options: dict[str, Any] = {"instruction": self.instruction, "arch": self.arch, "order": self.order}
        return options if self.backend == "cpu" else options | {"backend": self.backend}

    def blocks(self, size: tuple[int, int]) -> Iterator[tuple[tuple[int, int], StudyBlock]]:
        """The blocks of D, by their places in the grid of chunks."""
        rows, columns = (
            [range(first, min(first + step, extent)) for first in range(0, extent, step)]
            for extent, step in zip(self.shape[:2], size, strict=True)
        )
        for row, column in product(range(len(rows)), range(len(columns))):
            yield (row, column), StudyBlock(rows[row], columns[column])

    def to_dict(self) -> dict[str, Any]:
        """As a store and JSON have it."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def words(self, *names: str) -> list[str]:
        """Some of its facts, each in a word or two."""
        texts = {
            "instruction": self.instruction.replace(".sync.aligned", ""),
            "shape": "x".join(map(str, self.shape)),
            "order": ",".join(f"{name}={value}" for name, value in _parts(self.order).items()) or "ascending",
        }
        return [texts.get(name, str(getattr(self, name))) for name in names]

    def __str__(self) -> str:
        """In one line."""
        return " ".join(self.words(*(field.name for field in fields(self))))


@cache
def _refusal(case: Case) -> str:
    """Why no product like this one can be made: that of no rows and no columns tells."""
    try:
        gemm(**case.operands(StudyBlock(range(0), range(0))), **case.options(), raw=True)
    except WarpfragError as error:
        return str(error)
    return ""


def _parts(order: Order) -> dict[str, int]:
    """What an order says beyond the default."""
    return {name: number for name, number in asdict(order).items() if number != getattr(Order(), name)}


def _plain(value: object) -> object:
    """As JSON has it."""
    if isinstance(value, Order):
        return _parts(value)
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


@frozen_dataclass
class Study:
    """What a file asks for: every combination of these is a case."""

    instruction: tuple[str, ...]
    arch: tuple[str, ...]
    shape: tuple[tuple[int, int, int], ...]
    data: tuple[str, ...]
    order: tuple[Order, ...] = (Order(),)
    seed: tuple[int, ...] = (0,)
    backend: tuple[str, ...] = ("cpu",)
    block: tuple[int, int] = (256, 256)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Study:
        """The study of a TOML file; whatever is wrong in it is named by its key."""
        content = read_bytes(path, MAX_BYTES)
        try:
            table = tomllib.loads(content.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            msg = f"{quote(str(path))} is no TOML: {error}"
            raise FileError(msg) from None
        try:
            return cls.of_table(table)
        except WarpfragError as error:
            msg = f"{quote(str(path))}: {error}"
            raise FileError(msg) from None

    @classmethod
    def of_table(cls, table: dict[str, Any]) -> Study:
        """The study that a TOML table describes."""
        for name in table:
            if name not in READERS:
                near = get_close_matches(name, READERS, n=1)
                hint = f"the nearest is {near[0]!r}" if near else f"the keys are {', '.join(READERS)}"
                msg = f"there is no key {quote(name)}: {hint}"
                raise FileError(msg)
        missing = [name for name in ("instruction", "arch", "shape", "data") if name not in table]
        if missing:
            msg = f"the key {missing[0]!r} is missing: expected {READERS[missing[0]].expected}"
            raise FileError(msg)
        values: dict[str, Any] = {name: READERS[name].read(name, value) for name, value in table.items()}
        study = cls(**values)
        axes = [getattr(study, name) for name in READERS if name != "block"]
        if prod(map(len, axes)) > MAX_CASES:
            msg = f"these are {prod(map(len, axes))} cases: expected at most {MAX_CASES}"
            raise FileError(msg)
        if all(case.refusal for case in study.cases):
            msg = f"none of its cases can be computed; the first is {study.cases[0]}: {study.cases[0].refusal}"
            raise FileError(msg)
        return study

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Every combination, the last key changing first."""
        axes = [getattr(self, field.name) for field in fields(Case)]
        return tuple(Case(*chosen) for chosen in product(*axes))

    def to_dict(self) -> dict[str, Any]:
        """As a store has it: with everything that the file left out."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @property
    def digest(self) -> str:
        """A hash of what the file means: comments, spaces and the order of its keys do not matter."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


class KeyReader(NamedTuple):
    """How the value of a key is read: what one is, and how to read it."""

    expected: str
    read_value: Callable[[Any], Any]
    is_list: bool = True

    def read(self, name: str, value: object) -> object:
        """The value of a key; refused with what was expected."""
        if not self.is_list:
            return self._read_entry(name, value)
        listed = value if isinstance(value, list) and not (name == "shape" and _is_shape(value)) else [value]
        if not listed:
            msg = f"{name}: expected {self.expected}, or a list of them; got an empty list"
            raise FileError(msg)
        entries = tuple(
            self._read_entry(name if len(listed) == 1 else f"{name}[{place}]", entry)
            for place, entry in enumerate(listed)
        )
        firsts: dict[Any, int] = {}
        for place, entry in enumerate(entries):
            if firsts.setdefault(entry, place) != place:
                msg = f"{name}[{place}] is {name}[{firsts[entry]}] once more: {quote(_plain(entry))}"
                raise FileError(msg)
        return entries

    def _read_entry(self, name: str, value: object) -> object:
        try:
            return self.read_value(value)
        except WarpfragError as error:
            msg = f"{name}: {error}"
            raise FileError(msg) from None
        except (TypeError, ValueError):
            msg = f"{name}: expected {self.expected}; got {quote(value)}"
            raise FileError(msg) from None


def _is_count(value: object, minimum: int = 1, maximum: int = MAX_EXTENT) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and bool(value) and not any(isinstance(entry, list) for entry in value)


def _counts(count: int) -> Callable[[Any], tuple[int, ...]]:
    def read(value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) != count or not all(map(_is_count, value)):
            raise TypeError
        return tuple(value)

    return read


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _word(known: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: object) -> str:
        word = _text(value)
        if word not in known:
            near = get_close_matches(word, known, n=1)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            msg = f"expected one of {', '.join(known)}; got {quote(word)}{hint}"
            raise FileError(msg)
        return word

    return read


def _order(value: object) -> Order:
    if not isinstance(value, dict):
        raise TypeError
    known = [field.name for field in fields(Order)]
    for name in value:
        _word(tuple(known))(name)
    return Order(**value)


def _seed(value: object) -> int:
    if not _is_count(value, 0, (1 << 63) - 1):
        raise TypeError
    return value


READERS = {
    "instruction": KeyReader("the name of an instruction", lambda value: get(_text(value)).name),
    "arch": KeyReader("the name of an architecture, such as 'sm_90'", lambda value: read_target(_text(value), "").name),
    "shape": KeyReader(f"three integers M, N, K from 1 to {MAX_EXTENT}, such as [64, 64, 256]", _counts(3)),
    "data": KeyReader(f"one of {', '.join(DISTRIBUTIONS)}", _word(DISTRIBUTIONS)),
    "order": KeyReader("a table of the fields of wf.Order, such as { split_k = 4, unit = 64 }", _order),
    "seed": KeyReader("an integer from 0 on", _seed),
    "backend": KeyReader(f"one of {', '.join(BACKENDS)}", _word(BACKENDS)),
    "block": KeyReader(f"two integers from 1 to {MAX_EXTENT}, such as [256, 256]", _counts(2), is_list=False),
}
