"""tcgen05 instruction descriptors: 32 bits that give the shape and types of an mma, which its PTX text omits.

**In a sentence.** The PTX text of a tcgen05.mma names a kind; a word in a register selects the types of that kind, m
and n, and the negated, transposed or sparse operands.

    >>> descriptor = InstructionDescriptor(kind="f16", m=128, n=256, a="bf16", b="bf16", d="f32")
    >>> hex(descriptor.word)
    '0x8400490'
    >>> InstructionDescriptor.decode(0x8400490, kind="f16") == descriptor
    True

**Three tables.** The plain kinds (f16, tf32, f8f6f4, i8, ti16), mxf8f6f4, and mxf4 with mxf4nvf4 have their fields at
different bits; they are rows of `tables/tcgen05.toml`. A word does not contain its kind.

**Nothing is rejected.** An assembler does not read the word, and an mma with a wrong word returns garbage. `decode`
accepts any word, and `problems` lists its suspicious fields.

`ZeroColumnMask` is a second descriptor: 64 bits that make mma.ws skip columns of B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.qualifiers import HasForm
from warpfrag.isa.tcgen05_forms import TensorForm, shape_rows
from warpfrag.smem.descriptor import Explained, Field, Problem
from warpfrag.smem.shared_memory import is_whole, repr_of_fields
from warpfrag.tables import read_table

WORD_BITS, MASK_BITS = 32, 64
FLAGS = ("sparse", "saturate", "negate_a", "negate_b", "transpose_a", "transpose_b", "wide_k", "k_128", "k_96")
NUMBERED = ("d", "a", "b", "scale_type", "max_shift")
TEXTS = ("kind", "a", "b", "d", "scale_type")
NARROW = ("e2m3", "e3m2", "e2m1")


def fields_of(kind: str) -> dict[str, Field]:
    """Return the fields of a descriptor word of `kind`, lowest first; raise InvalidOperand for an unknown kind."""
    return _fields_of(kind if isinstance(kind, str) else quote(kind))


@cache
def _fields_of(kind: str) -> dict[str, Field]:
    table = read_table("tcgen05")["descriptor"]
    for name in ("plain", "mxf8f6f4", "mxf4"):
        if kind in table[name]["kinds"]:
            return {row["name"]: Field(row["low"], row["bits"], row.get("shift", 1)) for row in table[name]["fields"]}
    kinds = ", ".join(entry for name in ("plain", "mxf8f6f4", "mxf4") for entry in table[name]["kinds"])
    raise InvalidOperand(f"kind must be one of {kinds}; got {quote(kind)}")


def _numbers(name: str, kind: str) -> dict[str, int]:
    """Return the numbers that encode the choices for a field."""
    return dict(read_table("tcgen05")["descriptor"]["numbers"][kind if name in ("a", "b") else name])


@dataclass(frozen=True)
class InstructionDescriptor:
    """A tcgen05 instruction descriptor.

    `d`, `a`, `b` and `scale_type` are formats as PTX spells them; a number that encodes no format is shown as "?6".
    `selector` applies to sparse metadata, `scale_a_id` and `scale_b_id` are the first bytes of the scale factors,
    `max_shift` is the largest column shift of mma.ws. The kind determines k, unless `k_96`, or on sm_107 `k_128` or
    `wide_k`, selects another one. `other` contains the bits outside all fields.
    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str = "f32"
    sparse: bool = False
    selector: int = 0
    saturate: bool = False
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    scale_type: str = ""
    scale_a_id: int = 0
    scale_b_id: int = 0
    max_shift: int = 0
    wide_k: bool = False
    k_96: bool = False
    k_128: bool = False
    sparsity_version: int = 0
    other: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidOperand for values that the word cannot encode."""
        for field in fields(self):
            entry = getattr(self, field.name)
            is_text = field.name in TEXTS
            if not isinstance(entry, str if is_text else int):
                label = "a string such as 'f16'" if is_text else "a number"
                raise InvalidOperand(f"{field.name} of an instruction descriptor must be {label}, got {quote(entry)}")
        known = fields_of(self.kind)
        for field in fields(self):
            entry = getattr(self, field.name)
            if field.name in ("kind", "other") or (field.name == "d" and "d" not in known):
                continue
            if field.name not in known:
                if entry not in (field.default, "ue8m0" if field.name == "scale_type" else field.default):
                    raise InvalidOperand(f"a descriptor of kind {self.kind} has no {field.name}, got {quote(entry)}")
                continue
            self._raw(field.name, known[field.name])
        unused = ((1 << WORD_BITS) - 1) ^ sum(field.mask for field in known.values())
        if not is_whole(self.other) or self.other & ~unused:
            raise InvalidOperand(f"other may only contain bits that belong to no field, got {quote(self.other)}")

    __repr__ = repr_of_fields

    def _raw(self, name: str, field: Field) -> int:
        """Return the number that encodes a field; raise InvalidOperand if its value cannot be encoded."""
        entry = getattr(self, name)
        if name in FLAGS:
            if not isinstance(entry, bool):
                raise InvalidOperand(f"{name} must be True or False, got {quote(entry)}")
            return int(entry)
        if name in NUMBERED:
            numbers = _numbers(name, self.kind)
            text = str(entry) or "ue8m0"
            if text in numbers:
                return numbers[text]
            if text.startswith("?") and text[1:].isdigit() and int(text[1:]) < 1 << field.bits:
                return int(text[1:])
            raise InvalidOperand(f"{name} of kind {self.kind} must be one of {', '.join(numbers)}; got {quote(entry)}")
        end = field.unit << field.bits
        if not is_whole(entry) or not 0 <= entry < end or entry % field.unit:
            label = f"a multiple of {field.unit}" if field.unit > 1 else "a number"
            raise InvalidOperand(
                f"{name} of an instruction descriptor must be {label} from 0 to {end - field.unit}, got {quote(entry)}"
            )
        return int(entry) // field.unit

    @property
    def word(self) -> int:
        """The descriptor as a 32-bit word."""
        return self.other | sum(self._raw(name, field) << field.low for name, field in fields_of(self.kind).items())

    @classmethod
    def decode(cls, word: int, *, kind: str) -> InstructionDescriptor:
        """Decode a word as a descriptor of `kind`; every word is accepted."""
        if not (is_whole(word) and 0 <= word < 1 << WORD_BITS):
            raise InvalidOperand(
                f"expected an instruction descriptor of {WORD_BITS} bits, such as 0x8400490; got {quote(word)}"
            )
        entries: dict[str, Any] = {"kind": kind}
        for name, field in fields_of(kind).items():
            number = field.read(word)
            if name in FLAGS:
                entries[name] = bool(number)
            elif name in NUMBERED:
                texts = {code: text for text, code in _numbers(name, kind).items()}
                text = texts.get(number, f"?{number}")
                entries[name] = int(text) if name == "max_shift" else text
            else:
                entries[name] = number
        return cls(**entries, other=word & ~sum(field.mask for field in fields_of(kind).values()))

    @classmethod
    def of(cls, instruction: HasForm, **options: int | str | bool | None) -> InstructionDescriptor:
        """Return the descriptor of an mma; `options` set fields that the instruction's name does not determine."""
        form = getattr(instruction, "form", None)
        if not (isinstance(form, TensorForm) and form.shape.m):
            raise InvalidOperand(f"expected a tcgen05.mma with shape and types, got {quote(instruction)}")
        made: dict[str, Any] = {"kind": form.kind, "m": form.shape.m, "n": form.shape.n, "a": form.a, "b": form.b}
        made |= {"d": form.d, "sparse": form.spelling.is_sparse, "scale_type": form.scale_type}
        made["k_96"] = form.shape.k == 96
        return cls(**made | options)

    def explain(self) -> list[Explained]:
        """Decode the fields of the word, lowest first."""
        word = self.word
        return [
            Explained(name, field.low + field.bits - 1, field.low, field.read(word) // field.unit, self._meaning(name))
            for name, field in fields_of(self.kind).items()
        ]

    def _meaning(self, name: str) -> str:
        entry = getattr(self, name)
        if name in FLAGS:
            return "yes" if entry else "no"
        return f"scale factors are {entry or 'ue8m0'}" if name == "scale_type" else str(entry)

    def problems(self, instruction: HasForm | None = None) -> list[Problem]:
        """Return suspicious fields of the word, and fields that contradict the shape or types of `instruction`."""
        if not (instruction is None or isinstance(getattr(instruction, "form", None), TensorForm)):
            raise InvalidOperand(f"expected a tcgen05 instruction, got {quote(instruction)}")
        return list(_problems(self, instruction))


def _problems(word: InstructionDescriptor, instruction: HasForm | None) -> Iterator[Problem]:
    if word.other:
        yield Problem("other", f"bits 0x{word.other:x} belong to no field and should be 0")
    for name in ("d", "a", "b", "scale_type"):
        entry = getattr(word, name)
        if entry.startswith("?"):
            choices = ", ".join(f"{number} {text}" for text, number in _numbers(name, word.kind).items())
            yield Problem(name, f"{name} is {entry[1:]}, which kind::{word.kind} does not have: {choices}")
    fitting = [row for row in shape_rows() if row.kind == word.kind and row.is_sparse == word.sparse]
    if word.kind != "ti16":
        if not any(word.m in row.m and word.n in row.n for row in fitting):
            yield Problem("m", f"m {word.m} with n {word.n} is not a shape of kind::{word.kind}, in any cta_group")
        typed = any(word.d in row.d and word.a in row.a and word.b in row.b for row in fitting)
        if not typed and not any(getattr(word, name).startswith("?") for name in "dab"):
            yield Problem("a", f"kind::{word.kind} has no mma of {word.a} and {word.b} with {word.d}")
    if word.selector and not word.sparse:
        yield Problem("selector", f"selector {word.selector} is not used: the mma is dense")
    if word.saturate and word.kind != "i8":
        yield Problem("saturate", f"only kind::i8 saturates, not kind::{word.kind}")
    if word.kind in ("i8", "ti16") and (word.negate_a or word.negate_b):
        yield Problem("negate_a" if word.negate_a else "negate_b", f"kind::{word.kind} cannot be negated")
    for side in "ab":
        if getattr(word, f"transpose_{side}") and getattr(word, side) in NARROW:
            yield Problem(
                f"transpose_{side}", f"{getattr(word, side)} cannot be transposed: only types of 8 bits and more can"
            )
    yield from _differences(word, instruction)


def _differences(word: InstructionDescriptor, instruction: HasForm | None) -> Iterator[Problem]:
    """Yield the differences between a descriptor and an instruction."""
    form = getattr(instruction, "form", None)
    if not isinstance(form, TensorForm):
        return
    if form.kind != word.kind:
        yield Problem("kind", f"the descriptor is read as kind::{word.kind}, but the instruction is kind::{form.kind}")
    if form.spelling.is_sparse != word.sparse:
        stated = "sparse" if word.sparse else "dense"
        has = "has" if form.spelling.is_sparse else "has no"
        yield Problem("sparse", f"the descriptor is {stated}, but the instruction {has} .sp")
    if form.shape.m:
        wanted = {"m": form.shape.m, "n": form.shape.n, "a": form.a, "b": form.b}
        wanted |= {"d": form.d} if not form.block_scale else {"scale_type": form.scale_type}
        for name, entry in wanted.items():
            if getattr(word, name) != entry:
                yield Problem(name, f"the descriptor has {name} {getattr(word, name)}, the instruction {entry}")


@dataclass(frozen=True)
class ZeroColumnMask:
    """The columns of B that mma.ws skips: runs of `zeros` skipped columns alternate with runs of `used` columns.

    The n columns are divided into banks: one for m 128, two for m 64, four for m 32. `starts` gives each bank's
    position in the repeating pair of runs; `zero_first` is True if the pair begins with the zero run. Column n of D
    reads column n + `shift` of B.
    """

    zeros: int = 1
    used: int = 1
    starts: tuple[int, int, int, int] = (0, 0, 0, 0)
    zero_first: tuple[bool, bool, bool, bool] = (False, False, False, False)
    shift: int = 0
    active: bool = True
    other: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidOperand for fields that the word cannot encode."""
        for name, low, high in (("zeros", 1, 256), ("used", 1, 256), ("shift", 0, 63)):
            entry = getattr(self, name)
            if not is_whole(entry) or not low <= entry <= high:
                raise InvalidOperand(f"{name} of a zero-column mask must be in {low}..{high}, got {quote(entry)}")
        is_four = all(isinstance(entry, tuple) and len(entry) == 4 for entry in (self.starts, self.zero_first))
        if not is_four or not all(is_whole(start) and 0 <= start < 256 for start in self.starts):
            raise InvalidOperand(
                f"expected four starts in 0..255 and four flags, got {quote(self.starts)} and {quote(self.zero_first)}"
            )

    @property
    def word(self) -> int:
        """The mask as a 64-bit word."""
        word = self.other | sum(start << 8 * bank for bank, start in enumerate(self.starts))
        word |= sum(bool(first) << 32 + bank for bank, first in enumerate(self.zero_first))
        return word | self.active << 39 | (self.zeros - 1) << 40 | (self.used - 1) << 48 | self.shift << 56

    @classmethod
    def decode(cls, word: int) -> ZeroColumnMask:
        """Decode a word as a mask."""
        if not (is_whole(word) and 0 <= word < 1 << MASK_BITS):
            raise InvalidOperand(f"expected a zero-column mask of {MASK_BITS} bits, got {quote(word)}")
        starts = tuple(word >> 8 * bank & 255 for bank in range(4))
        first = tuple(bool(word >> 32 + bank & 1) for bank in range(4))
        return cls(
            zeros=(word >> 40 & 255) + 1,
            used=(word >> 48 & 255) + 1,
            starts=(starts[0], starts[1], starts[2], starts[3]),
            zero_first=(first[0], first[1], first[2], first[3]),
            shift=word >> 56 & 63,
            active=bool(word >> 39 & 1),
            other=word & (0b111 << 36 | 0b11 << 62),
        )

    def columns(self, m: int, n: int) -> list[int | None]:
        """Return, for each column of D, the column of B that it reads, or None if it is zero."""
        _check_rows(m)
        if not is_whole(n) or not 0 < n <= 256 or n % 4:
            raise InvalidOperand(f"n of mma.ws must be a multiple of 4 up to 256, got {quote(n)}")
        banks = 128 // m
        result: list[int | None] = []
        for column in range(n):
            bank, inside = divmod(column, n // banks)
            if not self.active:
                result.append(column)
                continue
            zero_first = self.zero_first[bank]
            run = self.zeros if zero_first else self.used
            at = (inside + min(self.starts[bank], run - 1)) % (self.zeros + self.used)
            is_zero = at < self.zeros if zero_first else at >= self.used
            result.append(None if is_zero else column + self.shift)
        return result

    def problems(self, m: int) -> list[Problem]:
        """Return the suspicious fields of the mask for an mma with m rows."""
        _check_rows(m)
        largest = 16 if m == 32 else 32
        result = []
        if self.other:
            result.append(Problem("other", f"bits 0x{self.other:x} belong to no field and should be 0"))
        if self.shift > largest:
            result.append(Problem("shift", f"shift {self.shift} is more than {largest}, the maximum for m {m}"))
        unused = [bank for bank in range(128 // m, 4) if self.starts[bank] or self.zero_first[bank]]
        if unused:
            result.append(Problem("starts", f"m {m} has {128 // m} banks: bank {unused[0]} is not used"))
        return result


def _check_rows(m: object) -> None:
    """Raise InvalidOperand for an m that mma.ws does not support."""
    if not is_whole(m) or m not in (32, 64, 128):
        raise InvalidOperand(f"m of mma.ws must be one of 32, 64, 128; got {quote(m)}")
