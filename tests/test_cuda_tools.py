"""The programs of the CUDA toolkit: the search order, and the message if one is missing."""

import os
from types import SimpleNamespace

import pytest

import warpfrag as wf
from warpfrag import cuda_tools
from warpfrag.cli import main

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")


def write_program(path, version):
    """A program that reports a version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release 1, V{version}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A machine with no tools, on which every place of the search is a folder."""
    folders = {"nvidia": tmp_path / "nvidia", "triton": tmp_path / "triton"}
    monkeypatch.setattr(
        cuda_tools, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[str(folders[name])])
    )
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda_path"))
    cuda_tools.read_version.cache_clear()
    return tmp_path


def test_the_order_is_environment_packages_triton_path(places):
    sources = [
        ("PATH", "path/ptxas"),
        ("Triton", "triton/backends/nvidia/bin/ptxas"),
        ("PyPI", "nvidia/cuda_nvcc/bin/ptxas"),
        ("PyPI", "nvidia/cu13/bin/ptxas"),
        ("CUDA_PATH", "cuda_path/bin/ptxas"),
        ("CUDA_HOME", "home/bin/ptxas"),
    ]
    with pytest.raises(wf.errors.MissingExtra, match=r"cannot find ptxas, which assembles .*\.\[assembler\]"):
        cuda_tools.find_tool("ptxas")
    for number, (source, name) in enumerate(sources):
        path = write_program(places / name, f"13.0.{number}")
        assert cuda_tools.find_tool("ptxas") == ("ptxas", path, f"13.0.{number}", source)
    assert [tool.path for tool in cuda_tools.installed("ptxas")] == [places / name for _, name in reversed(sources)]
    own = write_program(places / "mine", "12.9.86")
    assert cuda_tools.find_tool("ptxas", own) == ("ptxas", own, "12.9.86", "path argument")


def test_a_program_that_does_not_run_is_passed_over(places):
    broken = write_program(places / "home/bin/nvcc", "1.0")
    broken.chmod(0o644)
    good = write_program(places / "path/nvcc", "13.4.92")
    assert cuda_tools.find_tool("nvcc").path == good
    with pytest.raises(wf.errors.MissingExtra, match="cannot run .*home/bin/nvcc"):
        cuda_tools.find_tool("nvcc", broken)


def test_the_level_is_read_from_the_environment(monkeypatch):
    monkeypatch.delenv("WARPFRAG_LEVEL", raising=False)
    assert cuda_tools.execution_level() == "auto"
    cuda_tools.check_machine_code_allowed()
    monkeypatch.setenv("WARPFRAG_LEVEL", "ptx")
    with pytest.raises(wf.errors.InvalidOperand, match="turned off by WARPFRAG_LEVEL=ptx"):
        cuda_tools.check_machine_code_allowed()
    monkeypatch.setenv("WARPFRAG_LEVEL", "fast")
    with pytest.raises(wf.errors.InvalidOperand, match="WARPFRAG_LEVEL: expected one of auto, sass, ptx, got 'fast'"):
        cuda_tools.execution_level()


def test_the_verb_lists_tools_and_says_what_is_missing(places, capsys):
    path = write_program(places / "path/nvdisasm", "13.4.92")
    assert main(["tools"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["tool", "nvcc", "ptxas", "nvdisasm"]
    assert ["13.4.92", "PATH", str(path)] == lines[3].split()[1:4]
    assert "pip install '.[assembler]'" in " ".join(" ".join(lines[5:]).split())
    for name in ("nvcc", "ptxas", "nvlink"):
        write_program(places / "home/bin" / name, "13.0.88")
    assert main(["tools", "--json"]) == 0
    assert '"install": null' in capsys.readouterr().out
