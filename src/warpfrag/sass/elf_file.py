"""Read 64-bit little-endian ELF files: sections, symbols, relocations and the soname.

Every offset and index is checked; a truncated or corrupt file raises a FileError that names the section.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from mmap import mmap
from typing import NamedTuple

from warpfrag.errors import FileError, quote

ELF_MAGIC = b"\x7fELF"
CUDA_MACHINE = 190
RELOCATABLE = 1  # the e_type of a relocatable object
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
REL, RELA, DYNAMIC = struct.Struct("<QQ"), struct.Struct("<QQq"), struct.Struct("<QQ")
SHT_SYMTAB, SHT_RELA, SHT_DYNAMIC, SHT_NOBITS, SHT_REL = 2, 4, 6, 8, 9
SHT_SYMTAB_SHNDX = 18
STT_SECTION = 3
DT_SONAME = 14
EXTENDED_INDEX = 0xFFFF
MAX_NOBITS = 1 << 40
"""The largest size that a section without contents may declare: more than any GPU memory."""


class ElfSection(NamedTuple):
    """An entry of the section table, with its number and name."""

    number: int
    name: str
    type: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class ElfSymbol(NamedTuple):
    """A symbol: `value` is its offset in the section numbered `section`."""

    name: str
    type: int
    other: int
    section: int
    value: int
    size: int


class ElfRelocation(NamedTuple):
    """A relocation at byte `offset` of a section; `addend` is None if the section's bytes contain it."""

    offset: int
    type: int
    symbol: ElfSymbol
    addend: int | None


class ElfFile:
    """An ELF file in memory; messages call it `name`."""

    def __init__(self, data: bytes | mmap, name: str) -> None:
        """Read the header and the section table."""
        self.data = data
        self.name = name
        if len(data) < HEADER.size or data[:4] != ELF_MAGIC:
            raise self.error("the ELF header is missing or truncated")
        fields = HEADER.unpack_from(data)
        identity, self.type, self.machine = fields[:3]
        self.abi_version, self.flags = identity[8], fields[7]
        if identity[4:6] != b"\x02\x01":
            raise self.error("expected a 64-bit little-endian ELF file")
        self._table, entry_size, count, names = fields[6], *fields[11:14]
        if self._table and entry_size != SECTION.size:
            raise self.error(f"an entry of the section table has {entry_size} bytes, expected {SECTION.size}")
        if self._table and (not count or names == EXTENDED_INDEX):  # the file has more than 65,280 sections
            first = SECTION.unpack(self._bytes(self._table, SECTION.size, "the section table"))
            count, names = count or first[5], first[6] if names == EXTENDED_INDEX else names
        self.sections = self._read_sections(count if self._table else 0, names)

    def error(self, reason: str) -> FileError:
        """Return the error to raise for a file that cannot be read."""
        return FileError(f"cannot read {self.name}: {reason}")

    def _bytes(self, offset: int, size: int, place: str) -> bytes:
        if offset + size > len(self.data):
            raise self.error(f"{place} ends at byte {offset + size}, but the file has {len(self.data)} bytes")
        return self.data[offset : offset + size]

    def _read_sections(self, count: int, names: int) -> list[ElfSection]:
        table = self._bytes(self._table, count * SECTION.size, "the section table")
        rows = list(SECTION.iter_unpack(table))
        if not rows:
            return []
        if names >= len(rows):
            raise self.error(f"the section names are in section {names}, but there are {len(rows)} sections")
        texts = self._bytes(rows[names][4], rows[names][5], "the table of section names")
        return [
            ElfSection(number, self._text(texts, row[0], f"name of section {number}"), row[1], *row[4:9])
            for number, row in enumerate(rows)
        ]

    def _text(self, texts: bytes, offset: int, place: str) -> str:
        end = texts.find(b"\0", offset)
        if end < 0:
            raise self.error(f"the {place} is outside the string table")
        return texts[offset:end].decode("utf-8", "backslashreplace")

    @cached_property
    def by_name(self) -> dict[str, ElfSection]:
        """Sections by name; if several have the same name, the first one."""
        return {section.name: section for section in reversed(self.sections)}

    def extent(self, section: ElfSection) -> tuple[int, int]:
        """Return the start and end offsets of a section in the file."""
        return section.offset, section.offset + len(self.contents(section))

    def contents(self, section: ElfSection) -> bytes:
        """Return a section's bytes, or no bytes for a section without contents."""
        if section.type == SHT_NOBITS:
            if section.size > MAX_NOBITS:
                raise self.error(f"section {quote(section.name)} reserves {section.size} bytes, which is too many")
            return b""
        return self._bytes(section.offset, section.size, f"section {quote(section.name)}")

    def _records(self, section: ElfSection, record: struct.Struct) -> Iterator[tuple[int, ...]]:
        data = self.contents(section)
        if len(data) % record.size:
            raise self.error(
                f"section {quote(section.name)} has {len(data)} bytes, expected a multiple of {record.size}"
            )
        return record.iter_unpack(data)

    def linked(self, section: ElfSection) -> ElfSection:
        """Return the section that another section's `link` field refers to."""
        if section.link >= len(self.sections):
            raise self.error(f"section {quote(section.name)} links to section {section.link}, which does not exist")
        return self.sections[section.link]

    @cached_property
    def symbols(self) -> list[ElfSymbol]:
        """All symbols, in file order."""
        table = next((section for section in self.sections if section.type == SHT_SYMTAB), None)
        if table is None:
            return []
        texts = self.contents(self.linked(table))
        extended = next((section for section in self.sections if section.type == SHT_SYMTAB_SHNDX), None)
        numbers = [row[0] for row in self._records(extended, struct.Struct("<I"))] if extended else []
        symbols = []
        for index, (name, info, other, section, value, size) in enumerate(self._records(table, SYMBOL)):
            number = numbers[index] if section == EXTENDED_INDEX and index < len(numbers) else section
            text = self._text(texts, name, f"name of symbol {index}")
            if not text and info & 15 == STT_SECTION and number < len(self.sections):
                text = self.sections[number].name
            symbols.append(ElfSymbol(text, info & 15, other, number, value, size))
        return symbols

    @cached_property
    def _relocation_sections(self) -> dict[int, list[ElfSection]]:
        found: dict[int, list[ElfSection]] = {}
        for section in self.sections:
            if section.type in {SHT_REL, SHT_RELA} and section.size:
                found.setdefault(section.info, []).append(section)
        return found

    def relocations(self, target: ElfSection) -> Iterator[ElfRelocation]:
        """Yield the relocations of a section."""
        for section in self._relocation_sections.get(target.number, ()):
            has_addend = section.type == SHT_RELA
            for offset, info, *addend in self._records(section, RELA if has_addend else REL):
                if info >> 32 >= len(self.symbols):
                    raise self.error(f"section {quote(section.name)} names symbol {info >> 32}, which does not exist")
                symbol = self.symbols[info >> 32]
                yield ElfRelocation(offset, info & 0xFFFFFFFF, symbol, addend[0] if has_addend else None)

    @cached_property
    def soname(self) -> str:
        """The DT_SONAME of a shared library, or an empty string."""
        for section in self.sections:
            if section.type == SHT_DYNAMIC:
                for tag, value in self._records(section, DYNAMIC):
                    if tag == DT_SONAME:
                        return self._text(self.contents(self.linked(section)), value, "name of the library")
        return ""
