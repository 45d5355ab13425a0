"""Building the library: the files compiled for each target, and the reuse of an earlier build."""

import json
import sys

import pytest

from warpfrag.tensorcore.native import build_library, levels
from warpfrag.tensorcore.native.build_library import NoCompilerError, build, compiler_for, is_current


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Return a build folder, and the compiler commands that would run; each writes its result."""
    commands = []

    def run(compiler, *arguments):
        commands.append([*compiler, *map(str, arguments)])
        arguments[-1].write_bytes(b"compiled")

    monkeypatch.setattr(build_library, "BUILD", tmp_path)
    monkeypatch.setattr(build_library, "run", run)
    monkeypatch.setattr(build_library, "find_spec", lambda _name: True)
    return commands


@pytest.mark.parametrize(("machine", "count"), [("x86_64", 3), ("aarch64", 1)])
def test_every_file_is_compiled_for_every_level(built, machine, count):
    folder = build(machine, "linux")
    sources = [path for path in levels.source_files() if path.suffix == ".c"]
    assert len(built) == count * len(sources) + 1
    assert all(f"{machine}-linux-gnu.2.17" in command for command in built)
    manifest = json.loads((folder / levels.MANIFEST).read_bytes())
    assert manifest["target"] == f"{machine}-linux"
    assert manifest["platform"] == f"manylinux_2_17_{machine}.manylinux2014_{machine}"


def test_an_unchanged_library_is_not_built_again(built, monkeypatch):
    folder = build("x86_64", "linux")
    assert is_current("x86_64", "linux")
    assert not is_current("aarch64", "linux")
    commands = len(built)
    assert build("x86_64", "linux") == folder
    assert len(built) == commands
    (folder / "libwarpfrag.so").write_bytes(b"damaged")
    assert not is_current("x86_64", "linux")
    build("x86_64", "linux")
    monkeypatch.setattr(levels, "source_digest", lambda: "another")
    assert not is_current("x86_64", "linux")


def test_a_machine_without_code_or_compiler_is_named(built, monkeypatch):
    with pytest.raises(NoCompilerError, match="riscv64"):
        build("riscv64", "linux")
    monkeypatch.setattr(build_library, "find_spec", lambda _name: None)
    other = "aarch64" if levels.host_machine() == "x86_64" else "x86_64"
    with pytest.raises(NoCompilerError, match=f"no C compiler for {other}-linux: install the ziglang package"):
        compiler_for(other, "linux")
    monkeypatch.setenv("WARPFRAG_CC", "mycc -flag")
    assert compiler_for(levels.host_machine(), sys.platform) == ["mycc", "-flag"]
