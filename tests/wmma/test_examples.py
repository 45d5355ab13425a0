"""The programs of `examples/` and of the documentation run, and compute the stated results."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("wmma_*.py"))
PAGE = ROOT / "docs" / "how-to" / "wmma.md"
TYPES = {"half", "float", "int"}  # words of C++ itself, which are words of wmma in Python


def blocks(language):
    """The blocks of code on the page, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_there_are_examples():
    assert [path.stem for path in EXAMPLES] == ["wmma_bits", "wmma_gemm", "wmma_half", "wmma_scale"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wmma_half", "x[i, lane] on sm_90: row = "),
        ("wmma_scale", "; x[3, 9] is not modelled: the wmma fragments of"),
        ("wmma_bits", "[58 62 62 71 67  0 71 48]"),
        ("wmma_gemm", "65536 codes, 0 differ from gemm"),
    ],
)
def test_examples_run(name, expected, capsys):
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert expected in capsys.readouterr().out


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_the_half_product():
    rng = np.random.default_rng(12)
    a, b = (rng.integers(-20, 20, (16, 16)).astype(np.float16) for _ in "ab")
    c = np.zeros((16, 16), np.float32)
    example("wmma_half")["wmma_ker"](np.asfortranarray(a), b, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90", "sm_100"])
def test_the_scaled_product(arch):
    rng = np.random.default_rng(13)
    a, b = (rng.integers(-20, 20, (16, 16)).astype(np.float16) for _ in "ab")
    c = rng.integers(-99, 99, (16, 16)).astype(np.float32)
    expected = 0.5 * (a.astype(np.float32) @ b.astype(np.float32)) + 2 * c
    example("wmma_scale")["scaled_product"](a, b, c, np.float32(0.5), np.float32(2), arch=arch)
    assert np.array_equal(c, expected)


def test_the_product_of_bits():
    bits = np.random.default_rng(14).integers(0, 2, (2, 8, 128)).astype(bool)
    packed = np.packbits(bits, axis=2, bitorder="little")
    distances = np.zeros((8, 8), np.int32)
    example("wmma_bits")["hamming"](*packed, distances)
    assert np.array_equal(distances, (bits[0][:, None] ^ bits[1]).sum(axis=2))


def test_the_tiled_product_has_the_codes_of_gemm():
    gemm = example("wmma_gemm")
    rng = np.random.default_rng(15)
    A, B = (rng.standard_normal((256, 256)).astype(np.float16) for _ in "AB")
    C = gemm["product"](A, B)
    D = wf.gemm(A, B, instruction=gemm["INSTRUCTION"])
    assert (C.shape, C.dtype) == (D.shape, D.dtype) == ((256, 256), np.float32)
    assert np.array_equal(C.view(np.uint32), D.view(np.uint32))


def test_the_page_runs():
    programs = blocks("python")
    assert len(programs) == 5
    namespace = {"__name__": "page"}
    for number, program in enumerate(programs):
        exec(compile(program, f"{PAGE.name}, block {number}", "exec"), namespace)  # noqa: S102


def test_both_columns_say_the_same():
    """Each C++ program is beside a Python program with the same wmma words in the same order."""
    pairs = re.findall(r"```cuda\n(.*?)```\n\n</td><td>\n\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(pairs) == len(blocks("cuda")) == 1
    for cuda, python in pairs:
        words = re.findall(r"wmma::([\w:]+)", cuda)
        assert len(words) >= 4
        transcribed = [word for word in re.findall(r"\bwmma\.([\w.]+)", python) if word not in TYPES]
        assert transcribed == [word.replace("::", ".") for word in words]
