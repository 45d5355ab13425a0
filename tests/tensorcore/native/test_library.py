"""The compiled library: its functions, and that nothing damaged, foreign or missing is ever loaded."""

import json
import shutil
import warnings

import numpy as np
import pytest

from warpfrag.errors import SlowArithmetic
from warpfrag.tensorcore.native import levels
from warpfrag.tensorcore.native import library as native
from warpfrag.tensorcore.native.library import NativeFunction, checked_library, library

POPCOUNT = NativeFunction("popcount_block", "u8[3] u8[3] i4[3] i8 i8 i8 i8 i8 i8 i8")


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A folder with a copy of the library and its manifest, from which the library is loaded."""
    assert library() is not None, "the package was built without its library"
    for name in (levels.MANIFEST, levels.library_name()):
        shutil.copy2(native.FOLDER / name, tmp_path / name)
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    return tmp_path


def load():
    """Load the library again; return it and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = library.__wrapped__()
    return loaded, [str(warning.message) for warning in caught if warning.category is SlowArithmetic]


def test_a_function_computes_with_the_arrays_of_the_caller():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << 63, shape, np.uint64) for shape in ((2, 5, 4), (2, 4, 21)))
    sums = np.full((2, 5, 21), 7, np.int32)
    POPCOUNT.run(a, b, sums, True, (0, 2, 0, 5, 0, 21))
    assert np.array_equal(sums, 7 + np.bitwise_count(a[:, :, :, None] ^ b[:, None]).sum(axis=2))


def test_arguments_of_other_types_are_rejected():
    words, sums = np.zeros((1, 1, 2), np.uint64), np.zeros((1, 1, 1), np.int32)
    with pytest.raises(TypeError, match=r"popcount_block takes u8\[3\] .* got i8\[3\]"):
        POPCOUNT.run(words.view(np.int64), words, sums, 1, (0, 1, 0, 1, 0, 1))
    with pytest.raises(TypeError, match="got not contiguous"):
        POPCOUNT.run(np.zeros((1, 1, 4), np.uint64)[:, :, ::2], words, sums, 1, (0, 1, 0, 1, 0, 1))


def test_an_intact_copy_is_loaded(copied):
    loaded, said = load()
    assert loaded.path.parent == copied
    assert loaded.has("popcount_block")
    assert not said


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_library_is_never_loaded(copied, seed):
    rng, path = np.random.default_rng(seed), copied / levels.library_name()
    data = bytearray(path.read_bytes())
    if seed % 2:
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    else:
        del data[rng.integers(len(data)) :]
    path.write_bytes(data)
    loaded, said = load()
    assert loaded is None
    assert len(said) == 1
    assert "is damaged" in said[0]


@pytest.mark.parametrize("name", [levels.MANIFEST, levels.library_name()])
def test_without_a_file_nothing_is_loaded(copied, name):
    (copied / name).unlink()
    loaded, said = load()
    assert loaded is None
    assert len(said) == 1


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("target", "riscv64-linux", "built for riscv64-linux"),
        ("source", "0" * 64, "different C files"),
        ("sha256", "0" * 64, "is damaged"),
        ("sha256", None, "is damaged"),
    ],
)
def test_a_foreign_library_is_never_loaded(copied, key, value, reason):
    manifest = json.loads((copied / levels.MANIFEST).read_bytes())
    (copied / levels.MANIFEST).write_text(json.dumps({**manifest, key: value}), encoding="ascii")
    with pytest.raises(ValueError, match=reason):
        checked_library()
    assert load()[0] is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0\1", '{"source": 1}'])
def test_a_manifest_that_cannot_be_read_is_said(copied, text):
    (copied / levels.MANIFEST).write_text(text, encoding="ascii")
    loaded, said = load()
    assert loaded is None
    assert "library.json cannot be read" in said[0]


def test_the_environment_names_a_level(monkeypatch):
    monkeypatch.setenv(native.VARIABLE, native.PORTABLE)
    assert load() == (None, [])
    lowest = levels.LEVELS[levels.host_machine()][0].name
    monkeypatch.setenv(native.VARIABLE, lowest)
    assert load()[0].level == lowest
    monkeypatch.setenv(native.VARIABLE, "avx9")
    loaded, said = load()
    assert loaded is None
    assert "WARPFRAG_KERNELS is 'avx9'; expected" in said[0]
