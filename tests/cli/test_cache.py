"""`warpfrag cache`: the location, the size and the removal of compiled code."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpfrag import disk_cache
from warpfrag.cli import installation_verbs as cache
from warpfrag.machine.jit import llvm_compiler
from warpfrag.tensorcore.native import library

OBJECT, OTHER = "0123456789abcdef" * 2 + ".o", "fedcba9876543210" * 2 + ".o"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return one folder of each kind, with compiled code and other files."""
    folders = [
        cache.CodeFolder("wheel", tmp_path / "native", ("libwarpfrag.so",)),
        cache.CodeFolder("ptx", tmp_path / "ptx", (f"{'[0-9a-f]' * disk_cache.DIGITS}.o",)),
        cache.CodeFolder("ptx", tmp_path / "missing", ("*.o",)),
    ]
    for name in ("native/libwarpfrag.so", "native/library.json", f"ptx/{OBJECT}", f"ptx/{OTHER}", "ptx/mine.o"):
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
    assert sizes(answer) == [("wheel", 1, 10), ("ptx", 2, 20), ("ptx", 0, 0)]
    table = run("cache").lines
    assert [line.split()[:3] for line in table[1:4]] == [["wheel", "1", "10"], ["ptx", "2", "20"], ["ptx", "0", "0"]]
    assert str(places / "ptx") in table[2]


def test_clearing_leaves_the_wheel_and_what_is_not_compiled_code(run, places):
    answer = run("cache", "--clear")
    assert (answer.code, answer.lines[-1]) == (0, "note: 2 files removed")
    left = {path.name for path in places.rglob("*") if path.is_file()}
    assert left == {"libwarpfrag.so", "library.json", "mine.o"}
    assert run("cache", "--clear", "--json").json["removed"] == 0


def test_what_cannot_be_removed_is_named(run, places, monkeypatch):
    unlink = Path.unlink

    def read_only(path, **options):
        if path.name == OTHER:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", read_only)
    answer = run("cache", "--clear", "--json")
    assert answer.code == 1
    assert (answer.json["removed"], answer.json["kept"]) == (1, [f"{OTHER}: Permission denied"])
    assert run("cache", "--clear").lines[-1].strip() == f"note: {OTHER}: Permission denied"


def listed(**environment):
    """Return the output of the command in a separate process."""
    command = [sys.executable, "-m", "warpfrag", "cache", "--json"]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}
    settings = {**inherited, **environment}
    said = subprocess.run(command, check=True, env=settings, capture_output=True, text=True, encoding="utf-8")
    return [(row["contents"], Path(row["folder"])) for row in json.loads(said.stdout)["folders"]], said.stderr


def test_the_folders_are_those_that_code_is_written_to(tmp_path):
    """WARPFRAG_CACHE_DIR comes first; without it, a read-only installation uses the user's folder."""
    folders, errors = listed(WARPFRAG_CACHE_DIR=str(tmp_path))
    assert errors == ""
    assert folders[0] == ("wheel", library.FOLDER)
    assert folders[1] == ("ptx", tmp_path / "ptx")
    folders, errors = listed(WARPFRAG_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path))
    assert errors == ""
    assert {contents for contents, _ in folders} == {"wheel", "ptx", "sass"}
    assert ("ptx", tmp_path / "warpfrag" / "ptx") in folders


def test_code_of_ptx_kernels_is_kept_below_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path])
    monkeypatch.setattr(llvm_compiler, "compile_text", lambda text, _level: text.encode() * 10)
    limit = 2 * (10 + disk_cache.DIGEST_BYTES)
    monkeypatch.setattr(llvm_compiler, "CACHE", llvm_compiler.CACHE._replace(max_bytes=limit))
    for age, text in enumerate("ab"):
        llvm_compiler.object_of(text, 0)
        os.utime(tmp_path / llvm_compiler.name_of(text, 0), (age, age))
    assert llvm_compiler.object_of("a", 0) == b"a" * 10  # read, so used later than b
    llvm_compiler.object_of("c", 0)
    assert {path.name for path in tmp_path.iterdir()} == {llvm_compiler.name_of(text, 0) for text in "ac"}
