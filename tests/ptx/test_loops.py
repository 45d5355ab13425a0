"""The C loops of the compiled engine, its disk cache, and launches in installations that lack one of them."""

import errno
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag import disk_cache
from warpfrag.errors import SlowArithmetic
from warpfrag.layout import coordinates
from warpfrag.machine.interpreter import mbarriers, store_tags, warp_batch
from warpfrag.machine.ir.state_spaces import SPACES
from warpfrag.machine.jit import c_functions, context, llvm_compiler
from warpfrag.tensorcore.native import library as native

pytestmark = pytest.mark.one_engine
HEADER = (Path(c_functions.__file__).parent / "context.h").read_text(encoding="ascii")
LENGTHS = {"LANES": coordinates.LANES, "SPACE_COUNT": len(SPACES)}
KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 rounds)
{
  .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r3, 0;
LOOP:
  mad.lo.s32 %r2, %r2, 1664525, 1013904223;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p, %r3, %r1;
  @%p bra LOOP;
  st.global.u32 [%rd3], %r2;
  ret;
}"""
LAUNCHES = """
import sys, warnings
import numpy as np
import warpfrag as wf
exec(sys.argv[1])
kernel = wf.ptx.load(sys.argv[2])["k"]
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as said:
    for rounds in (1, 2000, 2000):
        out = np.zeros(32, np.uint32)
        run = kernel.launch(1, 32, [out, np.uint32(rounds)], engine=sys.argv[3])
        print(run.engine, len(said), *out)
print(said[-1].message if said else "")
"""


def expected(rounds):
    """The codes that the kernel stores."""
    codes = np.arange(32, dtype=np.uint32)
    for _ in range(rounds):
        codes = codes * np.uint32(1664525) + np.uint32(1013904223)
    return codes.tolist()


def value_of(expression):
    """The value of a constant in the header: a number, 1 << n, or that less 1."""
    if expression == "INT64_MIN":
        return -(1 << 63)
    number = r"(?:INT64_C\()?(-?\w+)\)?"
    first, shift, less = re.fullmatch(rf"\(*{number}(?: << (\w+))?\)?(?: - (\d+)\))?\)?", expression).groups()
    return (int(first, 0) << int(shift or 0)) - int(less or 0)


def members(struct):
    """The members of a structure, each with its length in words."""
    body = re.search(rf"typedef struct \{{([^}}]*)\}} {struct};", HEADER)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    for declaration in filter(None, map(str.strip, body.split(";"))):
        for name in re.sub(r"^(?:const )?\w+ ", "", declaration).split(","):
            stem, length = re.fullmatch(r"\**(\w+)(?:\[(\w+)\])?", name.strip()).groups()
            yield stem, LENGTHS[length] if length else 1


@pytest.mark.parametrize(
    ("struct", "size"),
    [
        ("launch_context", "CONTEXT_WORDS"),
        ("screen_state", "SCREEN_WORDS"),
        ("thread_groups", "COPY_WORDS"),
        ("thread_fences", "FENCE_WORDS"),
        ("instruction_row", "COLUMNS"),
        ("scheduler_state", "STATE_WORDS"),
        ("allocation", "ALLOCATION_WORDS"),
    ],
)
def test_structures_have_the_words_that_python_names(struct, size):
    at = 0
    for name, length in members(struct):
        if struct not in {"allocation", "thread_groups", "thread_fences"}:
            assert getattr(context, name.upper()) == at, name
        at += length
    assert getattr(context, size) == at


def test_constants_are_those_of_python():
    modules = (context, warp_batch, store_tags, mbarriers, coordinates)
    pattern = re.compile(r"#define (\w+) ([^/\n]+)")
    found = {name: value_of(value.strip()) for name, value in pattern.findall(HEADER) if name != "SPACE_COUNT"}
    for text in re.findall(r"enum \w+ \{([^}]*)\}", HEADER):
        names = [word.strip() for word in text.split(",")]
        first = int(names[0].partition("=")[2] or 0)
        found |= {name.partition(" ")[0]: first + number for number, name in enumerate(names)}
    assert len(found) > 35
    for name, value in found.items():
        defined = {int(getattr(module, name)) for module in modules if hasattr(module, name)}
        assert value in defined, name
    assert re.search(rf"#define SPACE_COUNT {len(SPACES)} ", HEADER)


# --- the loops


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_codes_of_every_width_are_taken(width):
    rng = np.random.default_rng(width)
    codes = rng.integers(0, 256, (5, 8 * width), np.uint8).view(f"u{width}")
    rows, index = np.array([4, 0, 4]), rng.integers(0, 8, 11)
    out = np.zeros((3, 11), f"u{max(width, 4)}")
    c_functions.take[width].run(codes, rows, index, out)
    assert np.array_equal(out, codes[rows][:, index])


@pytest.mark.parametrize("width", [2, 4, 8])
def test_tiles_are_taken_and_put_back(width):
    rng = np.random.default_rng(width)
    cells = rng.integers(0, 256, 200 * width, np.uint8).view(f"u{width}")
    bases, index = rng.permutation(8)[:6].reshape(2, 3) * 24, rng.permutation(24)[:20].reshape(4, 5)
    matrix = np.zeros((8, 15), f"u{max(width, 4)}")
    c_functions.take_tiles[width].run(cells, bases, index, matrix)
    assert np.array_equal(matrix.reshape(2, 4, 3, 5), cells[bases[:, None, :, None] + index[None, :, None]])
    copy = np.zeros_like(cells)
    c_functions.put_tiles[width].run(copy, bases, index, matrix)
    places = (bases[:, :, None, None] + index).reshape(-1)
    assert np.array_equal(copy[places], cells[places])
    assert np.count_nonzero(copy) == np.count_nonzero(cells[places])


# --- installations without a library, or without llvmlite


def launches(before, engine="auto"):
    """Launch in another process for 1, 2000 and 2000 rounds; return the engines, the warnings so far, and the last."""
    command = [sys.executable, "-c", LAUNCHES, before, KERNEL, engine]
    said = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", env=os.environ)
    *lines, message = said.stdout.splitlines()
    words = [line.split() for line in lines]
    assert [list(map(int, codes)) for _, _, *codes in words] == [expected(1), *[expected(2000)] * 2]
    return [(name, int(count)) for name, count, *_ in words], message


WITHOUT_LIBRARY = "from warpfrag.tensorcore.native import library; library.FOLDER /= 'nowhere'"
WITHOUT_LLVMLITE = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "llvmlite" else find_spec(name, *rest)
sys.modules["llvmlite"] = None
"""


def test_short_launches_are_interpreted_and_long_ones_compiled():
    runs, message = launches("")
    assert runs == [("reference", 0), ("compiled", 0), ("compiled", 0)]
    assert message == ""


@pytest.mark.parametrize("engine", ["auto", "compiled"])
def test_without_the_library_kernels_are_interpreted_and_one_warning_says_so(engine):
    runs, message = launches(WITHOUT_LIBRARY, engine)
    assert runs == 3 * [("reference", 1)]
    assert "does not include them" in message


@pytest.mark.parametrize("engine", ["auto", "compiled"])
def test_without_llvmlite_kernels_are_interpreted_and_one_warning_says_so_after_a_long_one(engine):
    runs, message = launches(WITHOUT_LLVMLITE, engine)
    assert runs == [("reference", 0), ("reference", 1), ("reference", 1)]
    assert "pip install '.[jit]'" in message


def test_a_library_of_other_c_files_is_not_used(tmp_path):
    for name in ("library.json", Path(native.checked_library()).name):
        (tmp_path / name).write_bytes((native.FOLDER / name).read_bytes())
    manifest = (tmp_path / "library.json").read_text(encoding="ascii")
    (tmp_path / "library.json").write_text(re.sub(r'"source": "\w', '"source": "x', manifest), encoding="ascii")
    runs, message = launches(
        f"from warpfrag.tensorcore.native import library\nlibrary.FOLDER = library.Path({str(tmp_path)!r})"
    )
    assert runs == 3 * [("reference", 1)]
    assert "different C files" in message


# --- objects on disk


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder of cached objects, which is empty."""
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path])
    monkeypatch.setattr(llvm_compiler, "LINKED", set())
    return tmp_path


def test_objects_are_kept_and_found(folder):
    llvm_compiler.CACHE.keep("a.o", b"code")
    assert llvm_compiler.CACHE.find("a.o") == b"code"
    assert llvm_compiler.CACHE.find("b.o") is None
    assert [path.name for path in folder.iterdir()] == ["a.o"]


def test_an_object_under_another_name_is_not_found(folder):
    llvm_compiler.CACHE.keep("a.o", b"code")
    (folder / "a.o").rename(folder / "b.o")
    assert llvm_compiler.CACHE.find("b.o") is None


def damage(rng, number, path, other):
    """Damage a file: flip a bit, truncate it, replace it with another file, or extend it."""
    data = bytearray(path.read_bytes())
    match number % 4:
        case 0:
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        case 1:
            del data[rng.integers(len(data)) :]
        case 2:
            data = bytearray(other.read_bytes())
        case _:
            data += bytes(rng.integers(1, 100))
    path.write_bytes(data)


@pytest.mark.slow
def test_a_hundred_damaged_objects_are_compiled_again(folder):
    rng, out = np.random.default_rng(43), np.zeros(32, np.uint32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wf.ptx.load(KERNEL)["k"].launch(1, 32, [out, np.uint32(7)], engine="compiled")
        intact = {path.name: path.read_bytes() for path in folder.iterdir()}
        names = sorted(intact)
        for number in range(100):
            path, other = folder / names[number % len(names)], folder / names[(number + 1) % len(names)]
            damage(rng, number, path, other)
            llvm_compiler.LINKED.clear()  # helpers are loaded again
            out[:] = 0
            run = wf.ptx.load(KERNEL)["k"].launch(1, 32, [out, np.uint32(7)], engine="compiled")
            assert (run.engine, out.tolist()) == ("compiled", expected(7)), number
            assert llvm_compiler.CACHE.find(path.name) is not None, number
    assert sorted(path.name for path in folder.iterdir()) == names
    assert len(names) > 1


def test_what_is_no_file_is_left_aside(folder):
    (folder / "a.o").mkdir()
    assert llvm_compiler.CACHE.find("a.o") is None
    disk_cache.warn_uncached.cache_clear()
    with pytest.warns(SlowArithmetic, match="no cache folder is writable"):
        llvm_compiler.CACHE.keep("a.o", b"code")
    assert [path.name for path in folder.iterdir()] == ["a.o"]


def test_a_full_disk_leaves_no_temporary_file(folder, monkeypatch):
    named = tempfile.NamedTemporaryFile

    def full(**options):
        file = named(**options)

        def write(data):
            file.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(file, "write", write)
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    disk_cache.warn_uncached.cache_clear()
    with pytest.warns(SlowArithmetic, match="no cache folder is writable"):
        llvm_compiler.CACHE.keep("a.o", b"code")
    llvm_compiler.CACHE.keep("b.o", b"code")  # a second warning would be an error
    assert list(folder.iterdir()) == []


def test_a_known_kernel_is_not_compiled_again(folder, monkeypatch):
    kernel = wf.ptx.load(KERNEL)["k"]
    kernel.compiled.compile_all()
    monkeypatch.setattr(llvm_compiler, "compile_text", None)
    again = wf.ptx.load(KERNEL)["k"]
    again.compiled.compile_all()
    assert again.compiled.segments.keys() == kernel.compiled.segments.keys() != set()
