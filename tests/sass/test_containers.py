"""Cubins, fatbins and host binaries: their contents, and the errors for damaged files and closed-source libraries."""

import random
import struct
import subprocess
from pathlib import Path

import pytest

import warpfrag as wf
from oracle import toolkit
from warpfrag.errors import FileError, InvalidOperand, MissingExtra, PtxError, WarpfragError
from warpfrag.machine.ir.program import SourceLine
from warpfrag.sass import line_table
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.fatbin import decompress, read_cubins, read_images

DATA = Path(__file__).parents[1] / "data" / "sass"
HOPPER, TURING = DATA / "globals_sm90.cubin", DATA / "globals_sm75.cubin"  # ptxas 13.0 and 12.9: both ABI versions
FATBIN = DATA / "globals.fatbin"  # both, and globals.ptx, compressed with LZ4
BASES = {".nv.global": 0x7_0000_0000, ".nv.global.init": 0x7_1000_0000}


def address_of(symbol):
    return BASES.get(symbol.section, 0) + symbol.offset


@pytest.mark.parametrize(
    ("path", "arch", "producer", "base", "shared", "registers"),
    [(HOPPER, "sm_90", "13.0.88", 0x210, 1024 + 256, 14), (TURING, "sm_75", "", 0x160, 256, 10)],
)
def test_a_kernel_has_its_parameters_and_sizes(path, arch, producer, base, shared, registers):
    (cubin,) = read_cubins(path)
    kernel = cubin["globals"]
    assert (cubin.arch, cubin.producer, cubin.kernels) == (arch, producer, ("globals",))
    assert kernel.parameters == ((0, 0, 8), (1, 8, 4), (2, 16, 24))
    assert (kernel.parameter_base, kernel.parameter_bytes) == (base, 40)
    assert (kernel.shared_bytes, kernel.frame_bytes, kernel.stack_bytes) == (shared, 0, 0)
    assert (kernel.registers, kernel.required_threads, kernel.max_threads) == (registers, (128, 1, 1), None)
    assert (kernel.is_kernel, kernel.cluster, kernel.arch) == (True, None, arch)
    assert len(kernel.code.data) == kernel.code.size == cubin.symbols["globals"].size


@pytest.mark.parametrize("path", [HOPPER, TURING])
def test_relocations_put_addresses_into_constants_and_variables(path):
    (cubin,) = read_cubins(path.read_bytes())
    table, counter = address_of(cubin.symbols["table"]), address_of(cubin.symbols["counter"])
    constants = cubin["globals"].constants
    assert struct.unpack_from("<Q3I", constants[3].relocated(address_of)) == (counter, 1, 2, 3)
    pointers = struct.unpack("<3Q", constants[4].relocated(address_of))
    assert pointers == (table, address_of(cubin.symbols["second"]), counter)
    initial, zero = cubin.global_sections
    second = cubin.symbols["second"].offset
    assert struct.unpack_from("<Q", initial.relocated(address_of), second) == (table + 4,)
    assert initial.relocated(address_of)[cubin.symbols["table"].offset :][:16] == bytes(range(1, 17))
    assert (zero.size, zero.data, zero.relocated(address_of)) == (4, b"", bytes(4))


def test_instructions_have_source_lines_and_ptx_lines():
    (cubin,) = read_cubins(HOPPER)
    kernel = cubin["globals"]
    assert [kernel.lines.at(address) for address in (0, 0x50)] == [
        SourceLine("globals.cu", 7), SourceLine("globals.cu", 9),
    ]  # fmt: skip
    text = (DATA / "globals.ptx").read_text(encoding="utf-8").splitlines()
    assert "fma.rn.f32" in text[kernel.ptx_lines.at(0x1C0).line - 1]  # the FFMA
    assert kernel.lines.at(kernel.code.size) is None


def test_kernels_have_instructions_with_source_lines():
    kernel = wf.sass.load(HOPPER)["globals"]
    first = kernel.instructions[0]
    assert (first.address, first.source) == (0, SourceLine("globals.cu", 7))
    assert first.text.startswith("LDC")
    assert str(first) == f"0x0 (globals.cu:7): {first.text}"
    assert {str(inst.source) for inst in kernel.instructions} >= {"globals.cu:7", "globals.cu:9"}


def test_line_programs_of_version_5():
    """A program with two files, whose names are in the section and in the table of strings."""
    strings = b"/src\0sum.cu\0"
    tables = bytes([1, 1, 0x1F, 1, 0, 0, 0, 0])  # one folder: a path at offset 0 of the strings
    tables += bytes([2, 1, 0x08, 2, 0x0B, 2]) + b"sum.cuh\0\0" + b"sum.cu\0\0"
    head = bytes([4, 1, 1, 0xFB, 14, 10, *[0, 1, 1, 1, 1, 0, 0, 0, 1]]) + tables
    code = bytes([0, 9, 2, *bytes(8), 3, 6, 1, 2, 4, 4, 0, 1, 0, 1, 1])  # line 7 at 0, the other file at 16
    body = (5).to_bytes(2, "little") + bytes([8, 0]) + len(head).to_bytes(4, "little") + head + code
    rows = {}
    reader = line_table._Reader(body, 0, len(body), ValueError, strings)
    line_table._LineProgram(reader, {len(body) - len(code) + 3: ("k", 0)}, rows).run()
    assert [row for _, row in rows["k"]] == [SourceLine("/src/sum.cu", 7), SourceLine("/src/sum.cuh", 7), None]


def test_inlined_calls_have_the_callers_line():
    """Line 7 calls a function in the other file, which is inlined; the line after it is not."""
    head = bytes([4, 1, 0xFB, 14, 10, *[0, 1, 1, 1, 1, 0, 0, 0, 1]]) + b"\0f.cuh\0\0\0\0k.cu\0\0\0\0\0"
    inlined, back = bytes([4, 1, 0, 3, 0x90, 1, 0, 3, 0x7D, 1]), bytes([4, 2, 0, 3, 0x90, 0, 0, 3, 4, 1])
    code = bytes([0, 9, 2, *bytes(8), 4, 2, 3, 6, 1]) + inlined + back + bytes([2, 4, 0, 1, 1])
    body = (2).to_bytes(2, "little") + len(head).to_bytes(4, "little") + head + code
    rows = {}
    reader = line_table._Reader(body, 0, len(body), ValueError, b"")
    line_table._LineProgram(reader, {len(body) - len(code) + 3: ("k", 0)}, rows).run()
    call = SourceLine("k.cu", 7)
    assert [row for _, row in rows["k"]] == [call, SourceLine("f.cuh", 4, call), SourceLine("k.cu", 8), None]


def test_a_fatbin_lists_its_images():
    images = read_images(FATBIN)
    assert [(image.category, image.arch, image.compression) for image in images] == [
        ("cubin", "sm_90", "lz4"), ("cubin", "sm_75", "lz4"), ("ptx", "sm_75", "lz4"),
    ]  # fmt: skip
    assert images[0].read() == HOPPER.read_bytes()
    assert images[1].read() == TURING.read_bytes()
    assert images[2].read().rstrip(b"\0").split() == (DATA / "globals.ptx").read_bytes().split()
    assert [cubin.arch for cubin in read_cubins(FATBIN)] == ["sm_90", "sm_75"]


@pytest.mark.parametrize("options", [["--compress-mode=size"], ["--compress-mode=balance", "--concat"]])
def test_fatbinary_compresses_with_zstd(tmp_path, options):
    programs = toolkit.programs("fatbinary") or toolkit.absent("no fatbinary: install nvidia-cuda-nvcc>=13.4")
    images = [f"--image3=kind=elf,sm={arch},file={path}" for arch, path in ((90, HOPPER), (75, TURING))]
    command = [programs[0], f"--create={tmp_path / 'x.fatbin'}", "--compress-all", "-64", *options, *images]
    subprocess.run(command, check=True, capture_output=True)
    found = read_images(tmp_path / "x.fatbin")
    assert [(image.arch, image.compression) for image in found] == [("sm_90", "zstd"), ("sm_75", "zstd")]
    try:
        contents = [image.read() for image in found]
    except MissingExtra as error:
        pytest.skip(str(error))
    assert contents == [HOPPER.read_bytes(), TURING.read_bytes()]


def write_elf(sections, machine=183):
    """A host ELF file with sections (name, type, contents, link)."""
    sections = [("", 0, b"", 0), *sections, (".shstrtab", 3, b"", 0)]
    names = b"".join(name.encode() + b"\0" for name, *_ in sections)
    sections[-1] = (".shstrtab", 3, names, 0)
    offset, body, table, start = 64, b"", b"", 0
    for name, kind, contents, link in sections:
        table += struct.pack("<IIQQQQIIQQ", start, kind, 0, 0, offset + len(body), len(contents), link, 0, 8, 0)
        body += contents + bytes(-len(contents) % 8)
        start += len(name) + 1
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    count = len(sections)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", identity, 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1
    )
    return head + body + table


def library(soname):
    """A shared library of this name with the fatbin twice, as nvcc embeds one for each source file."""
    dynamic = struct.pack("<QQQQ", 14, 1, 0, 0)
    fatbins = FATBIN.read_bytes() + bytes(40) + FATBIN.read_bytes()
    return write_elf(
        [(".nv_fatbin", 1, fatbins, 0), (".dynstr", 3, b"\0" + soname.encode() + b"\0", 0), (".dynamic", 6, dynamic, 2)]
    )


def test_a_library_has_the_cubins_of_its_fatbins():
    cubins = read_cubins(library("libmine.so"))
    assert [(cubin.arch, cubin.kernels) for cubin in cubins] == [("sm_90", ("globals",)), ("sm_75", ("globals",))] * 2


@pytest.mark.parametrize("name", ["libcublasLt.so.13", "libcudnn_ops.so.9", "libcufft-1a2b.so.11", "libcudss.so.0"])
def test_closed_libraries_are_refused_by_their_own_name(tmp_path, name):
    (tmp_path / "renamed.so").write_bytes(library(name))
    with pytest.raises(FileError, match=f"renamed.so.* NVIDIA's closed-source library {name}, whose licence forbids"):
        read_cubins(tmp_path / "renamed.so")
    (tmp_path / name).write_bytes(library(""))
    with pytest.raises(FileError, match="licence forbids disassembly"):
        read_cubins(tmp_path / name)


@pytest.mark.parametrize("name", ["libnccl.so.2", "libcudakernels.so", "libtorch_cuda.so", "libnvbench.so"])
def test_open_libraries_are_read(name):
    assert len(read_cubins(library(name))) == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a cubin, a fatbin or an ELF file, got b''"),
        (b"// PTX", "expected a cubin, a fatbin or an ELF file"),
        (b"\x7fELF" + bytes(20), "the ELF header is missing or truncated"),
        (write_elf([(".text", 1, b"x", 0)]), "the ELF file has no GPU code"),
        (HOPPER.read_bytes()[:4000], "the section table ends at byte [0-9]+, but the file has 4000 bytes"),
        (FATBIN.read_bytes()[:-1], "the fatbin at byte 0x0 ends at byte 0x1a68, but the data ends at 0x1a67"),
        (FATBIN.read_bytes()[:90], "the fatbin at byte 0x0 ends at"),
        (HOPPER.read_bytes()[:16] + b"\x01" + HOPPER.read_bytes()[17:], "relocatable object .*nvlink"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(data, message):
    with pytest.raises(FileError, match=message):
        read_cubins(data)


@pytest.mark.parametrize("read", [wf.ptx.load, wf.ptx.compile])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HOPPER.read_bytes(), "machine code: load it with wf.sass.load"),
        (FATBIN.read_bytes(), "machine code: load it with wf.sass.load"),
        (b" \n", "empty"),
        (b"\xff\xfe", "binary, not UTF-8 text"),
        (bytes(9), "binary, not UTF-8 text"),
    ],
)
def test_files_without_source_text_are_named_with_their_contents(tmp_path, read, data, reason):
    path = tmp_path / "kernel.x"
    path.write_bytes(data)
    with pytest.raises(FileError, match=f"kernel.x' cannot be read as (PTX|CUDA C\\+\\+): it is {reason}$"):
        read(path)


def test_cuda_is_not_ptx():
    with pytest.raises(PtxError, match=r"line 2: __global__ is CUDA C\+\+, not PTX: use wf.ptx.compile"):
        wf.ptx.load("#define N 4\n__global__ void k() {}\n")


def test_what_is_not_a_file_or_not_in_it(tmp_path):
    with pytest.raises(FileError, match="missing.cubin.*No such file"):
        read_cubins(tmp_path / "missing.cubin")
    (tmp_path / "empty.cubin").touch()
    with pytest.raises(FileError, match="cannot read .*empty.cubin"):
        read_cubins(tmp_path / "empty.cubin")
    with pytest.raises(InvalidOperand, match="expected a path or bytes, got 7"):
        read_cubins(7)
    (cubin,) = read_cubins(HOPPER)
    with pytest.raises(InvalidOperand, match="no function 'global'; its kernels are: globals"):
        cubin["global"]


@pytest.mark.parametrize(
    "data", [b"\xf0\xff", b"\x10", b"\x00\x05\x00", b"\x1fa\x00\x00", b"\x1fa\x01\x00\xff\xff\xff"]
)
def test_damaged_lz4_is_an_error(data):
    with pytest.raises(FileError, match="the image: "):
        decompress(data, "lz4", 100, "the image")
    assert decompress(b"\x1fa\x01\x00\x05\x10b", "lz4", 26, "the image") == b"a" * 25 + b"b"


def test_a_symbol_outside_its_section_is_named():
    module = wf.sass.load(HOPPER)
    name, symbol = next(
        (name, symbol) for name, symbol in module.cubin.symbols.items() if symbol.section == ".nv.global"
    )
    module.cubin.symbols[name] = symbol._replace(size=1 << 40)
    with pytest.raises(FileError, match=f"symbol '{name}' .* is outside section .nv.global"):
        module.variables()


def read_everything(data):
    for image in read_images(data):
        contents = image.read()
        if image.category != "cubin":
            continue
        cubin = Cubin(contents)
        assert cubin.symbols is not None
        for section in cubin.global_sections:
            if section.size < 1 << 24:
                section.relocated(address_of)
        for name in cubin.functions:
            function = cubin[name]
            for section in (function.code, *function.constants.values()):
                section.relocated(address_of)
            for address in range(0, function.code.size, 16):
                function.lines.at(address)
                function.ptx_lines.at(address)


def mutated(data, rng):
    """Return a file that was truncated, overwritten, shortened in the middle, or has a wrong bit in its tables."""
    changed = bytearray(data)
    category, place = rng.randrange(5), rng.randrange(len(data) - 8)
    if category == 0:
        return data[:place]
    if category == 1:
        for _ in range(rng.randrange(1, 9)):
            changed[rng.randrange(len(data))] = rng.randrange(256)
    elif category == 2:
        changed[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\xff\xff\xff\xff\0\0\0\0"])
    elif category == 3:
        del changed[place : place + rng.randrange(1, 200)]
    else:
        changed[place % 0x140] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("path", [HOPPER, TURING, FATBIN], ids=lambda path: path.name)
def test_mutated_files_are_read_or_refused(path):
    rng, refused = random.Random(path.name), 0
    for _ in range(100):
        try:
            read_everything(mutated(path.read_bytes(), rng))
        except WarpfragError:
            refused += 1
    assert 20 < refused < 95
