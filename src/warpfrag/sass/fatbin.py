"""Read fatbins and the files that contain them: find the image for each architecture and decompress it.

An image is a cubin or PTX text. NVIDIA's closed-source libraries are rejected: their licence forbids disassembly.
"""

import io
import os
import re
import struct
from collections.abc import Generator, Iterator
from importlib import import_module
from mmap import ACCESS_READ, mmap
from os import PathLike
from pathlib import Path, PurePath
from typing import NamedTuple

from warpfrag.errors import FileError, InvalidOperand, MissingExtra, install_command, quote
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.elf_file import CUDA_MACHINE, ELF_MAGIC, ElfFile

FATBIN_MAGIC = b"\x50\xed\x55\xba"
HEADER = struct.Struct("<IHHQ")  # magic, version, header size, and size of the entries
# see _read_entry; an entry with several cubins has a table whose rows have the same fields, with a cubin's offset
# instead of the header size
ENTRY = struct.Struct("<HHIQIIIIIIQQQ")
MEMBERS = struct.Struct("<II")  # the head of a cubin table: the number of cubins and the size of the table
PTX, ELF, SEVERAL_ELF = 1, 2, 0x100
LZ4, ZSTD = 0x2000, 0x8000  # entry flags for compression
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAX_IMAGE = 1 << 31
TABLE = Path(__file__).parents[1] / "tables" / "closed_libraries.inc"  # also read by device/record.c
CLOSED_LIBRARIES = tuple(re.findall('"(.+?)"', TABLE.read_text("utf-8")))
"""The beginnings of the file names of NVIDIA's closed-source libraries."""


class FileRange(NamedTuple):
    """Bytes `start` to `end` of a file, with a name for messages."""

    data: bytes | mmap
    start: int
    end: int
    name: str

    def read(self) -> bytes:
        """Return the bytes."""
        return self.data[self.start : self.end]

    def error(self, reason: str) -> FileError:
        """Return the error to raise if the bytes cannot be read."""
        return FileError(f"cannot read {self.name}: {reason}")


class CodeImage(NamedTuple):
    """An image in a file: `category` is cubin or ptx, and `arch` an architecture without suffix, such as sm_90.

    The image is bytes `start` to `start + size` of the range `stored`, after decompression.
    """

    category: str
    arch: str
    compression: str
    stored: FileRange
    start: int
    size: int

    def read(self) -> bytes:
        """Return the decompressed bytes."""
        end = self.start + self.size
        data = decompress(self.stored.read(), self.compression, end, self.stored.name)
        return data[self.start : end]


def read_cubins(source: str | PathLike[str] | bytes) -> list[Cubin]:
    """Return all cubins in a cubin, a fatbin, or a binary with embedded fatbins, given as a path or bytes.

    Raise FileError for a damaged file, naming the section or byte, and for NVIDIA's closed-source libraries.
    """
    return [Cubin(image.read(), image.stored.name) for image in read_images(source) if image.category == "cubin"]


def read_images(source: str | PathLike[str] | bytes) -> list[CodeImage]:
    """Return all images in a file or in bytes, including PTX, without decompressing them."""
    data, name = _open(source)
    if data[:4] == FATBIN_MAGIC:
        return list(_read_fatbins(FileRange(data, 0, len(data), name)))
    if data[:4] != ELF_MAGIC:
        raise FileError(f"cannot read {name}: expected a cubin, a fatbin or an ELF file, got {quote(bytes(data[:8]))}")
    elf = ElfFile(data, name)
    if elf.machine == CUDA_MACHINE:
        cubin = Cubin(data, name)
        stored = FileRange(data, 0, len(data), name)
        return [CodeImage("cubin", cubin.arch.rstrip("a"), "", stored, 0, len(data))]
    check_licence(elf, source)
    found = [
        image
        for section in elf.sections
        if section.name in SECTIONS
        for image in _read_fatbins(FileRange(data, *elf.extent(section), f"{name}, section {section.name}"))
    ]
    if not found:
        raise FileError(f"cannot read {name}: the ELF file has no GPU code (section .nv_fatbin)")
    return found


def check_licence(elf: ElfFile, source: str | PathLike[str] | bytes) -> None:
    """Raise FileError for an NVIDIA closed-source library, recognised by its soname or file name."""
    names = [elf.soname] if isinstance(source, bytes) else [elf.soname, PurePath(source).name]
    for name in names:
        if name.startswith(CLOSED_LIBRARIES):
            raise elf.error(
                f"it is NVIDIA's closed-source library {name}, whose licence forbids disassembly, so its machine code "
                "is not read; wf.predict models what the libraries compute"
            )


def _open(source: str | PathLike[str] | bytes) -> tuple[bytes | mmap, str]:
    """Return the bytes and a name for messages; large files are memory-mapped."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), "the given bytes"
    if not isinstance(source, str | os.PathLike):
        raise InvalidOperand(f"expected a path or bytes, got {quote(source)}")
    name = quote(str(source))
    try:
        with open(source, "rb") as file:  # noqa: PTH123 (as in warpfrag.files)
            return mmap(file.fileno(), 0, access=ACCESS_READ), name
    except (OSError, ValueError) as error:  # ValueError: an empty file, or a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FileError(f"cannot read {name}: {reason}") from None


def _read_fatbins(place: FileRange) -> Iterator[CodeImage]:
    """Yield the images in all fatbins of a range, skipping padding."""
    data, start, end, _ = place
    while (start := data.find(FATBIN_MAGIC, start, end)) >= 0:
        if end - start < HEADER.size:
            raise place.error(f"the fatbin at byte {start:#x} is truncated")
        _, _, header_size, size = HEADER.unpack_from(data, start)
        entry, last = start + header_size, start + header_size + size
        if header_size < HEADER.size or last > end:
            raise place.error(f"the fatbin at byte {start:#x} ends at byte {last:#x}, but the data ends at {end:#x}")
        while entry < last:
            entry = yield from _read_entry(place._replace(start=entry, end=last))
        start = last


def _read_entry(place: FileRange) -> Generator[CodeImage, None, int]:
    """Yield the images of the entry at the start of a range; the generator returns the entry's end."""
    data, start, end, name = place
    place = place._replace(name=f"{name}, the fatbin entry at byte {start:#x}")
    if end - start < ENTRY.size:
        raise place.error("the entry is truncated")
    category, _, header_size, size, compressed, _, _, arch, _, _, flags, _, full = ENTRY.unpack_from(data, start)
    first: int = start + header_size
    last: int = first + size
    if header_size < ENTRY.size or last > end:
        raise place.error(f"the entry ends at byte {last:#x}, but the fatbin ends at byte {end:#x}")
    compression = "lz4" if flags & LZ4 else "zstd" if flags & ZSTD else ""
    if not compression:
        compressed = full = size
    if compressed > size or full > MAX_IMAGE:
        raise place.error(f"the sizes are invalid: {compressed} of {size} bytes are compressed data for {full} bytes")
    stored = place._replace(start=first, end=first + compressed)
    if category in {PTX, ELF}:
        yield CodeImage("ptx" if category == PTX else "cubin", f"sm_{arch}", compression, stored, 0, full)
    elif category == SEVERAL_ELF:
        for member_arch, offset, length in _members(place._replace(start=start + ENTRY.size, end=first)):
            if offset + length > full:
                raise place.error(f"the cubin for sm_{member_arch} is outside the entry")
            yield CodeImage("cubin", f"sm_{member_arch}", compression, stored, offset, length)
    return last


def _members(place: FileRange) -> Iterator[tuple[int, int, int]]:
    """Yield the architecture, offset and size of each cubin in an entry."""
    table = place.read()
    count = MEMBERS.unpack_from(table)[0] if len(table) >= MEMBERS.size else 0
    if not count or MEMBERS.size + count * ENTRY.size > len(table):
        raise place.error("the cubin table is truncated")
    for index in range(count):
        _, _, offset, size, _, _, _, arch, *_ = ENTRY.unpack_from(table, MEMBERS.size + index * ENTRY.size)
        yield arch, offset, size


def decompress(data: bytes, compression: str, size: int, name: str) -> bytes:
    """Return `size` decompressed bytes; raise FileError if the data is damaged or has a different size."""
    if not compression:
        return data
    try:
        result = _decompress_lz4(data, size) if compression == "lz4" else _decompress_zstd(data, size)
    except (ValueError, EOFError) as error:
        raise FileError(f"cannot read {name}: the {compression} data is damaged: {error}") from None
    if len(result) < size:
        raise FileError(f"cannot read {name}: expected {size} decompressed bytes, got {len(result)}")
    return result


def _decompress_lz4(data: bytes, size: int) -> bytes:
    """Decompress an LZ4 block, up to `size` bytes."""
    out, position = bytearray(), 0

    def extended(length: int) -> int:
        nonlocal position
        byte = 255 if length == 15 else 0
        while byte == 255:
            byte = data[position]
            length, position = length + byte, position + 1
        return length

    try:
        while position < len(data) and len(out) < size:
            token, position = data[position], position + 1
            literals = extended(token >> 4)
            out += data[position : position + literals]
            position += literals
            if position >= len(data):
                break
            distance, position = data[position] | data[position + 1] << 8, position + 2
            length = extended(token & 15) + 4
            if not 0 < distance <= len(out) or len(out) + length > size:
                raise ValueError(f"a copy of {length} bytes starts {distance} bytes before byte {len(out)}")
            pattern = out[len(out) - distance : len(out) - distance + length]
            out += (pattern * (length // distance + 1))[:length]
    except IndexError:
        raise ValueError(f"the data ends after {len(data)} bytes, in the middle of a sequence") from None
    return bytes(out[:size])


def _decompress_zstd(data: bytes, size: int) -> bytes:
    """Decompress up to `size` bytes with the standard library (Python 3.14) or the package zstandard."""
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        zstd = None
    try:
        if zstd:
            return bytes(zstd.ZstdDecompressor().decompress(data, size))
        zstandard = import_module("zstandard")
        return bytes(zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(size))
    except ImportError:
        raise MissingExtra(
            "this file is compressed with zstd, which needs Python 3.14 or the package zstandard: "
            + install_command("sass")
        ) from None
    except Exception as error:
        if type(error).__name__ == "ZstdError":
            raise ValueError(str(error)) from None
        raise
