"""Stores that were damaged: each is mended or refused, and none is called complete.

`python tests/sweep/test_damage.py 0 2000` tries that range of seeds; the suite tries a few.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.cli import main
from warpfrag.sweep import StoreWarning, Study, contents, store, sweep
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
    """A store that is complete, and one of which a case and a half are done."""

    def stop(done: int, *_: object) -> None:
        if done == 6:
            raise Stopped

    sweep(Study.of_table(TABLE), folder / "complete.zarr")
    with pytest.raises(Stopped):
        sweep(Study.of_table(TABLE), folder / "stopped.zarr", progress=stop)
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


def put_file(folder: Path, chance: random.Random, file: Path) -> None:
    """In the place of a folder that leads to it."""
    place = chance.choice([parent for parent in file.parents if folder in parent.parents] or [file])
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.write_bytes(b"x")


def delete_folder(folder: Path, chance: random.Random, file: Path) -> None:
    place = chance.choice([parent for parent in file.parents if folder in parent.parents] or [file])
    shutil.rmtree(place) if place.is_dir() else place.unlink()


def alike(folder: Path, file: Path) -> list[Path]:
    """Files of the same kind; the file itself where there are no others."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix == file.suffix]
    return [path for path in files if path != file] or [file]


def swap(folder: Path, chance: random.Random, file: Path) -> None:
    """Two files of one kind in each other's place."""
    other = chance.choice(alike(folder, file))
    mine, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(mine)


def copy(folder: Path, chance: random.Random, file: Path) -> None:
    """A file in the place of another of its kind, which is lost."""
    chance.choice(alike(folder, file)).write_bytes(file.read_bytes())


def zeros(folder: Path, chance: random.Random, file: Path) -> None:
    """What a file system leaves after a power cut."""
    file.write_bytes(bytes(file.stat().st_size))


def stale_record(folder: Path, chance: random.Random, file: Path) -> None:
    """A record of a block that is not there, is of another case, or does not exist."""
    records = [path for path in sorted(folder.glob(".blocks/*/*.json")) if path.is_file()]
    content = chance.choice(records).read_bytes() if records else b"{}"
    name = chance.choice(["0/0.0", "1/1.1", "1/1.0", "1/7.7", "1/0.00", "1/x", "1/0", "1/-1.0", "0/1.1"])
    target = folder / ".blocks" / f"{name}.json"
    with suppress(OSError):  # a file is where the folder should be, or the other way round
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


DAMAGES = {
    damage.__name__: damage
    for damage in (
        flip, replace_byte, delete, truncate, lengthen, put_folder, put_file, delete_folder, swap, copy, zeros,
        stale_record,
    )
}  # fmt: skip


def try_damage(stores: Path, folder: Path, seed: int) -> str:
    """Damage a store at random, sweep it, and check what is said of it; in a word, what became of it."""
    chance = random.Random(seed)
    begin = chance.choice(["complete", "stopped"])
    path = folder / f"{seed}.zarr"
    shutil.copytree(stores / f"{begin}.zarr", path)
    whole = files(stores / "complete.zarr")
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        present = [file for file in sorted(path.rglob("*")) if file.is_file() and file.stat().st_size]
        if len(present) > 1:
            DAMAGES[chance.choice([*DAMAGES])](path, chance, chance.choice(present))
    damaged = files(path)
    is_damaged = damaged != files(stores / f"{begin}.zarr")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            before = open_results(path, verify=True)
        except wf.WarpfragError:
            before = None
        assert files(path) == damaged, "a store that is only read is changed"
        listed = before is not None and bool(before.damage)
        assert listed == any(issubclass(entry.category, StoreWarning) for entry in told), told
    if before is not None and before.is_complete:
        assert {name: damaged.get(name) for name in whole} == whole, "a damaged store is called complete"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            outcomes = sweep(Study.of_table(TABLE), path, verify=True)
        except wf.errors.FileError as error:
            refusal = str(error)
        else:
            refusal = ""
    if refusal:
        assert str(path) in refusal
        shutil.rmtree(path)
        return "refused"
    now = files(path)
    assert {name: now.get(name) for name in whole} == whole, "a damaged store is called mended"
    assert not [name for name in now if name.startswith(".blocks")], "records are left"
    mended = [text for outcome in outcomes for text in outcome.repaired]
    assert bool(mended) == any(issubclass(entry.category, StoreWarning) for entry in told)
    assert open_results(path, verify=True).is_complete
    shutil.rmtree(path)
    if mended:
        return "mended"
    return "computed" if is_damaged or begin == "stopped" else "whole"


@pytest.mark.parametrize("first", [0, 15])
def test_damaged_stores_are_mended_or_refused(stores, tmp_path, first: int):
    became = Counter(try_damage(stores, tmp_path, seed) for seed in range(first, first + 15))
    assert became["mended"] > 3
    assert became["refused"] > 3


LOOKED_AT = {
    "deleted": (lambda file: file.unlink(), "is missing"),
    "cut": (lambda file: file.write_bytes(file.read_bytes()[:-1]), "has 51 bytes, not 52"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "is no file"),
    "a file above": (lambda file: (shutil.rmtree(file.parent), file.parent.touch()), "is missing"),
}


@pytest.mark.parametrize("damage", LOOKED_AT)
@pytest.mark.parametrize("begin", ["complete", "stopped"])
def test_presence_and_size_are_looked_at_without_being_asked(stores, tmp_path, begin, damage: str):
    """In a case that is done, and in one of which there is a record."""
    path, (change, reason) = tmp_path / "study.zarr", LOOKED_AT[damage]
    shutil.copytree(stores / f"{begin}.zarr", path)
    file = "0/c/1/0" if begin == "complete" else "1/c/0/0"
    change(path / file)
    with pytest.warns(StoreWarning, match=f"study.zarr' is damaged, .*{file} {reason}"):
        outcomes = sweep(Study.of_table(TABLE), path)
    assert f"{file} {reason}" in outcomes[int(file[0])].mended
    assert files(path) == files(stores / "complete.zarr")
    assert [outcome.repaired for outcome in sweep(Study.of_table(TABLE), path)] == [(), ()]


def test_content_is_compared_when_that_is_asked_for(stores, tmp_path):
    """A chunk with another bit, and two in each other's place; what was noticed is not forgotten by a kill."""
    path = tmp_path / "study.zarr"
    shutil.copytree(stores / "complete.zarr", path)
    chunk = path / "0/c/0/0"
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    (path / "1/c/0/0").rename(tmp_path / "kept")
    (path / "1/c/0/1").rename(path / "1/c/0/0")
    (tmp_path / "kept").rename(path / "1/c/0/1")

    assert open_results(path).is_complete  # it was not read
    with pytest.warns(StoreWarning, match="study.zarr' is damaged: 0/c/0/0 does not fit"):
        results = open_results(path, verify=True)
    assert [(entry.case, entry.place, entry.reason) for entry in results.damage] == [
        ("0", (0, 0), "does not fit its checksum"),
        ("1", (0, 0), "holds another block"),
        ("1", (0, 1), "holds another block"),
    ]
    assert not results.is_complete
    with pytest.raises(wf.errors.FileError, match=r"0' is damaged: 0/c/0/0 does not fit its checksum"):
        open_results(path).read("0")

    def stop(*_: object) -> None:
        raise Stopped

    with pytest.warns(StoreWarning), pytest.raises(Stopped):
        sweep(Study.of_table(TABLE), path, verify=True, progress=stop)
    with pytest.warns(StoreWarning, match="is damaged: 1/c/0/0 is missing; 1/c/0/1 is missing"):
        assert not open_results(path).is_complete
    with pytest.warns(StoreWarning, match="what is lost is computed again: 1/c/0/0 is missing"):
        sweep(Study.of_table(TABLE), path)
    assert files(path) == files(stores / "complete.zarr")


def test_a_block_that_comes_out_otherwise_is_refused(stores, tmp_path, monkeypatch):
    """Its figures are of other numbers: another machine made them, or this one is broken."""
    path = tmp_path / "study.zarr"
    shutil.copytree(stores / "complete.zarr", path)
    (path / "1/c/0/1").unlink()
    right = run.run_task
    monkeypatch.setattr(run, "run_task", lambda task: (right(task)[0] + 1, right(task)[1]))
    with (
        pytest.warns(StoreWarning),
        pytest.raises(wf.errors.FileError, match=r"1/c/0/1' is lost: computed again, it is"),
    ):
        sweep(Study.of_table(TABLE), path)
    monkeypatch.setattr(run, "run_task", lambda task: "the GPU of this machine is sm_75")
    with pytest.warns(StoreWarning), pytest.raises(wf.errors.FileError, match=r"1/c/0/1' is lost: the GPU of this"):
        sweep(Study.of_table(TABLE), path)
    with pytest.warns(StoreWarning):
        assert not open_results(path).is_complete
    assert (path / "1/zarr.json").is_file()


@pytest.mark.parametrize("file", ["zarr.json", "1/zarr.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "zeros", "put_folder", "swap"])
def test_damaged_metadata_are_refused_by_name(stores, tmp_path, monkeypatch, capsys, file: str, damage: str):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(TOML, encoding="utf-8")
    shutil.copytree(stores / "complete.zarr", "study.zarr")
    DAMAGES[damage](Path("study.zarr"), random.Random(3), Path("study.zarr") / file)
    before = files(Path("study.zarr"))

    assert main(["sweep", "study.toml"]) == 2
    assert capsys.readouterr().err.startswith(("warpfrag: 'study.zarr/", "warpfrag: cannot read 'study.zarr/"))
    with pytest.raises(wf.errors.FileError, match=r"study.zarr/.*zarr.json"):
        open_results("study.zarr")
    assert files(Path("study.zarr")) == before


def test_figures_that_were_changed_are_noticed(stores, tmp_path):
    """A document whose JSON is right, and whose numbers are not."""
    path = tmp_path / "study.zarr"
    shutil.copytree(stores / "complete.zarr", path)
    document = json.loads((path / "0/zarr.json").read_text(encoding="utf-8"))
    document["attributes"]["figures"]["compared"] += 1
    (path / "0/zarr.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    with pytest.raises(wf.errors.FileError, match="0/zarr.json' is damaged: it is not what a sweep has written"):
        sweep(Study.of_table(TABLE), path)


def test_the_command_says_what_it_mends(stores, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(TOML, encoding="utf-8")
    shutil.copytree(stores / "complete.zarr", "study.zarr")
    chunk = Path("study.zarr/0/c/0/1")
    chunk.write_bytes(chunk.read_bytes()[::-1])

    assert main(["sweep", "study.toml"]) == 0
    assert "nothing was left to compute" in capsys.readouterr().out
    assert main(["sweep", "study.toml", "--verify", "--json"]) == 0
    told = capsys.readouterr()
    text = "'study.zarr' is damaged, and what is lost is computed again: 0/c/0/1 does not fit its checksum"
    assert f"warpfrag: {text}" in told.err
    answer = json.loads(told.out)
    assert answer["computed"] == 1
    assert [case["mended"] for case in answer["cases"]] == [["0/c/0/1 does not fit its checksum"], []]
    assert main(["sweep", "study.toml", "--verify"]) == 0
    assert capsys.readouterr().err == ""


def as_version_0_2(path: Path) -> None:
    """A store as 0.2 wrote it: without checksums."""
    for file in [*path.glob("*/c/*/*")]:
        file.write_bytes(file.read_bytes()[:-4])
    for file in [*path.rglob("zarr.json")]:
        document = json.loads(file.read_text(encoding="utf-8"))
        attributes = document["attributes"]
        for name in ("checksum", "crc32c"):
            attributes.pop(name, None)
        if "warpfrag" in attributes:
            attributes["warpfrag"] |= {"schema": 1, "version": "0.2.0"}
        else:
            document["codecs"].pop()
        file.write_text(json.dumps(document, indent=2), encoding="utf-8")


def test_stores_of_0_2_are_read_with_a_warning(stores, tmp_path):
    path, message = tmp_path / "study.zarr", "was made with version 0.2.0: it has no checksums to tell damage by"
    shutil.copytree(stores / "complete.zarr", path)
    new = open_results(path)
    as_version_0_2(path)
    before = files(path)
    with pytest.warns(StoreWarning, match=message):
        results = open_results(path, verify=True)
    assert results.is_complete
    assert np.array_equal(results.read("1"), zarr.open_group(stores / "complete.zarr", mode="r")["1"][:])
    with pytest.warns(StoreWarning, match=message):
        assert sweep(Study.of_table(TABLE), path) == [*new.outcomes] == [*results.outcomes]
    (path / "1/c/0/0").write_bytes(b"x")
    with pytest.raises(
        wf.errors.FileError, match=r"0\.2\.0, and this version cannot go on with it: 1/c/0/0 has 1 bytes"
    ):
        sweep(Study.of_table(TABLE), path)
    with pytest.warns(StoreWarning, match="1/c/0/0 has 1 bytes, not 48"):
        assert not open_results(path).is_complete
    assert files(path) == before | {"1/c/0/0": b"x"}
    document = json.loads(before["zarr.json"])
    document["attributes"]["warpfrag"]["study"]["seed"] = [1]
    (path / "zarr.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(wf.errors.FileError, match="zarr.json' is damaged"):
        open_results(path)


def test_a_store_is_read_without_computing(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "run_task", None)
    results = open_results(stores / "complete.zarr")
    assert (results.study, results.done, results.blocks, results.damage) == (Study.of_table(TABLE), 8, 8, ())
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
    for wrong, message in ((tmp_path, "is no study"), (tmp_path / "none", "No such file"), (3, "the name of a store")):
        with pytest.raises(wf.errors.FileError, match=message):
            open_results(wrong)
    with pytest.raises(wf.errors.InvalidOperand, match="verify is True or False, got 1"):
        open_results(stores / "complete.zarr", verify=1)


def test_another_schema_is_refused(tmp_path, monkeypatch):
    for module in (contents, store):
        monkeypatch.setattr(module, "SCHEMA", 3)
    sweep(Study.of_table(TABLE), tmp_path / "study.zarr")
    monkeypatch.undo()
    with pytest.raises(wf.errors.FileError, match="it was made with schema 3, and this is 2"):
        sweep(Study.of_table(TABLE), tmp_path / "study.zarr")
    with pytest.raises(wf.errors.FileError, match="zarr.json' has schema 3, not 2"):
        open_results(tmp_path / "study.zarr")


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
