"""Object code of the loops: made, loaded, and left aside where it is damaged or not for these kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from arithmetic_cases import rule_of

import warpfrag as wf
from warpfrag.errors import SlowArithmetic
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends.compiled import Compiled
from warpfrag.tensorcore.kernels import jit, objects
from warpfrag.tensorcore.kernels import processor as target
from warpfrag.tensorcore.kernels.unfused import popcount_block

HOST = target.targets_for_host()
FOREIGN = next(row for row in target.TARGETS if not HOST or row.machine != HOST[0].machine)
BUILD = """
import sys
from pathlib import Path
from warpfrag.tensorcore.kernels import build_objects
from warpfrag.tensorcore.kernels.processor import named_target
seen = build_objects.record_arguments()
assert set(seen) == {"chain_block", "fma_block", "fused_block", "fused_tiles", "grouped_block", "popcount_block",
                     "prepare_blocks", "prepare_rows"}
build_objects.record_arguments = lambda: {"popcount_block": seen["popcount_block"]}
build_objects.build(named_target(), Path(sys.argv[1]))
"""
pytestmark = pytest.mark.skipif(not HOST, reason="there are no objects for this processor")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The object with one entry, of the plainest target that runs here, and of one that is for another machine."""
    folder = tmp_path_factory.mktemp("objects")
    for row in (HOST[-1], FOREIGN):
        settings = {target.VARIABLE: row.name, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        subprocess.run([sys.executable, "-c", BUILD, str(folder)], check=True, env={**os.environ, **settings})
    return folder


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An installation whose objects are in an empty folder."""
    monkeypatch.setattr(objects, "FOLDER", tmp_path)
    objects.functions.cache_clear()
    yield tmp_path
    objects.functions.cache_clear()


def operands():
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 1 << 63, shape, np.uint64) for shape in ((2, 5, 4), (2, 4, 7)))
    return a, b, np.zeros((2, 5, 7), np.int32), True, np.array([0, 2, 0, 5, 0, 7], np.int64)


@pytest.mark.slow
def test_an_object_computes_what_it_was_made_from(built, fresh):
    path = built / objects.path_of(HOST[-1]).name
    (fresh / path.name).write_bytes(path.read_bytes())
    function = objects.function_of("popcount_block", jit.SOURCE_DIGEST)
    a, b, sums, is_xor, bounds = operands()
    assert function.run((a, b, sums, is_xor, bounds))
    assert np.array_equal(sums, np.bitwise_count(a[..., None] ^ b[:, None]).sum(axis=2, dtype=np.int32))
    assert popcount_block.is_cached
    assert objects.function_of("fused_block", jit.SOURCE_DIGEST) is None


def read_only(array):
    array.flags.writeable = False
    return array


OTHERS = {
    "dtype": lambda sums: sums.astype(np.int64),
    "byte order": lambda sums: sums.astype(">i4"),
    "strides": lambda sums: np.repeat(sums, 2, axis=2)[:, :, ::2],
    "rank": lambda sums: sums[0],
    "read-only": read_only,
    "alignment": lambda sums: (
        np.frombuffer(bytearray(sums.nbytes + 1), np.uint8)[1:].view(np.int32).reshape(sums.shape)
    ),
    "no array": lambda sums: 7,
    "a number too large": lambda sums: 1 << 64,
    "no number": lambda sums: None,
}


def entry_of_object(built, fresh):
    """An entry that finds the object of this machine, and the calls that it leaves to what was compiled."""
    path = built / objects.path_of(HOST[-1]).name
    (fresh / path.name).write_bytes(path.read_bytes())
    compiled, entry = [], jit.KernelEntry.__new__(jit.KernelEntry)
    entry.name, entry.compiled = "popcount_block", lambda *arguments: compiled.append(arguments)
    entry.run = entry._run_first
    return entry, compiled


@pytest.mark.slow
def test_code_and_constants_are_put_into_a_block_of_memory(built, monkeypatch):
    """Else a process ends where they lie more than 2 GB apart; which only happens on x86-64, and by chance."""
    asked, make = [], objects.llvm.create_mcjit_compiler
    monkeypatch.setattr(
        objects.llvm,
        "create_mcjit_compiler",
        lambda *arguments, **options: asked.append(options) or make(*arguments, **options),
    )
    assert objects.load((built / f"{HOST[-1].name}{objects.SUFFIX}").read_bytes(), jit.SOURCE_DIGEST, HOST[-1].name)
    assert asked == [{"use_lmm": True}]


@pytest.mark.parametrize("what", OTHERS)
def test_every_call_is_held_to_the_types_it_was_made_for(what, built, fresh):
    entry, compiled = entry_of_object(built, fresh)
    a, b, sums, is_xor, bounds = operands()
    entry.run(a, b, sums, is_xor, bounds)
    assert (sums.any(), compiled) == (True, [])  # the object ran
    other = OTHERS[what](sums)
    before = np.copy(other)
    entry.run(a, b, other, is_xor, bounds)
    assert [call[2] is other for call in compiled] == [True]
    assert np.array_equal(other, before)
    entry.run(a, b, np.zeros_like(sums), 1, bounds)  # an int, where a flag is expected
    assert len(compiled) == 2


@pytest.mark.parametrize("what", [None, *OTHERS])
def test_bound_arguments_are_held_to_the_types_too(what, built, fresh):
    entry, compiled = entry_of_object(built, fresh)
    a, b, sums, is_xor, bounds = operands()
    taken = OTHERS[what](sums) if what else sums
    run = entry.bound(a, b, taken, is_xor, bounds)
    b[:] = a[:, :4, :1]  # after its words were made: they hold the address, and not what is there
    run()
    assert [call[2] is taken for call in compiled] == ([True] if what else [])
    if what is None:
        assert np.array_equal(sums, np.bitwise_count(a[..., None] ^ b[:, None]).sum(axis=2, dtype=np.int32))


def remade(data, **changes):
    """A file with another head, and its digest right."""
    line, _, code = data.partition(b"\n")
    head = json.loads(line)
    head.pop("sha256")
    head |= changes
    return objects.pack(code, head["source"], head["target"], head["functions"])


DAMAGES = {
    "it does not begin as such a file does": lambda data: data[60:],
    "its digest is not that of its code": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "its digest is not": lambda data: data.replace(b"<i4[3]", b"<i8[3]", 1),
    "it was made from other kernels than those installed": lambda data: remade(data, source="0"),
    f"it was made for {FOREIGN.name}": lambda data: remade(data, target=FOREIGN.name),
    "it lacks a function that it names": lambda data: remade(data, functions={"chain_block": ["int"]}),
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_what_does_not_fit_is_left_aside_with_one_warning(reason, built, fresh):
    data = (built / objects.path_of(HOST[-1]).name).read_bytes()
    objects.path_of(HOST[-1]).write_bytes(DAMAGES[reason](data))
    with pytest.warns(SlowArithmetic, match=reason) as said:
        assert objects.function_of("popcount_block", jit.SOURCE_DIGEST) is None
    assert objects.function_of("fused_block", jit.SOURCE_DIGEST) is None
    assert len(said) == 1


@pytest.mark.parametrize("state", ["whole", "damaged", "missing", "cannot be read"])
def test_a_product_is_the_same_with_an_object_and_without(state, built, fresh, monkeypatch):
    path, data = objects.path_of(HOST[-1]), (built / objects.path_of(HOST[-1]).name).read_bytes()
    if state == "cannot be read":
        path.mkdir()
    elif state != "missing":
        path.write_bytes(data if state == "whole" else data[:-1])
    calls, compiled = [], popcount_block.compiled
    monkeypatch.setattr(popcount_block, "compiled", lambda *arguments: (calls.append(1), compiled(*arguments)))
    monkeypatch.setattr(popcount_block, "run", popcount_block._run_first)
    rule = rule_of(wf.get("mma.m16n8k256.s32.b1.b1.s32.xor.popc").form, "sm_80")
    random = np.random.default_rng(1)
    bits = [random.integers(0, 2, shape, np.uint8) for shape in ((2, 16, 256), (2, 256, 8))]
    product = ProductOperands(*bits, np.zeros((2, 16, 8), np.uint32))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        codes = [Compiled().compile(rule).run_whole(product) for _ in range(2)]
    expected = (bits[0][..., None] != bits[1][:, None]).sum(axis=2)
    assert all(np.array_equal(made, expected) for made in codes)
    assert bool(calls) == (state != "whole")
    assert [one.category for one in said] == [SlowArithmetic] * (state in {"damaged", "cannot be read"})


def test_the_next_object_is_taken_where_the_best_is_damaged(built, fresh, monkeypatch):
    best = HOST[-1]._replace(name="best")
    monkeypatch.setattr(objects, "targets_for_host", lambda: [best, HOST[-1]])
    data = (built / objects.path_of(HOST[-1]).name).read_bytes()
    objects.path_of(best).write_bytes(data)  # another's
    objects.path_of(HOST[-1]).write_bytes(data)
    with pytest.warns(SlowArithmetic, match="best.wfo cannot be used"):
        assert objects.function_of("popcount_block", jit.SOURCE_DIGEST) is not None


def test_objects_are_made_for_other_machines_too_and_never_loaded_here(built):
    other = FOREIGN
    code, functions = objects.unpack((built / objects.path_of(other).name).read_bytes(), jit.SOURCE_DIGEST, other.name)
    machines = {"x86": 62, "arm": 183}  # of ELF
    assert (code[:4], int.from_bytes(code[18:20], "little")) == (b"\x7fELF", machines[other.machine])
    assert list(functions) == ["popcount_block"]
    assert not target.can_run(other)


def test_a_variable_names_the_set_or_none(monkeypatch):
    monkeypatch.setenv(target.VARIABLE, target.COMPILE)
    assert target.targets_for_host() == []
    monkeypatch.setenv(target.VARIABLE, HOST[-1].name)
    target.named_target.cache_clear()
    assert target.targets_for_host() == [HOST[-1]]
    assert target.machine() == HOST[0].machine
    assert not target.has("avx512f")
    monkeypatch.delenv(target.VARIABLE)
    target.named_target.cache_clear()
    assert target.targets_for_host() == HOST
