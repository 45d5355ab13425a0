"""The loops of the compiled engine: built ahead, kept on disk, and left aside where they are damaged or foreign."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from warpfrag import disk_cache
from warpfrag.errors import SlowArithmetic
from warpfrag.machine.jit import loops, object_cache
from warpfrag.tensorcore.kernels import objects
from warpfrag.tensorcore.kernels import processor as target

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(not target.targets_for_host(), reason="there are no objects for this processor"),
]
HOST = target.targets_for_host()
FOREIGN = next(row for row in target.TARGETS if not HOST or row.machine != HOST[0].machine)
NAME = "take_1"
BUILD = """
import sys
from pathlib import Path
from warpfrag.tensorcore.kernels.processor import named_target
from warpfrag.machine.jit import build_loops, loops
build_loops.LOOPS = [loops.take]
build_loops.build(named_target(), Path(sys.argv[1]))
"""
LAUNCH = """
import sys
import numpy as np
import warpfrag as wf
kernel = wf.ptx.load(sys.argv[1])["t_matmul"]
a, b, c = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
sizes = [np.int32(size) for size in (64, 64, 64, 64, 1, 64, 1, 64, 1)]
kernel.launch(1, 128, [a, b, c, *sizes, None, None], shared=16384, engine="compiled")
print((c == 64).all(), "numba" in sys.modules)
"""
MATMUL = Path(__file__).parents[1] / "data" / "ptx" / "t_matmul_f16_sm80.ptx"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An object with the signatures of one loop, for this machine and for another."""
    folder = tmp_path_factory.mktemp("objects")
    for row in (HOST[0], FOREIGN):
        settings = {target.VARIABLE: row.name, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        subprocess.run([sys.executable, "-c", BUILD, str(folder)], check=True, env={**os.environ, **settings})
    return folder


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An installation without objects, and an empty folder for what is compiled."""
    monkeypatch.setattr(objects, "FOLDER", tmp_path / "wheel")
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path / "here"])
    (tmp_path / "wheel").mkdir()
    objects.functions.cache_clear()
    yield tmp_path
    objects.functions.cache_clear()


def new_loop():
    """The loop `take`, of which nothing is loaded."""
    return loops.Loop("batch_loops", "take", *(" ".join(kinds) for kinds in loops.take.signatures))


def result_of(loop, dtype=np.uint16, rows=(2, 0)):
    """What a loop takes of some rows, and what it should."""
    codes, index = np.arange(12, dtype=dtype).reshape(3, 4), np.array([3, 1])
    out = np.zeros((2, 2), np.uint32)
    loop.run(codes, np.array(rows), index, out)
    return out.tolist(), codes[np.array(rows)][:, index].tolist()


class NoEntry(loops.Loop):
    """A loop that numba may not compile."""

    @property
    def entry(self):
        raise AssertionError


@pytest.mark.slow
def test_the_wheels_object_is_run_without_numba(built, fresh):
    path = objects.path_of(HOST[0], loops.SET)
    path.write_bytes((built / path.name).read_bytes())
    loop = NoEntry("batch_loops", "take", *(" ".join(kinds) for kinds in loops.take.signatures))
    for dtype in (np.uint8, np.uint16, np.uint32):
        got, expected = result_of(loop, dtype)
        assert got == expected
    assert not (fresh / "here").exists()


def test_without_an_object_a_loop_is_made_once_and_kept(fresh):
    got, expected = result_of(new_loop())
    assert got == expected
    assert [path.name for path in (fresh / "here").iterdir()] == [loops.file_of(NAME, HOST[0])]
    again = NoEntry("batch_loops", "take", *(" ".join(kinds) for kinds in loops.take.signatures))
    assert result_of(again)[0] == expected


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "of other files", "no object"])
def test_what_does_not_fit_is_left_aside_with_one_warning(damage, built, fresh):
    path = objects.path_of(HOST[0], loops.SET)
    data = (built / path.name).read_bytes()
    code, functions = objects.unpack(data, loops.source_digest(), HOST[0].name)
    path.write_bytes({
        "cut": data[:-1],
        "changed": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        "foreign": (built / objects.path_of(FOREIGN, loops.SET).name).read_bytes(),
        "of other files": objects.pack(code, "0", HOST[0].name, functions),
        "no object": b"",
    }[damage])  # fmt: skip
    loop = new_loop()
    with pytest.warns(SlowArithmetic, match="cannot be used") as said:
        got, expected = result_of(loop)
    assert (got, len(said)) == (expected, 1)
    assert result_of(loop, rows=(1, 1))[0] == [[7, 5], [7, 5]]  # and nothing more is said


@pytest.mark.parametrize("damage", ["cut", "changed", "of other files"])
def test_what_was_kept_and_is_damaged_is_made_again(damage, fresh):
    _, expected = result_of(new_loop())
    (path,) = (fresh / "here").iterdir()
    data = path.read_bytes()
    if damage == "of other files":
        code, functions = objects.unpack(object_cache.find(path.name), loops.source_digest(), HOST[0].name)
        object_cache.keep(path.name, objects.pack(code, "0", HOST[0].name, functions))
    else:
        path.write_bytes(data[:-1] if damage == "cut" else data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.warns(SlowArithmetic, match="cannot be used") as said:
        assert result_of(new_loop())[0] == expected
    assert len(said) == 1
    assert path.read_bytes() == data
    assert result_of(new_loop())[0] == expected


def test_numba_runs_what_no_object_is_made_for(fresh, monkeypatch):
    loop = new_loop()
    out = np.zeros((1, 2), np.float64)
    loop.run(np.ones((3, 4)), np.array([1]), np.array([0, 2]), out)  # floats
    assert out.tolist() == [[1, 1]]
    out = np.zeros((1, 4), np.uint32)[:, ::2]  # not contiguous
    loop.run(np.ones((3, 4), np.uint16), np.array([1]), np.array([0, 2]), out)
    assert out.tolist() == [[1, 1]]
    monkeypatch.setattr(loops, "targets_for_host", list)
    got, expected = result_of(new_loop())
    assert got == expected
    assert not (fresh / "here").exists()


def test_numba_runs_a_loop_that_cannot_be_built_alone(fresh, monkeypatch):
    from warpfrag.tensorcore.kernels import build_objects

    def packed(*_arguments):
        msg = "another numba"
        raise AttributeError(msg)

    monkeypatch.setattr(build_objects, "packed", packed)
    got, expected = result_of(new_loop())
    assert got == expected
    assert not (fresh / "here").exists()


def test_every_loop_is_called_as_it_is_stated():
    for loop in loops.LOOPS:
        assert loop.entry.name.startswith(loop.name)
        assert len(loop.signatures) == len(set(loop.signatures.values())) > 0
        count = loop.entry.compiled.py_func.__code__.co_argcount
        assert {len(kinds) for kinds in loop.signatures} == {count}
    assert all(path.exists() for path in loops.DEPENDS_ON)


@pytest.mark.slow
def test_a_known_kernel_starts_without_numba(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", LAUNCH, str(MATMUL)], env=environment, check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert said[0][0] == "True"  # with numba, unless another process of the same tests has compiled the loops
    assert said[1] == ["True", "False"]


def test_a_kernels_code_is_held_to_its_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path])
    object_cache.keep("a.o", b"code")
    assert object_cache.find("a.o") == b"code"
    (tmp_path / "a.o").write_bytes((tmp_path / "a.o").read_bytes()[:-1] + b"x")
    with pytest.warns(SlowArithmetic, match=r"a\.o cannot be used"):
        assert object_cache.find("a.o") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert object_cache.find("b.o") is None
