"""Random kernels with the memory that an H200 left: they contain every opcode row that ptxas accepts.

`python -m tools.fuzz keep` makes the set of what `python -m tools.fuzz run --keep` chose on a GPU. The input of a
kernel comes from its seed.
"""

import hashlib

import pytest

from slow_cases import sampled
from tools.fuzz import fixed_set
from tools.fuzz.coverage import missing_in_text
from tools.fuzz.emulation import launch, make_data

pytestmark = pytest.mark.one_engine  # the compiler takes seconds for each; tools.fuzz compares the engines

KERNELS = list(fixed_set.read())


def run(kernel):
    data = make_data(kernel.seed, kernel.in_bytes, kernel.out_bytes, has_nans=kernel.has_nans)
    arrays = [data.given, data.before]
    launch(kernel.text, kernel.grid, kernel.block, [*arrays, data.blob], engine="reference")
    return arrays[1].tobytes()


MISCOMPILED = {
    1200102: "the guard of testp is ignored",
    1200171: "a narrow store converts a float to an integer",
    1200408: "max.f64 of a NaN with itself keeps its bits",
    1200476: "the guard of set does not cover its conversion",
}
"""Kernels that ptxas 13.0 does not compile to what the manual says (docs/explanation/ptxas-miscompilations.md)."""


@pytest.mark.parametrize("kernel", sampled(KERNELS, 5), ids=lambda kernel: str(kernel.seed))
def test_the_output_is_what_the_gpu_left_unless_ptxas_miscompiles(kernel):
    output = run(kernel)
    if kernel.seed in MISCOMPILED:
        assert hashlib.sha256(output).hexdigest() != kernel.sha256
    else:
        assert output[: len(kernel.shown)].hex() == kernel.shown.hex()
        assert hashlib.sha256(output).hexdigest() == kernel.sha256


def test_the_set_has_every_row():
    assert len(KERNELS) == fixed_set.KERNELS
    lacking = missing_in_text(kernel.text for kernel in KERNELS)
    assert {name.split()[0] for name in lacking} == fixed_set.ROWS_SINCE
    assert fixed_set.FILE.stat().st_size < 300_000
