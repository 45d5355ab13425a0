"""`warpfrag cache`: where compiled code lies, how large it grows, and that it can be removed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpfrag import disk_cache
from warpfrag.cli import installation_verbs as cache
from warpfrag.machine.jit import object_cache
from warpfrag.native import library

OBJECT = "0123456789abcdef" * 2 + ".o"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """One folder of each kind, with files, and with others that are not compiled code."""
    folders = [
        cache.CodeFolder("wheel", tmp_path / "native", ("libwarpfrag.so",)),
        cache.CodeFolder("loops", tmp_path / "numba", ("*.nbi", "*.nbc")),
        cache.CodeFolder("ptx", tmp_path / "ptx", (f"{'[0-9a-f]' * object_cache.DIGITS}.o",)),
        cache.CodeFolder("ptx", tmp_path / "missing", ("*.o",)),
    ]
    for name in ("native/libwarpfrag.so", "numba/a.nbi", "numba/a.1.nbc", "numba/a.pyc", f"ptx/{OBJECT}", "ptx/mine.o"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(10))
    monkeypatch.setattr(cache, "code_folders", lambda: folders)
    return tmp_path


def sizes(answer):
    return [(row["contents"], row["files"], row["bytes"]) for row in answer.json["folders"]]


def test_folders_are_listed_with_their_sizes(run, places):
    answer = run("cache", "--json")
    assert (answer.code, answer.json["removed"], answer.json["kept"]) == (0, 0, [])
    assert sizes(answer) == [("wheel", 1, 10), ("loops", 2, 20), ("ptx", 1, 10), ("ptx", 0, 0)]
    table = run("cache").lines
    assert [line.split()[:3] for line in table[1:4]] == [["wheel", "1", "10"], ["loops", "2", "20"], ["ptx", "1", "10"]]
    assert str(places / "numba") in table[2]


def test_clearing_leaves_the_wheel_and_what_is_not_compiled_code(run, places):
    answer = run("cache", "--clear")
    assert (answer.code, answer.lines[-1]) == (0, "note: 3 files removed")
    left = {path.name for path in places.rglob("*") if path.is_file()}
    assert left == {"libwarpfrag.so", "a.pyc", "mine.o"}
    assert run("cache", "--clear", "--json").json["removed"] == 0


def test_what_cannot_be_removed_is_named(run, places, monkeypatch):
    unlink = Path.unlink

    def read_only(path, **options):
        if path.suffix == ".nbi":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", read_only)
    answer = run("cache", "--clear", "--json")
    assert answer.code == 1
    assert (answer.json["removed"], answer.json["kept"]) == (2, ["a.nbi: Permission denied"])
    assert run("cache", "--clear").lines[-1].strip() == "note: a.nbi: Permission denied"


def listed(**environment):
    """What the command says in a process of its own."""
    command = [sys.executable, "-m", "warpfrag", "cache", "--json"]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}
    settings = {**inherited, **environment}
    said = subprocess.run(command, check=True, env=settings, capture_output=True, text=True, encoding="utf-8")
    return [(row["contents"], Path(row["folder"])) for row in json.loads(said.stdout)["folders"]], said.stderr


def test_the_folders_are_those_that_code_is_written_to(tmp_path):
    """A folder that NUMBA_CACHE_DIR names comes first; without one, a read-only installation has the user's."""
    folders, errors = listed(NUMBA_CACHE_DIR=str(tmp_path))
    assert errors == ""
    assert folders[0] == ("wheel", library.FOLDER)
    loops = [folder for contents, folder in folders if contents == "loops"]
    assert [folder.is_relative_to(tmp_path) for folder in loops] == [True]
    assert next(folder for contents, folder in folders if contents == "ptx") == tmp_path / "ptx"
    folders, errors = listed(NUMBA_DISABLE_JIT="1", NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path))
    assert "NUMBA_DISABLE_JIT is set" in errors
    assert {contents for contents, _ in folders} == {"ptx", "sass"}
    assert ("ptx", tmp_path / "warpfrag" / "ptx") in folders


def test_code_of_ptx_kernels_is_kept_below_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path])
    monkeypatch.setattr(object_cache, "compile_text", lambda text, _level: text.encode() * 10)
    limit = 2 * (10 + disk_cache.DIGEST_BYTES)
    monkeypatch.setattr(object_cache, "CACHE", object_cache.CACHE._replace(max_bytes=limit))
    for age, text in enumerate("ab"):
        object_cache.object_of(text, 0)
        os.utime(tmp_path / object_cache.name_of(text, 0), (age, age))
    assert object_cache.object_of("a", 0) == b"a" * 10  # read, so used later than b
    object_cache.object_of("c", 0)
    assert {path.name for path in tmp_path.iterdir()} == {object_cache.name_of(text, 0) for text in "ac"}
