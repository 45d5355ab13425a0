"""Shared-memory matrix descriptors: 64 bits that tell wgmma and tcgen05 where an operand is stored.

**In a sentence.** A descriptor has a start, two strides and a swizzle, from which the hardware computes the byte
address of every element.

**The rule.** The rows of an operand are along M or N, and each row runs along K. In *K-major* order, the usual one, the
elements of a row are adjacent; in *MN-major* order (`trans`, 16-bit types only), those of a column are. Memory is
divided into *atoms*: eight lines of W bytes, where W is the swizzle, or 16 without a swizzle. The lines of an atom are
consecutive; `stride` and `leading` are the distances between atoms:

    K-major                     atoms along K: leading      atoms along M or N: stride
    MN-major, swizzled          atoms along K: stride       atoms along M or N: leading
    MN-major, no swizzle        atoms along K: leading      atoms along M or N: stride

Then the swizzle xors bits of the row into the 16-byte unit, as in `shared_memory`. It applies to absolute shared-memory
addresses, even if a tile does not start at the beginning of the pattern; `base_offset` moves the pattern.

    >>> descriptor = Descriptor(stride=1024, swizzle=128)
    >>> hex(descriptor.word)
    '0x4000004000000000'
    >>> Descriptor.decode(0x4000004000000000) == descriptor
    True

**tcgen05** has the same descriptor with more fields (`kind="tcgen05"`): bits 46 to 48 are the version, 1; bit 61 alone
is a 128-byte swizzle that keeps 32 bytes together (`unit=32`, for MN-major tf32); with bit 52, `leading` is the address
of the bytes of a row beyond its 128-byte line (`absolute`).

    >>> hex(Descriptor(stride=1024, swizzle=128, kind="tcgen05").word)
    '0x4000404000000000'

**Nothing is rejected.** The hardware accepts any bits: overlapping tiles, misaligned strides, unused fields. `decode`
does too, and `problems` lists suspicious fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

from warpfrag.errors import InvalidOperand, check_flag, quote
from warpfrag.formats.number_formats import Format
from warpfrag.smem.shared_memory import SWIZZLES, UNIT, Digit, Memory, Order, is_whole, repr_of_fields

WORD_BITS = 64
LINES = 8  # the number of lines per atom
ROW_OF_PATTERN = 128  # bytes; a swizzle uses the address bits above this size
MAX_SHARED_BYTES = 232_448  # the largest shared memory per block on sm_90, in bytes
TMA_ALIGNED = 128  # the alignment in bytes of a bulk tensor copy's target
TURNABLE = 16  # the width in bits of the types that may be MN-major
MAX_K = 1 << 16  # the largest k of a tile; larger tiles would not fit in shared memory
MAX_BOX = 256  # the largest extent of a box in elements
TMA_TYPES = {
    "f16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "bf16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "tf32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
}
"""The driver's names for element types; other types are copied as bytes."""
CODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""The two bits that encode each swizzle."""
KINDS = ("wgmma", "tcgen05")
TENSOR_VERSION = 1
WIDE_UNIT = 32  # the number of bytes that tcgen05's second swizzle keeps together
WIDE_CODE = 1  # the code of that swizzle in the three swizzle bits


class Field(NamedTuple):
    """A field of the word: its lowest bit, its width, and its unit in bytes."""

    low: int
    bits: int
    unit: int

    def read(self, word: int) -> int:
        """Return the field's value in a word, multiplied by the field's unit."""
        return (word >> self.low & ((1 << self.bits) - 1)) * self.unit

    @property
    def mask(self) -> int:
        """The mask of the field's bits."""
        return ((1 << self.bits) - 1) << self.low


class Explained(NamedTuple):
    """One decoded field: its name, bits (highest and lowest), raw value and meaning."""

    name: str
    high: int
    low: int
    raw: int
    meaning: str


class Problem(NamedTuple):
    """A suspicious field of a descriptor, and the reason."""

    field: str
    text: str


class TensorMapArguments(NamedTuple):
    """The arguments of `cuTensorMapEncodeTiled`, innermost axis first, and the copies that fill the tile.

    A copy is given by the element at which its box starts along the contiguous axis, and by its byte offset in shared
    memory.
    """

    data_type: str
    box: tuple[int, int]
    element_strides: tuple[int, int]
    interleave: str
    swizzle: str
    copies: tuple[tuple[int, int], ...]


class StagedOperand(Protocol):
    """The interface of an operand in shared memory."""

    @property
    def role(self) -> str:
        """The operand's role, "a" or "b"."""

    @property
    def format(self) -> Format:
        """The format of an element."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of rows and columns."""

    @property
    def staged(self) -> bool:
        """True if the operand may be in shared memory."""


@dataclass(frozen=True)
class Descriptor:
    """A shared-memory descriptor; distances are in bytes, and base_offset counts rows of 128 bytes.

    `other` contains the bits outside all fields, so that decoding and encoding preserve every bit.
    """

    start: int = 0
    leading: int = 0
    stride: int = 0
    swizzle: int = 0
    base_offset: int = 0
    other: int = 0
    kind: str = "wgmma"
    unit: int = UNIT
    absolute: bool = False
    version: int = TENSOR_VERSION

    FIELDS: ClassVar[dict[str, Field]] = {
        "start": Field(0, 14, UNIT),
        "leading": Field(16, 14, UNIT),
        "stride": Field(32, 14, UNIT),
        "base_offset": Field(49, 3, 1),
        "swizzle": Field(62, 2, 1),
    }

    TENSOR_FIELDS: ClassVar[dict[str, Field]] = {
        "start": Field(0, 14, UNIT),
        "leading": Field(16, 14, UNIT),
        "stride": Field(32, 14, UNIT),
        "version": Field(46, 3, 1),
        "base_offset": Field(49, 3, 1),
        "absolute": Field(52, 1, 1),
        "swizzle": Field(61, 3, 1),
    }

    def __post_init__(self) -> None:
        """Raise InvalidOperand for values that the word cannot encode."""
        if self.kind not in KINDS:
            raise InvalidOperand(f"kind must be one of {', '.join(KINDS)}, got {quote(self.kind)}")
        if not (is_whole(self.swizzle) and self.swizzle in CODES):
            raise InvalidOperand(f"swizzle must be {', '.join(map(str, SWIZZLES))} bytes, got {quote(self.swizzle)}")
        is_wide = self.kind == "tcgen05" and self.swizzle == 128
        if self.unit not in ((UNIT, WIDE_UNIT) if is_wide else (UNIT,)):
            raise InvalidOperand(
                f"unit must be {UNIT}, or {WIDE_UNIT} with tcgen05's 128-byte swizzle; got {quote(self.unit)}"
            )
        if not (is_whole(self.version) and 0 <= self.version < 8):
            raise InvalidOperand(f"version must be in 0..7, got {quote(self.version)}")
        if not isinstance(self.absolute, bool) or (self.absolute and self.kind == "wgmma"):
            raise InvalidOperand(f"absolute must be a bool, and True only for tcgen05; got {quote(self.absolute)}")
        for name in ("start", "leading", "stride", "base_offset"):
            number, field = getattr(self, name), self.FIELDS[name]
            end = field.unit << field.bits
            if not (is_whole(number) and 0 <= number < end and number % field.unit == 0):
                label = f"a multiple of {field.unit} bytes" if field.unit > 1 else "a number"
                raise InvalidOperand(f"{name}: expected {label} from 0 to {end - field.unit}, got {quote(number)}")
        if not (is_whole(self.other) and 0 <= self.other < 1 << WORD_BITS) or self.other & _in_fields(self.kind):
            raise InvalidOperand(f"other may only contain bits that belong to no field, got {quote(self.other)}")

    __repr__ = repr_of_fields

    def _repr_html_(self) -> str:
        """Return a notebook card with the word, and each of its fields."""
        from warpfrag.html import card, table

        rows = [
            (field.name.replace("_", " "), f"{field.high}-{field.low}", f"{field.raw:#x}", field.meaning)
            for field in self.explain()
        ]
        return card(f"<code>Descriptor {self.word:#018x}</code>", table(("field", "bits", "raw", "meaning"), rows))

    @property
    def word(self) -> int:
        """The descriptor as a 64-bit word."""
        numbers: dict[str, int] = {name: getattr(self, name) for name in self.fields}
        numbers["swizzle"] = CODES[self.swizzle]
        if self.kind == "tcgen05":
            numbers["swizzle"] = WIDE_CODE if self.unit == WIDE_UNIT else 2 * CODES[self.swizzle]
        return self.other | sum(int(numbers[name]) // field.unit << field.low for name, field in self.fields.items())

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of the word, lowest first."""
        return self.TENSOR_FIELDS if self.kind == "tcgen05" else self.FIELDS

    @classmethod
    def decode(cls, word: int, *, kind: str = "wgmma") -> Descriptor:
        """Decode a 64-bit word as a descriptor for wgmma or tcgen05."""
        if not (is_whole(word) and 0 <= word < 1 << WORD_BITS):
            raise InvalidOperand(
                f"expected a descriptor of {WORD_BITS} bits, such as 0x4000004000000000; got {quote(word)}"
            )
        is_tensor = kind == "tcgen05"
        fields = cls.TENSOR_FIELDS if is_tensor else cls.FIELDS
        entries: dict[str, Any] = {name: field.read(word) for name, field in fields.items()} | {"kind": kind}
        code = entries["swizzle"]
        widths = {number << is_tensor: swizzle for swizzle, number in CODES.items()}
        if is_tensor:
            widths[WIDE_CODE] = 128
            entries |= {"absolute": bool(entries["absolute"]), "unit": WIDE_UNIT if code == WIDE_CODE else UNIT}
        entries["swizzle"] = widths.get(code, 0)
        unknown = 0 if code in widths else code << fields["swizzle"].low  # an unknown code is kept in `other`
        return cls(**entries, other=word & ~sum(field.mask for field in fields.values()) | unknown)

    def explain(self) -> list[Explained]:
        """Decode the fields of the word, lowest first."""
        meanings = {
            "start": f"starts at byte {self.start}",
            "leading": f"leading byte offset {self.leading}",
            "stride": f"stride byte offset {self.stride}",
            "base_offset": f"the swizzle pattern starts {128 * self.base_offset} bytes late"
            if self.base_offset
            else "swizzle pattern aligned",
            "swizzle": (f"{self.swizzle}-byte swizzle" if self.swizzle else "no swizzle")
            + (f" that keeps {self.unit} bytes together" if self.unit != UNIT else ""),
            "version": f"version {self.version}",
            "absolute": "leading is an address" if self.absolute else "leading is an offset",
        }
        return [
            Explained(name, field.low + field.bits - 1, field.low, field.read(self.word) // field.unit, meanings[name])
            for name, field in self.fields.items()
        ]

    def hints(self) -> list[str]:
        """Return hints for fields that seem to be given in bytes instead of units of 16 bytes.

        This is a guess, based on the usual distance of 8 lines: with a 128-byte swizzle it is 1024 bytes, so the
        field's value is 64.
        """
        usual = 8 * self.width
        return [
            f"{name}: the field is {usual}, which means {usual * UNIT} bytes; if {usual} bytes were meant, it is "
            f"{usual // UNIT}, in units of {UNIT}"
            for name in ("leading", "stride")
            if getattr(self, name) == usual * UNIT
        ]

    @property
    def width(self) -> int:
        """The number of bytes in one line of an atom."""
        return self.swizzle or UNIT

    def memory(self, role: str, *, trans: bool = False) -> Memory:
        """Return the shared-memory layout that this descriptor gives operand a or b."""
        if not (isinstance(role, str) and role in {"a", "b"}):
            raise InvalidOperand(f"expected operand a or b, got {quote(role)}")
        check_flag("trans", trans)
        leading, stride = Digit(None, self.leading), Digit(None, self.stride)
        # `leading` is the distance along K without a swizzle, and along the contiguous axis with one
        along, across = (stride, leading) if trans and not self.swizzle else (leading, stride)
        order: Order = "row" if (role == "a") != trans else "col"
        return Memory(
            order=order,
            swizzle=self.swizzle,
            start=self.start,
            base_offset=self.base_offset,
            unit=self.unit,
            along=(Digit(self.width, 1), along),
            across=(Digit(LINES // (self.unit // UNIT), self.width), across),
        )

    def cute(self, *, trans: bool = False) -> str:
        """Return the canonical layout in CuTe's notation, in 16-byte units: a swizzled map from (M or N, K)."""
        check_flag("trans", trans)
        units, bits = self.width // UNIT, SWIZZLES[self.swizzle]
        leading, stride = self.leading // UNIT, self.stride // UNIT
        if trans:
            lead, step = (stride, leading) if not self.swizzle else (leading, stride)
            layout = f"(({units},n),(8,k)):((1,{lead}),({units},{step}))"
        else:
            layout = f"((8,n),2):(({units},{stride}),{1 if self.swizzle else leading})"
        return f"Swizzle<{bits},4,3> o {layout}" if bits else layout

    def moved(self, by: int) -> Descriptor:
        """Return the descriptor with its start moved by `by` bytes."""
        return replace(self, start=self.start + by if is_whole(by) else by)

    def used(self, operand: StagedOperand, *, trans: bool = False) -> dict[str, bool]:
        """Return, for `leading` and `stride`, True if the operand exceeds one atom in that direction and uses it."""
        inner, outer = lines(operand, trans=trans)
        along, across = ("stride", "leading") if trans and not self.swizzle else ("leading", "stride")
        return {along: inner > self.width, across: outer > LINES}

    def tensor_map(self, operand: StagedOperand, *, trans: bool = False, k: int | None = None) -> TensorMapArguments:
        """Return the box and swizzle of a TMA tensor map that stores a tile as this descriptor reads it.

        The tile has `k` columns of A or rows of B, by default those of one instruction. Raises InvalidOperand, with the
        reason, if no box can do this: TMA stores line after line, and its swizzle pattern starts at aligned addresses.
        """
        return _tensor_map(self, operand, trans=trans, k=k)

    def problems(self, operand: StagedOperand, *, trans: bool = False) -> list[Problem]:
        """Return the descriptor's suspicious fields for an operand; the hardware accepts all of them."""
        return list(_problems(self, operand, trans=trans))


def _in_fields(kind: str) -> int:
    fields = Descriptor.TENSOR_FIELDS if kind == "tcgen05" else Descriptor.FIELDS
    return sum(field.mask for name, field in fields.items() if kind == "wgmma" or name != "swizzle")


def lines(operand: StagedOperand, *, trans: bool) -> tuple[int, int]:
    """Return the number of bytes along the operand's contiguous axis, and the number of lines."""
    if not getattr(operand, "staged", False):
        raise InvalidOperand(f"expected A or B of wgmma, such as wf.get('wgmma...').b; got {quote(operand)}")
    if check_flag("trans", trans) and operand.format.bits not in turnable(operand):
        widths = " and ".join(f"{bits}-bit" for bits in turnable(operand))
        raise InvalidOperand(f"only {widths} types can be MN-major (trans), not {operand.format.name}")
    rows, cols = operand.shape
    k, other = (cols, rows) if operand.role == "a" else (rows, cols)
    inner, outer = (other, k) if trans else (k, other)
    return inner * stored_bits(operand) // 8, outer


def turnable(operand: StagedOperand) -> tuple[int, ...]:
    """Return the widths in bits of types that may be MN-major: 16 for wgmma; for tcgen05 also 8 and 32."""
    return getattr(operand, "transposable_bits", (TURNABLE,))


def stored_bits(operand: StagedOperand) -> int:
    """Return the number of bits per element in shared memory, including the padding of 4- and 6-bit types."""
    return getattr(operand, "stored_bits", operand.format.bits)


def _steps(operand: StagedOperand, k: int | None) -> tuple[int, int]:
    """Return the k of one instruction, and the number of instructions for a tile."""
    mine = operand.shape[1 if operand.role == "a" else 0]
    total = mine if k is None else k
    if not (is_whole(total) and mine <= total <= MAX_K and total % mine == 0):
        raise InvalidOperand(
            f"the k of a tile must be a multiple of {mine}, the k of one instruction, up to {MAX_K}; got {quote(k)}"
        )
    return mine, total // mine


def compact(
    operand: StagedOperand, *, trans: bool = False, swizzle: int | None = None, k: int | None = None, start: int = 0
) -> list[Descriptor]:
    """Return the descriptors of a tile that is stored atom by atom without gaps, one per instruction along k.

    The tile has `k` columns of A or rows of B, by default those of one instruction. `swizzle` defaults to the widest
    one that divides the length of a line.
    """
    inner, outer = lines(operand, trans=trans)
    mine, steps = _steps(operand, k)
    # the line length and the number of lines of the whole tile
    line, count = (inner, outer * steps) if trans else (inner * steps, outer)
    kind = getattr(operand, "descriptor_kind", "wgmma")
    if swizzle is None:
        swizzle = max(width for width in SWIZZLES if line % (width or UNIT) == 0)
    first = Descriptor(start=start, swizzle=swizzle, kind=kind)
    width = first.width
    if line % width:
        raise InvalidOperand(
            f"swizzle {swizzle}: expected a line whose size is a multiple of {width} bytes, got {line} bytes"
        )
    across, along = LINES * width, count * width  # atoms are stored across all lines first, then along the lines
    is_plain = trans and not swizzle
    first = replace(first, leading=across if is_plain else along, stride=along if is_plain else across)
    unswizzled = replace(first.memory(operand.role, trans=trans), swizzle=0, start=0)
    row, col = (0, mine) if operand.role == "a" else (mine, 0)
    offsets = [unswizzled.address(row=row * at, col=col * at, bits=stored_bits(operand)) for at in range(steps)]
    unused: dict[str, Any] = {name: 0 for name, is_used in first.used(operand, trans=trans).items() if not is_used}
    return [replace(first.moved(offset), **unused) for offset in offsets]


def _problems_of_bits(descriptor: Descriptor) -> Iterator[Problem]:
    """Yield suspicious fields of the word itself."""
    if descriptor.kind == "tcgen05" and descriptor.version != TENSOR_VERSION:
        yield Problem("version", f"bits 48:46 are {descriptor.version}; on Blackwell they must be {TENSOR_VERSION}")
    if descriptor.other:
        yield Problem("other", f"bits 0x{descriptor.other:x} belong to no field and should be 0")


def contradictions(descriptor: Descriptor, operand: StagedOperand, *, trans: bool) -> Iterator[Problem]:
    """Yield values that cannot be intended: undefined bits, and distances that break the swizzle pattern."""
    yield from _problems_of_bits(descriptor)
    yield from _problems_of_distances(descriptor, operand, trans=trans)


def _problems_of_distances(descriptor: Descriptor, operand: StagedOperand, *, trans: bool) -> Iterator[Problem]:
    """Yield distances between atoms that are not multiples of the swizzle pattern's size."""
    period = LINES * descriptor.width
    for name, is_used in descriptor.used(operand, trans=trans).items() if descriptor.swizzle else ():
        distance = getattr(descriptor, name)
        if is_used and distance % period:
            yield Problem(
                name,
                f"{name} {distance} is not a multiple of {period}, after which a {descriptor.swizzle}-byte swizzle "
                "repeats: each atom is read with a different part of the pattern",
            )


def _problems(descriptor: Descriptor, operand: StagedOperand, *, trans: bool) -> Iterator[Problem]:
    inner, outer = lines(operand, trans=trans)
    width, label = descriptor.width, f"{'MN' if trans else 'K'}-major"
    bits = stored_bits(operand)
    yield from _problems_of_bits(descriptor)
    used = descriptor.used(operand, trans=trans)
    along, across = used
    inside = {along: f"the {inner} bytes of a line are in one atom", across: f"all {outer} lines are in one atom"}
    ignored = {0, UNIT} if descriptor.swizzle else {0}  # the manual assumes 1 unit, and CuTe stores it
    for name, is_used in used.items():
        if not is_used and getattr(descriptor, name) not in ignored:
            yield Problem(name, f"{name} {getattr(descriptor, name)} is not used: {label}, {inside[name]}")
    period = LINES * width
    if descriptor.swizzle:
        phase = descriptor.start // ROW_OF_PATTERN % (width // UNIT)
        if phase != descriptor.base_offset % (width // UNIT):
            yield Problem(
                "start",
                f"start {descriptor.start} is {phase} rows of 128 bytes into a pattern that repeats every {period} "
                "bytes: the tile is read as if the pattern began before it; "
                f"start at a multiple of {period}, or set base_offset to {phase}",
            )
        yield from _problems_of_distances(descriptor, operand, trans=trans)
        if descriptor.start % width and inner + descriptor.start % width > width:
            yield Problem(
                "start",
                f"start {descriptor.start} is {descriptor.start % width} bytes into a line of {width} bytes: "
                f"{inner} bytes from there run into the next line",
            )
    elif descriptor.base_offset:
        yield Problem("base_offset", f"base_offset {descriptor.base_offset} has no effect without a swizzle")
    rows, cols = operand.shape
    memory = descriptor.memory(operand.role, trans=trans)
    twice = memory.overlap((rows, cols), bits)
    if twice is not None:
        first, second, address = twice
        yield Problem(
            across if outer > LINES else along,
            f"elements overlap: row {first.row}, column {first.col} and row {second.row}, column {second.col} are "
            f"both at byte {address}",
        )
    end = int(memory.addresses((rows, cols), bits).max()) + max(1, bits // 8)
    if end > MAX_SHARED_BYTES:
        yield Problem(
            "start",
            f"the operand reaches byte {end - 1}, beyond the {MAX_SHARED_BYTES} bytes that a block of sm_90 can have",
        )


def _tensor_map(descriptor: Descriptor, operand: StagedOperand, *, trans: bool, k: int | None) -> TensorMapArguments:
    inner, outer = lines(operand, trans=trans)
    _, steps = _steps(operand, k)
    line, count = (inner, outer * steps) if trans else (inner * steps, outer)
    width = descriptor.width
    used = Descriptor.used(descriptor, operand, trans=trans)
    along, across = used
    reasons = []
    if descriptor.start % TMA_ALIGNED:
        reasons.append(f"TMA stores at multiples of {TMA_ALIGNED} bytes, and start is {descriptor.start}")
    if descriptor.swizzle and descriptor.base_offset:
        reasons.append("TMA's swizzle pattern starts at aligned addresses, so base_offset must be 0")
    if used[across] and getattr(descriptor, across) != LINES * width:
        reasons.append(
            f"TMA stores line after line, so {across} must be {LINES * width}, not {getattr(descriptor, across)}"
        )
    if count > MAX_BOX:
        reasons.append(f"a box has at most {MAX_BOX} lines, but the tile has {count}")
    if line % width:
        reasons.append(f"a line of {line} bytes is not a multiple of the {width} bytes of a box")
    if reasons:
        raise InvalidOperand(f"no tensor map can store this tile: {'; '.join(reasons)}")
    size = max(1, operand.format.bits // 8)
    distance = getattr(descriptor, along) if used[along] else count * width
    return TensorMapArguments(
        TMA_TYPES.get(operand.format.name, "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
        (width // size, count),
        (1, 1),
        "CU_TENSOR_MAP_INTERLEAVE_NONE",
        f"CU_TENSOR_MAP_SWIZZLE_{f'{descriptor.swizzle}B' if descriptor.swizzle else 'NONE'}",
        tuple((at * width // size, descriptor.start + at * distance) for at in range(line // width)),
    )
