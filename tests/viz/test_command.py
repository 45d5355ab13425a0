"""`warpfrag draw`: files, text, figures by number, and errors."""

import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import warpfrag as wf
from viz.parsed import draw
from warpfrag.cli.figure_verbs import draw as command
from warpfrag.viz.draw import draw_figure, figure_rows

MMA = "mma.m16n8k16.f32.f16.f16.f32"


def run(*words):
    """Return the command's output; its errors are raised."""
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


def refused(*words):
    """Return the error message of the command."""
    with pytest.raises((click.ClickException, wf.WarpfragError)) as error:
        command.main(list(words), standalone_mode=False)
    return str(error.value)


def test_without_a_file_the_figure_is_printed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")

    assert run(MMA, "c").output == draw(MMA, "c").to_text(90)
    assert run(MMA).output == draw(MMA).to_text(90)


def test_a_file_is_written_and_nothing_printed(tmp_path):
    path = tmp_path / "a.svg"
    result = run(MMA, "A", "--view", "warp", "--theme", "dark", "-o", str(path))

    assert result.output == ""
    assert path.read_text(encoding="utf-8") == draw(MMA, "a", "warp", theme="dark").svg


@pytest.mark.parametrize("key", ["46", "91", "130", "136", "selector"])
def test_a_figure_is_drawn_by_its_number_or_by_its_command(tmp_path, key):
    row = figure_rows()[key]
    by_number, by_command = tmp_path / "number.svg", tmp_path / "command.svg"
    run("--figure", key, "-o", str(by_number))
    run(*shlex.split(row.command)[2:], "-o", str(by_command))
    expected = draw_figure(key)
    names = ("operand", "view", "rows", "cols", "parts", "selector")
    asked = {name: getattr(row, name) for name in names if getattr(row, name)}

    assert by_number.read_text(encoding="utf-8") == expected.svg
    assert by_command.read_text(encoding="utf-8") == draw(row.instruction, **asked).svg
    assert draw(row.instruction, **asked).scenes == expected.scenes


@pytest.mark.parametrize("text", ["2-5", "2..5", "2:5", " 2-5 "])
def test_ranges_are_read(text):
    assert run(MMA, "a", "--rows", text).output.count("T20") == run(MMA, "a", "--rows", "5").output.count("T20") > 0


def test_scales_are_chosen_by_ids():
    name = "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"

    assert "T1: [23:16]" in run(name, "scale_b", "--byte-id", "2", "--thread-id", "1").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected an instruction, or --figure N"),
        (["--figure", "46", MMA, "--rows", "0-1"], f"leave out {MMA}, --rows"),
        (["--figure", "45"], "unknown figure '45'"),
        ([MMA, "a", "--rows", "one"], "expected first-last, such as 16-31, got 'one'"),
        ([MMA, "x"], "must be one of a, b, c, d; got 'x'"),
        ([MMA, "a", "--selector", "3"], "--selector does not apply to a of mma.sync"),
        ([MMA, "--byte-id", "1"], "only to scale_a and scale_b"),
        ([MMA, "a", "-o", "a.bmp"], "cannot save a figure as 'a.bmp'"),
        ([MMA, "a", "-o", "no/such/folder/a.svg"], "cannot write 'no/such/folder/a.svg': No such file or directory"),
    ],
)
def test_bad_input_is_refused(words, message):
    assert message in refused(*words)


def test_drawing_imports_no_numpy():
    code = f"""
import sys
from warpfrag.viz.draw import draw
draw({MMA!r}).svg
draw("mma.sp.m16n8k64.s32.s8.s8.s32").text
print(*sorted({{"numpy", "ml_dtypes", "numba"}} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert result.stdout.strip() == ""
