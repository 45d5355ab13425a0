"""All inputs of the approximate functions, with the PTX machine instead of a GPU."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tools.functions import compare, differences, functions, kernel
from warpfrag.ptx.ptx_module import load


class Machine:
    """Runs kernels as a GPU would, with one bit of one result flipped."""

    target = "sm_90a"

    def __init__(self, wrong=None):
        self.wrong = wrong

    def load(self, text):
        return load(text)

    def run_blocks(self, module, entry, blocks, arrays):
        module[entry].launch(blocks, 32, arrays)
        if self.wrong is not None:
            arrays[0][self.wrong] ^= 1
        return arrays[0]


def test_functions_are_those_of_one_operand_that_were_measured():
    names = [case.name for case in functions()]
    assert len(names) == 21
    assert {"tanh.approx.f32", "sin.approx.ftz.f32", "rcp.approx.ftz.f64", "ex2.approx.f16"} < set(names)
    assert not {"div.full.f32", "rsqrt.approx.f64", "tanh.approx.f16x2"} & set(names)
    assert all(f"{case.name} %d, %a;" in kernel(case, "sm_90a") for case in functions())


@pytest.mark.parametrize("name", ["ex2.approx.f16", "tanh.approx.f32", "rcp.approx.ftz.f64"])
def test_a_result_that_differs_is_found(name):
    case = next(case for case in functions(name.split(".")[0]) if case.name == name)
    with ThreadPoolExecutor(1) as pool:
        right = compare(Machine(), case, pool, 1024)
        wrong = compare(Machine(2 * 77 if name.endswith("f64") else 77), case, pool, 1024)
    assert (right.inputs, right.different, right.example) == (1024, 0, "")
    assert wrong.different == 1
    assert wrong.example.startswith("4d -> gpu " if not name.endswith("f64") else "4d00000000 -> gpu ")


def test_later_inputs_are_compared_with_their_own_results():
    case = next(case for case in functions("sin") if case.name == "sin.approx.f32")
    codes = np.arange(0x3F800000, 0x3F800000 + 40000, dtype=np.uint32)
    found = case.action.function(codes)
    assert differences(case.name, 0x3F800000, found) == (0, "")
    count, example = differences(case.name, 0x3F800001, found)
    assert 20000 < count < 40000
    assert example.startswith("3f800001 -> gpu 3f576aa3 here ")
