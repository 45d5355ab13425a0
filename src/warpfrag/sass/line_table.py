"""Read DWARF line programs (.debug_line and .nv_debug_line_sass): the source line of each instruction."""

from bisect import bisect_right
from collections.abc import Callable

from warpfrag.machine.ir.program import SourceLine
from warpfrag.sass.elf_file import ElfFile, ElfSection

VERSIONS = range(2, 6)
PATH, DIRECTORY = 1, 2  # content types of a version 5 entry
STRING, LINE_STRING, UDATA, BLOCK = 0x08, 0x1F, 0x0F, 0x09  # DWARF forms of these entries
SIZES = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}
SET_ADDRESS, END_SEQUENCE, DEFINE_FILE, INLINED_CALL = 2, 1, 3, 0x90  # extended opcodes; the last is NVIDIA's
COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
MAX_LEB128_BITS = 70
Row = tuple[int, SourceLine | None]


class LineTable:
    """The source lines of one function by code address."""

    def __init__(self, rows: list[Row]) -> None:
        """Create a table from (address, line) rows; a row whose line is None ends a sequence."""
        self._rows = sorted(rows, key=lambda row: row[0])  # a stable sort, so that the last row of an address is used

    def at(self, address: int) -> SourceLine | None:
        """Return the source line of the instruction at an address, or None."""
        index = bisect_right(self._rows, address, key=lambda row: row[0])
        return self._rows[index - 1][1] if index else None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)


class _Reader:
    """A cursor over a section's bytes; reading past `end` raises FileError."""

    def __init__(
        self, data: bytes, position: int, end: int, error: Callable[[str], Exception], strings: bytes = b""
    ) -> None:
        self.data, self.position, self.end, self.error, self.strings = data, position, end, error, strings

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > self.end:
            raise self.error(f"a line program ends at byte {self.end}, expected {count} bytes at {start}")
        return self.data[start : self.position]

    def integer(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def leb128(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.integer(1)
            value |= (byte & 127) << shift
            shift += 7
            if shift > MAX_LEB128_BITS:
                raise self.error(f"a number that ends at byte {self.position} is too long")
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def text(self) -> str:
        end = self.data.find(b"\0", self.position, self.end)
        if end < 0:
            raise self.error(f"a file name at byte {self.position} is not terminated")
        text = self.data[self.position : end].decode("utf-8", "backslashreplace")
        self.position = end + 1
        return text

    def form(self, form: int) -> str | int:
        """Read one value of a version 5 directory or file entry, which is encoded in a DWARF form."""
        if form == STRING:
            return self.text()
        if form == LINE_STRING:
            at = self.integer(4)
            return self.strings[at : self.strings.find(b"\0", at)].decode("utf-8", "backslashreplace")
        if form in SIZES:
            return int.from_bytes(self.take(SIZES[form]), "little")
        if form == BLOCK:
            return int.from_bytes(self.take(self.leb128()), "little")
        if form != UDATA:
            raise self.error(f"a file entry before byte {self.position} has the form {form:#x}, which is unknown")
        return self.leb128()

    def entries(self) -> list[tuple[str, int]]:
        """Read a version 5 entry table; return the path and folder number of each entry."""
        forms = [(self.leb128(), self.leb128()) for _ in range(self.integer(1))]
        found = []
        for _ in range(self.leb128()):
            values = {content: self.form(form) for content, form in forms}
            folder = values.get(DIRECTORY, 0)
            found.append((str(values.get(PATH, "")), folder if isinstance(folder, int) else 0))
            if not forms:
                raise self.error(f"the entries of a file table before byte {self.position} have no contents")
        return found


class _LineProgram:
    """The state machine that runs one line program, and the rows that it produced for each code section."""

    def __init__(self, reader: _Reader, starts: dict[int, tuple[str, int]], rows: dict[str, list[Row]]) -> None:
        """Read the header; `starts` maps the offset of each address operand to a code section and an address in it."""
        self.reader, self.starts, self.rows = reader, starts, rows
        self.table: list[Row] = []
        self.address, self.file, self.line = 0, 1, 1
        self.caller: SourceLine | None = None
        version = reader.integer(2)
        if version not in VERSIONS:
            reader.position = reader.end  # skip the program
            return
        if version >= 5:
            reader.take(2)  # skip the address and segment sizes
        program = reader.integer(4) + reader.position
        self.unit = reader.integer(1)
        reader.take(1 + (version >= 4))  # skip is_stmt and the operations per instruction
        base, self.span, self.first_special = reader.take(3)
        self.base = base - 256 * (base > 127)
        self.operand_counts = [0, *reader.take(max(self.first_special - 1, 0))]
        folders, self.files = [""], [""]  # file number 0 has no name
        if version >= 5:
            folders = [path for path, _ in reader.entries()]
            self.files = [_joined(path, folder, folders) for path, folder in reader.entries()]
        else:
            while text := reader.text():
                folders.append(text)
            while text := reader.text():
                self.add_file(text, folders)
        reader.position = program
        if not self.span:
            raise reader.error("the line range of a line program is 0")

    def add_file(self, text: str, folders: list[str]) -> None:
        """Read the rest of a file entry, which follows its name."""
        folder, _time, _length = (self.reader.leb128() for _ in range(3))
        self.files.append(_joined(text, folder, folders))

    def add_row(self) -> None:
        """Append a row for the current address and line."""
        file = self.files[self.file] if self.file < len(self.files) else ""
        self.table.append((self.address, SourceLine(file, self.line, self.caller)))

    def run(self) -> None:
        """Run the program to its end."""
        while self.reader.position < self.reader.end:
            opcode = self.reader.integer(1)
            if opcode >= self.first_special:
                advance, line = divmod(opcode - self.first_special, self.span)
                self.address += advance * self.unit
                self.line += self.base + line
                self.add_row()
            elif opcode == 0:
                self.run_extended()
            else:
                self.run_standard(opcode)

    def run_extended(self) -> None:
        """Run an extended opcode; unknown opcodes are skipped."""
        reader = self.reader
        size = reader.leb128()
        following = reader.position + size
        opcode = reader.integer(1) if size else 0
        if opcode == SET_ADDRESS:
            name, self.address = self.starts.get(reader.position, ("", 0))
            self.table = self.rows.setdefault(name, [])
        elif opcode == END_SEQUENCE:
            self.table.append((self.address, None))
            self.address, self.file, self.line, self.caller = 0, 1, 1, None
        elif opcode == INLINED_CALL:
            row = reader.leb128()  # the row number of the call site, or 0
            self.caller = self.table[row - 1][1] if 0 < row <= len(self.table) else None
        elif opcode == DEFINE_FILE:
            self.add_file(reader.text(), [""])
        reader.take(following - reader.position)

    def run_standard(self, opcode: int) -> None:
        """Run a standard opcode; opcodes that do not change the line are skipped."""
        reader = self.reader
        if opcode == COPY:
            self.add_row()
        elif opcode == ADVANCE_PC:
            self.address += reader.leb128() * self.unit
        elif opcode == ADVANCE_LINE:
            self.line += reader.leb128(signed=True)
        elif opcode == SET_FILE:
            self.file = reader.leb128()
        elif opcode == CONST_ADD_PC:
            self.address += (255 - self.first_special) // self.span * self.unit
        elif opcode == FIXED_ADVANCE_PC:
            self.address += reader.integer(2)
        else:
            for _ in range(self.operand_counts[opcode]):
                reader.leb128()


def _joined(path: str, folder: int, folders: list[str]) -> str:
    """Return a file path, joined with its folder."""
    is_plain = path.startswith("/") or folder >= len(folders) or not folders[folder]
    return path if is_plain else f"{folders[folder]}/{path}"


def read_line_tables(elf: ElfFile, section: ElfSection) -> dict[str, LineTable]:
    """Return the line table of each code section, by section name."""

    def error(reason: str) -> Exception:
        return elf.error(f"section {section.name}: {reason}")

    # Functions have no addresses yet, so a relocation names the function at each address operand of the program.
    starts = {
        each.offset: (elf.sections[each.symbol.section].name, each.symbol.value + (each.addend or 0))
        for each in elf.relocations(section)
        if each.symbol.section < len(elf.sections)
    }
    rows: dict[str, list[Row]] = {}
    data = elf.contents(section)
    texts = elf.by_name.get(".debug_line_str")
    strings = elf.contents(texts) if texts else b""
    position = 0
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "little")
        if end > len(data):
            raise error(f"the line program at byte {position} ends at {end}, but the section has {len(data)} bytes")
        _LineProgram(_Reader(data, position + 4, end, error, strings), starts, rows).run()
        position = end
    return {name: LineTable(table) for name, table in rows.items()}
