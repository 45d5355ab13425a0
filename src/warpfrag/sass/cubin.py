"""Read cubins: the functions of a GPU program with their code, parameters, constants, sizes and source lines.

Addresses are not assigned yet. Words that depend on addresses are listed as relocations, and `CubinSection.relocated`
fills them in once the caller has assigned an address to each symbol.
"""

import hashlib
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from mmap import mmap
from typing import NamedTuple

from warpfrag.errors import FileError, InvalidOperand, quote
from warpfrag.sass.elf_file import CUDA_MACHINE, RELOCATABLE, SHT_NOBITS, ElfFile, ElfSection, ElfSymbol
from warpfrag.sass.line_table import LineTable, read_line_tables

STT_FUNCTION = 2
STO_ENTRY = 0x10  # a flag in a symbol's `other` field
NEW_ABI = 8
OLD_ACCELERATED, NEW_ACCELERATED = 0x800, 0x8  # flags in e_flags that mark targets with a suffix, such as sm_90a
COMPAT_ACCELERATED = 9  # an attribute in .nv.compat, used since CUDA 13
# Attributes in .nv.info and .nv.info.KERNEL.
PARAM_CBANK, KPARAM_INFO, KPARAM_INFO_V2 = 0x0A, 0x17, 0x45
MAX_THREADS, REQNTID, CTA_PER_CLUSTER = 0x05, 0x10, 0x3D
FRAME_SIZE, MIN_STACK_SIZE, REGCOUNT = 0x11, 0x12, 0x2F
NO_VALUE, BYTE_VALUE, WORD_VALUE, SIZED_VALUE = 1, 2, 3, 4  # attribute formats
UNKNOWN = 0xFFFFFFFF
PRODUCER = re.compile(rb"V([0-9]+(?:\.[0-9]+)+)\0")


class CubinSymbol(NamedTuple):
    """A symbol: its section, offset and size; `section` is "" if a different file defines the symbol."""

    name: str
    section: str
    offset: int
    size: int
    is_function: bool


class Relocation(NamedTuple):
    """A word that depends on a symbol's address: `symbol` + `addend`, stored at byte `offset` of the section.

    `addend` is None if it is stored in the word itself.
    """

    offset: int
    type: int
    symbol: CubinSymbol
    addend: int | None


class BitField(NamedTuple):
    """A field of a relocated word: `width` bits of the value, starting at bit `low`, are written at bit `position`."""

    low: int
    position: int
    width: int


FIELDS: dict[int, tuple[BitField, ...]] = {
    0x01: (BitField(0, 0, 32),),  # R_CUDA_32
    0x02: (BitField(0, 0, 64),),  # R_CUDA_64
    0x03: (BitField(0, 0, 32),),  # R_CUDA_G32
    0x04: (BitField(0, 0, 64),),  # R_CUDA_G64
    0x37: (BitField(0, 32, 32),),  # R_CUDA_ABS32_32
    0x38: (BitField(0, 32, 32),),  # R_CUDA_ABS32_LO_32
    0x39: (BitField(32, 32, 32),),  # R_CUDA_ABS32_HI_32
    0x3A: (BitField(2, 34, 47),),  # R_CUDA_ABS47_34
    0x4B: (BitField(2, 16, 8), BitField(10, 34, 47)),  # R_CUDA_ABS55_16_34
}
"""The bit fields that each relocation type writes; words are little-endian."""
DATA_TYPES = frozenset({0x01, 0x02, 0x03, 0x04})
MAX_SECTION_BYTES = 1 << 32


@dataclass(frozen=True)
class CubinSection:
    """The bytes and relocations of a section; `data` is empty for a section that reserves `size` zero bytes."""

    name: str
    data: bytes
    size: int
    alignment: int
    relocations: tuple[Relocation, ...] = ()

    def relocated(self, address_of: Callable[[CubinSymbol], int]) -> bytes:
        """Return the section's bytes with all relocations applied; `address_of` returns the address of a symbol."""
        data = bytearray(self.data or bytes(self.size))
        for each in self.relocations:
            fields = FIELDS.get(each.type)
            if fields is None:
                raise FileError(f"section {self.name}: relocation type {each.type:#x} at {each.offset:#x} is unknown")
            end = each.offset + (sum(field.width for field in fields) // 8 if each.type in DATA_TYPES else 16)
            if end > len(data):
                raise FileError(f"section {self.name}: the relocation at {each.offset:#x} is outside the section")
            word = int.from_bytes(data[each.offset : end], "little")
            stored = word if each.addend is None and each.type in DATA_TYPES else 0
            value = address_of(each.symbol) + (stored if each.addend is None else each.addend)
            for low, position, width in fields:
                mask = (1 << width) - 1
                word = word & ~(mask << position) | (value >> low & mask) << position
            data[each.offset : end] = word.to_bytes(end - each.offset, "little")
        return bytes(data)


class CubinParameter(NamedTuple):
    """A kernel parameter: its number, its offset from the first parameter, and its size in bytes."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True)
class SassFunction:
    """A kernel, or a function that kernels call, with its properties from the cubin.

    `constants` maps bank numbers to constant banks, including those of the whole module; bank 0 starts with words that
    the driver writes, followed by the parameters at `parameter_base`. `shared_bytes` includes the bytes that the
    architecture reserves (1 KiB on sm_90). `stack_bytes` is the local memory of a thread, or None if recursion makes it
    unknown. `lines` gives the source lines, and `ptx_lines` the PTX lines.
    """

    name: str
    arch: str
    code: CubinSection
    is_kernel: bool
    parameters: tuple[CubinParameter, ...]
    parameter_base: int
    parameter_bytes: int
    constants: Mapping[int, CubinSection]
    shared_bytes: int
    frame_bytes: int
    stack_bytes: int | None
    registers: int
    cluster: tuple[int, int, int] | None
    required_threads: tuple[int, int, int] | None
    max_threads: tuple[int, int, int] | None
    lines: LineTable
    ptx_lines: LineTable


class Cubin:
    """A GPU program for one architecture; `cubin["name"]` returns one of its functions.

    `arch` is for example sm_90a. `producer` is the version of the ptxas that wrote the cubin, or "".
    """

    def __init__(self, data: bytes | mmap, name: str = "the cubin") -> None:
        """Read the tables of a cubin; functions are read on demand."""
        self._elf = elf = ElfFile(data, name)
        if elf.machine != CUDA_MACHINE:
            raise elf.error(f"expected a cubin, got an ELF file for machine {elf.machine}")
        if elf.type == RELOCATABLE:
            raise elf.error("expected a linked cubin, got a relocatable object (nvcc -rdc=true); use nvlink first")
        self.data = bytes(data)
        self.arch = self._arch()
        self.producer = self._producer()
        code = [section for section in elf.sections if section.name.startswith(".text.")]
        self._code = {section.name.removeprefix(".text."): section for section in code}

    def _arch(self) -> str:
        flags = self._elf.flags
        if self._elf.abi_version < NEW_ABI:
            return f"sm_{flags & 0xFF}{'a' if flags & OLD_ACCELERATED else ''}"
        is_accelerated = bool(flags & NEW_ACCELERATED)
        if section := self._elf.by_name.get(".nv.compat"):
            is_accelerated |= any(
                attribute == COMPAT_ACCELERATED and value[:1] == b"\x01"
                for attribute, value in self._attributes(section)
            )
        return f"sm_{flags >> 8 & 0xFF}{'a' if is_accelerated else ''}"

    def _producer(self) -> str:
        section = self._elf.by_name.get(".note.nv.tkinfo")
        version = PRODUCER.search(self._elf.contents(section)) if section else None
        return version[1].decode() if version else ""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the cubin's bytes."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The names of all kernels."""
        return tuple(name for name in self._code if name in self._entries)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all functions with code, including kernels."""
        return tuple(self._code)

    @cached_property
    def _entries(self) -> set[str]:
        return {each.name for each in self._elf.symbols if each.type == STT_FUNCTION and each.other & STO_ENTRY}

    @cached_property
    def symbols(self) -> dict[str, CubinSymbol]:
        """All named symbols: global variables, constants, functions and sections."""
        return {each.name: self._symbol(each) for each in self._elf.symbols if each.name}

    @cached_property
    def global_sections(self) -> tuple[CubinSection, ...]:
        """The sections that contain global variables; `symbols` gives each variable's offset."""
        return tuple(self._section(each) for each in self._elf.sections if each.name.startswith(".nv.global"))

    def section(self, name: str) -> CubinSection | None:
        """Return the section with this name, or None."""
        found = self._elf.by_name.get(name)
        return self._section(found) if found is not None else None

    def _section(self, section: ElfSection) -> CubinSection:
        data = self._elf.contents(section)
        if section.size > MAX_SECTION_BYTES:
            raise self._elf.error(
                f"section {quote(section.name)} has {section.size} bytes, but at most {MAX_SECTION_BYTES} are allowed"
            )
        relocations = tuple(
            Relocation(each.offset, each.type, self._symbol(each.symbol), each.addend)
            for each in self._elf.relocations(section)
        )
        return CubinSection(section.name, data, section.size, section.alignment or 1, relocations)

    def _attributes(self, section: ElfSection | None) -> list[tuple[int, bytes]]:
        """Return the attributes of an information section as (attribute, value) pairs."""
        if section is None:
            return []
        data, attributes, offset = self._elf.contents(section), [], 0
        while offset < len(data):
            size = 0
            if len(data) - offset >= 4:
                layout, attribute, size = struct.unpack_from("<BBH", data, offset)
            if len(data) - offset < 4 or layout not in {NO_VALUE, BYTE_VALUE, WORD_VALUE, SIZED_VALUE}:
                raise self._elf.error(f"section {quote(section.name)} has no valid attribute at byte {offset:#x}")
            end = offset + 4 + (size if layout == SIZED_VALUE else 0)
            if end > len(data):
                raise self._elf.error(f"section {quote(section.name)}: the attribute at byte {offset:#x} is truncated")
            attributes.append((attribute, data[offset + 4 : end] if layout == SIZED_VALUE else data[offset + 2 : end]))
            offset = end
        return attributes

    @cached_property
    def _module_attributes(self) -> dict[tuple[int, str], int]:
        """Numbers that .nv.info records per function, by attribute and function name."""
        found = {}
        for attribute, value in self._attributes(self._elf.by_name.get(".nv.info")):
            if attribute in {REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE} and len(value) == 8:
                index, number = struct.unpack("<II", value)
                if index >= len(self._elf.symbols):
                    raise self._elf.error(f"section '.nv.info' names symbol {index}, which does not exist")
                found[attribute, self._elf.symbols[index].name] = number
        return found

    def _symbol(self, symbol: ElfSymbol) -> CubinSymbol:
        sections = self._elf.sections
        section = sections[symbol.section].name if symbol.section < len(sections) else ""
        return CubinSymbol(symbol.name, section, symbol.value, symbol.size, symbol.type == STT_FUNCTION)

    @cached_property
    def _lines(self) -> dict[str, LineTable]:
        section = self._elf.by_name.get(".debug_line")
        return read_line_tables(self._elf, section) if section else {}

    @cached_property
    def _ptx_lines(self) -> dict[str, LineTable]:
        section = self._elf.by_name.get(".nv_debug_line_sass")
        return read_line_tables(self._elf, section) if section else {}

    def __getitem__(self, name: str) -> SassFunction:
        """Return the function with this name; raise InvalidOperand if there is none."""
        if name not in self._code:
            known = ", ".join(self.kernels[:5]) + (", ..." if len(self.kernels) > 5 else "")
            raise InvalidOperand(f"{self._elf.name} has no function {quote(name)}; its kernels are: {known or 'none'}")
        code = self._section(self._code[name])
        parameters: list[CubinParameter] = []
        shapes: dict[int, tuple[int, int, int]] = {}
        base = size = 0
        for attribute, value in self._attributes(self._elf.by_name.get(f".nv.info.{name}")):
            if attribute in {KPARAM_INFO, KPARAM_INFO_V2} and len(value) == 12:
                parameters.append(_parameter(attribute, value))
            elif attribute == PARAM_CBANK and len(value) == 8:
                _, base, size = struct.unpack("<IHH", value)
            elif attribute in {REQNTID, MAX_THREADS, CTA_PER_CLUSTER} and len(value) == 12:
                shapes[attribute] = struct.unpack("<III", value)
        frame, stack, registers = (
            self._module_attributes.get((each, name), 0) for each in (FRAME_SIZE, MIN_STACK_SIZE, REGCOUNT)
        )
        shared = self._elf.by_name.get(f".nv.shared.{name}")
        return SassFunction(
            name, self.arch, code, name in self._entries, tuple(sorted(parameters)), base, size, self._constants(name),
            shared.size if shared else 0, frame, None if stack == UNKNOWN else stack, registers,
            shapes.get(CTA_PER_CLUSTER), shapes.get(REQNTID), shapes.get(MAX_THREADS),
            self._lines.get(code.name, LineTable([])), self._ptx_lines.get(code.name, LineTable([])),
        )  # fmt: skip

    def _constants(self, name: str) -> dict[int, CubinSection]:
        """Return a function's constant banks, including the banks of the whole module."""
        sections = self._elf.by_name
        found = {}
        for bank in range(32):
            section = sections.get(f".nv.constant{bank}.{name}") or sections.get(f".nv.constant{bank}")
            if section is not None and section.type != SHT_NOBITS:
                found[bank] = self._section(section)
        return found


def _parameter(attribute: int, value: bytes) -> CubinParameter:
    """Decode a parameter attribute; the size has 14 bits in version 1, and 16 bits in version 2."""
    _, ordinal, offset, flags = struct.unpack("<IHHI", value)
    return CubinParameter(ordinal, offset, flags & 0xFFFF if attribute == KPARAM_INFO_V2 else flags >> 18)
