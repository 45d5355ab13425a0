"""Damaged stores are repaired, and never reported as complete.

`python tests/sweep/test_damage.py 0 2000` tries that range of seeds; the suite tries a few.
"""

import json
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.cli import main
from warpfrag.errors import StoreWarning
from warpfrag.sweep import SweepPlan, sweep, sweep_store
from warpfrag.sweep import open as open_results
from warpfrag.sweep import sweep_run as run

zarr = pytest.importorskip("zarr", reason="needs the extra dask")

F16 = "mma.m16n8k16.f32.f16.f16.f32"
TABLE = {"instruction": F16, "arch": ["sm_80", "sm_90"], "shape": [5, 7, 16], "data": "normal", "block": [3, 4]}
TOML = f'instruction = "{F16}"\narch = ["sm_80", "sm_90"]\nshape = [5, 7, 16]\ndata = "normal"\nblock = [3, 4]\n'


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Stopped(Exception):
    """A sweep that ends in the middle."""


def make_stores(folder: Path) -> None:
    """Return a complete store, and one with a case and a half done."""

    def stop(done: int, *_: object) -> None:
        if done == 6:
            raise Stopped

    sweep(SweepPlan.of_table(TABLE), folder / "complete.zarr")
    with pytest.raises(Stopped):
        sweep(SweepPlan.of_table(TABLE), folder / "stopped.zarr", progress=stop)
    assert [name for name in sorted(files(folder / "stopped.zarr")) if name.startswith(".blocks")] == [
        ".blocks/1/0.0.json",
        ".blocks/1/0.1.json",
    ]


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    make_stores(folder)
    return folder


# What can happen to a store. Each takes the store, a generator and a file of the store to damage.


def flip(folder: Path, chance: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 3])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def replace_byte(folder: Path, chance: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] = chance.choice(b'0123456789 \n\0\xff"{}[],e')
    file.write_bytes(content)


def delete(folder: Path, chance: random.Random, file: Path) -> None:
    file.unlink()


def truncate(folder: Path, chance: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])


def lengthen(folder: Path, chance: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes() + chance.randbytes(chance.randrange(1, 9)))


def put_folder(folder: Path, chance: random.Random, file: Path) -> None:
    file.unlink()
    file.mkdir()
    if chance.random() < 0.5:
        (file / "0").write_bytes(b"x")


def zeros(folder: Path, chance: random.Random, file: Path) -> None:
    """Return the kinds of files that a power failure leaves."""
    file.write_bytes(bytes(file.stat().st_size))


DAMAGES = {damage.__name__: damage for damage in (flip, replace_byte, delete, truncate, lengthen, put_folder, zeros)}


def try_damage(stores: Path, folder: Path, seed: int) -> str:
    """Damage a store at random, sweep it, check the messages, and return the outcome in one word."""
    chance = random.Random(seed)
    begin = chance.choice(["complete", "stopped"])
    path = folder / f"{seed}.zarr"
    shutil.copytree(stores / f"{begin}.zarr", path)
    whole = files(stores / "complete.zarr")
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        present = [file for file in sorted(path.glob("*/c/*/*")) if file.is_file() and file.stat().st_size]
        if present:
            DAMAGES[chance.choice([*DAMAGES])](path, chance, chance.choice(present))
    damaged = files(path)
    is_damaged = damaged != files(stores / f"{begin}.zarr")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = open_results(path, verify=True)
        assert files(path) == damaged, "a store that is only read is changed"
        assert bool(before.damage) == any(issubclass(entry.category, StoreWarning) for entry in told), told
    if before.is_complete:
        assert {name: damaged.get(name) for name in whole} == whole, "a damaged store is called complete"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        outcomes = sweep(SweepPlan.of_table(TABLE), path, verify=True)
    now = files(path)
    assert {name: now.get(name) for name in whole} == whole, "a damaged store is called repaired"
    assert not [name for name in now if name.startswith(".blocks")], "records are left"
    repaired = [text for outcome in outcomes for text in outcome.repaired]
    assert bool(repaired) == any(issubclass(entry.category, StoreWarning) for entry in told)
    assert open_results(path, verify=True).is_complete
    shutil.rmtree(path)
    if repaired:
        return "repaired"
    return "computed" if is_damaged or begin == "stopped" else "whole"


@pytest.mark.parametrize("first", [0, 15])
def test_damaged_chunks_are_repaired(stores, tmp_path, first: int):
    became = Counter(try_damage(stores, tmp_path, seed) for seed in range(first, first + 15))
    assert became["repaired"] > 10


LOOKED_AT = {
    "deleted": (lambda file: file.unlink(), "is missing"),
    "cut": (lambda file: file.write_bytes(file.read_bytes()[:-1]), "has 51 bytes, not 52"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "is missing"),
}


@pytest.mark.parametrize("damage", LOOKED_AT)
@pytest.mark.parametrize("begin", ["complete", "stopped"])
def test_presence_and_size_are_looked_at_without_being_asked(stores, tmp_path, begin, damage: str):
    """In a finished case, and in one that has a record."""
    path, (change, reason) = tmp_path / "sweep.zarr", LOOKED_AT[damage]
    shutil.copytree(stores / f"{begin}.zarr", path)
    file = "0/c/1/0" if begin == "complete" else "1/c/0/0"
    change(path / file)
    with pytest.warns(StoreWarning, match=f"sweep.zarr' is damaged; .*{file} {reason}"):
        outcomes = sweep(SweepPlan.of_table(TABLE), path)
    assert f"{file} {reason}" in outcomes[int(file[0])].repaired
    assert files(path) == files(stores / "complete.zarr")
    assert [outcome.repaired for outcome in sweep(SweepPlan.of_table(TABLE), path)] == [(), ()]


def test_content_is_compared_when_that_is_asked_for(stores, tmp_path):
    """Chunks with another bit; damage that was found is not forgotten if the sweep is killed."""
    path = tmp_path / "sweep.zarr"
    shutil.copytree(stores / "complete.zarr", path)
    for name in ("0/c/0/0", "1/c/0/0", "1/c/0/1"):
        chunk = path / name
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])

    assert open_results(path).is_complete  # it was not read
    with pytest.warns(StoreWarning, match="sweep.zarr' is damaged: 0/c/0/0 does not match"):
        results = open_results(path, verify=True)
    assert [(entry.case, entry.block, entry.reason) for entry in results.damage] == [
        ("0", (0, 0), "does not match its checksum"),
        ("1", (0, 0), "does not match its checksum"),
        ("1", (0, 1), "does not match its checksum"),
    ]
    assert not results.is_complete
    with pytest.raises(wf.errors.FileError, match=r"0' is damaged: 0/c/0/0 does not match its checksum"):
        open_results(path).read("0")

    def stop(*_: object) -> None:
        raise Stopped

    with pytest.warns(StoreWarning), pytest.raises(Stopped):
        sweep(SweepPlan.of_table(TABLE), path, verify=True, progress=stop)
    with pytest.warns(StoreWarning, match="is damaged: 1/c/0/0 is missing; 1/c/0/1 is missing"):
        assert not open_results(path).is_complete
    with pytest.warns(StoreWarning, match="computing these chunks again: 1/c/0/0 is missing"):
        sweep(SweepPlan.of_table(TABLE), path)
    assert files(path) == files(stores / "complete.zarr")


@pytest.mark.parametrize("file", ["zarr.json", "1/zarr.json"])
@pytest.mark.parametrize("damage", ["truncate", "zeros", "put_folder"])
def test_damaged_metadata_are_refused_by_name(stores, tmp_path, monkeypatch, capsys, file: str, damage: str):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(TOML, encoding="utf-8")
    shutil.copytree(stores / "complete.zarr", "sweep.zarr")
    DAMAGES[damage](Path("sweep.zarr"), random.Random(3), Path("sweep.zarr") / file)
    before = files(Path("sweep.zarr"))

    assert main(["sweep", "sweep.toml"]) == 2
    assert capsys.readouterr().err.startswith(("warpfrag: 'sweep.zarr/", "warpfrag: cannot read 'sweep.zarr/"))
    with pytest.raises(wf.errors.FileError, match=r"sweep.zarr/.*zarr.json"):
        open_results("sweep.zarr")
    assert files(Path("sweep.zarr")) == before


def test_the_command_reports_repairs(stores, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(TOML, encoding="utf-8")
    shutil.copytree(stores / "complete.zarr", "sweep.zarr")
    chunk = Path("sweep.zarr/0/c/0/1")
    chunk.write_bytes(chunk.read_bytes()[::-1])

    assert main(["sweep", "sweep.toml"]) == 0
    assert "nothing to compute" in capsys.readouterr().out
    assert main(["sweep", "sweep.toml", "--verify", "--json"]) == 0
    told = capsys.readouterr()
    assert "warpfrag: sweep.zarr was damaged: 0/c/0/1 does not match its checksum; recomputed\n" in told.err
    answer = json.loads(told.out)
    assert answer["computed"] == 1
    assert [case["repaired"] for case in answer["cases"]] == [["0/c/0/1 does not match its checksum"], []]
    assert main(["sweep", "sweep.toml", "--verify"]) == 0
    assert capsys.readouterr().err == ""


def test_a_store_is_read_without_computing(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "run_task", None)
    results = open_results(stores / "complete.zarr")
    assert (results.plan, results.done, results.blocks, results.damage) == (SweepPlan.of_table(TABLE), 8, 8, ())
    assert results.is_complete
    for outcome in results.outcomes:
        D = wf.gemm(**outcome.case.operands(), **outcome.case.options(), raw=True)
        assert np.array_equal(results.read(outcome.name).view(np.uint32), D)
    results = open_results(stores / "stopped.zarr", verify=True)
    assert (results.done, results.blocks, results.is_complete) == (6, 8, False)
    assert [outcome.figures is None for outcome in results.outcomes] == [False, True]
    with pytest.raises(wf.errors.FileError, match="1' is not finished"):
        results.read("1")
    with pytest.raises(wf.errors.InvalidOperand, match="expected one of the cases 0 to 1, got 'x'"):
        results.read("x")
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}', encoding="utf-8")
    for wrong, message in (
        (tmp_path, "is not a sweep"),
        (tmp_path / "none", "No such file"),
        (3, "the path of a store"),
    ):
        with pytest.raises(wf.errors.FileError, match=message):
            open_results(wrong)
    with pytest.raises(wf.errors.InvalidOperand, match="verify must be True or False, got 1"):
        open_results(stores / "complete.zarr", verify=1)


def test_another_schema_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sweep_store, "SCHEMA", 9)
        sweep(SweepPlan.of_table(TABLE), tmp_path / "sweep.zarr")
    for function in (open_results, lambda path: sweep(SweepPlan.of_table(TABLE), path)):
        with pytest.raises(wf.errors.FileError, match="zarr.json' has schema 9, expected 4"):
            function(tmp_path / "sweep.zarr")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        make_stores(Path(temporary))
        totals: Counter[str] = Counter()
        for each in range(*map(int, sys.argv[1:3])):
            try:
                totals[try_damage(Path(temporary), Path(temporary), each)] += 1
            except BaseException:
                print("seed", each)  # noqa: T201
                raise
        print(dict(totals))  # noqa: T201
