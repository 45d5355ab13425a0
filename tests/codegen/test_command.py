"""`warpfrag emit`."""

import json

import pytest
from click.testing import CliRunner

from warpfrag.cli.code_verbs import emit as command
from warpfrag.codegen.emit import emit
from warpfrag.errors import FileError, IllegalInstruction

MMA = "mma.m16n8k16.f32.f16.f16.f32"


def run(*words):
    return CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)


def test_the_code_is_printed():
    assert run(MMA).stdout == emit(MMA)
    assert run(MMA, "--kernels").stdout == emit(MMA, kernels=True)
    assert run(MMA, "--lang", "ptx", "--arch", "90").stdout.strip() == emit(MMA, lang="ptx", arch="sm_90").strip()


def test_the_code_is_written_to_a_file(tmp_path):
    place = tmp_path / "mma.cuh"
    answer = run(MMA, "mma.m16n8k8.f32.f16.f16.f32", "-o", str(place))

    assert place.read_text(encoding="utf-8") == emit([MMA, "mma.m16n8k8.f32.f16.f16.f32"])
    assert str(place) in answer.stdout


def test_json():
    answer = json.loads(run(MMA, "--json").stdout)

    assert answer["schema"] == 2
    assert answer["instructions"] == ["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    assert answer["text"] == emit(MMA)
    assert [json.loads(run(MMA, "--json", *more).stdout)["kernels"] for more in ([], ["--kernels"])] == [False, True]
    assert json.loads(run(MMA, "--json", "--lang", "ptx").stdout)["kernels"]


def test_refusals(tmp_path):
    with pytest.raises(IllegalInstruction, match="not available on sm_75"):
        run(MMA, "--arch", "sm_75")
    with pytest.raises(FileError, match="cannot write"):
        run(MMA, "-o", str(tmp_path / "missing" / "x.cuh"))
