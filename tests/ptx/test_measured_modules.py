"""The memory that an H200 left: variables, tables of pointers, cooperative grids and linked modules of nvcc 13.0.

`h200.json` was measured with driver 580 through its API: cuModuleGetGlobal, cuLaunchCooperativeKernel, cuLinkAddData.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.launch.options import MULTIPROCESSORS, check_resident
from warpfrag.ptx import DeviceArray

DATA = Path(__file__).parent.parent / "data" / "ptx" / "modules"
H200 = json.loads((DATA / "h200.json").read_text(encoding="utf-8"))
NODE = np.dtype([("values", "u8"), ("scale", "i4")], align=True)


def test_variables_and_pointers():
    module = wf.ptx.load(DATA / "symbols.ptx", keep_state=True)
    symbols, left = module.symbols, {}
    out = np.zeros(1, np.int32)
    module["empty"].launch(1, 1, [(), 77, (), out])
    left["empty"] = out.tolist()
    counted = np.zeros(2, np.uint32)
    left["count"] = [(module["count"].launch(1, 32, [counted]), counted.tolist())[1] for _ in range(3)]
    left["counter"] = [int(symbols["counter"])]
    values, buffer, gathered = np.arange(8, dtype=np.float32) + 10, np.zeros(8, np.float32), np.zeros(8, np.float32)
    pointed = DeviceArray([values, buffer])
    symbols["table"].view(np.float32)[...] = np.arange(8, dtype=np.float32) * np.float32(0.3)
    symbols["node"] = np.array([(pointed.array[0], 3)], NODE).view(np.uint8)
    symbols["buffer"] = pointed.array[1]
    symbols["matrix"].view(np.float32)[...] = np.arange(12, dtype=np.float32) / 7
    symbols["scale"] = 0.1
    module["gather"].launch(1, 8, [gathered])
    left["gather"] = [gathered.view(np.uint32).tolist(), buffer.view(np.uint32).tolist()]
    a = [np.arange(4, dtype=np.float32) + k for k in range(3)]
    c = [np.full(4, k, np.float32) for k in range(3)]
    module["batched"].launch(1, 4, [DeviceArray([a[0], None, a[2]]), DeviceArray(c), 3])
    left["batched"] = [row.tolist() for row in c]
    module["nested"].launch(1, 4, [DeviceArray([[c[0]], [c[1]]]), np.array([(0, 0), (pointed.array[0], 5)], NODE)])
    left["nested"] = c[1].tolist()

    assert left == {name: H200[name] for name in left}
    assert len(left) == 6


@pytest.mark.parametrize("name", [name for name in H200 if name.startswith("two_phases")])
def test_two_phases_of_a_grid(name):
    grid, block = (int(word) for word in name.split()[1:])
    module = wf.ptx.load(DATA / "cooperative.ptx", keep_state=True)
    partial, out = np.zeros((2, grid * block), np.int32)
    module["two_phases"].launch(
        grid, block, [partial, out, grid * block], options=wf.ptx.LaunchOptions(cooperative=True)
    )

    assert [int(out.sum()), int(module.symbols["last"])] == H200[name]


def test_a_scan_over_a_grid():
    n = 5 * 64
    values = (np.arange(n, dtype=np.float32) * np.float32(0.37)) % 3
    wf.ptx.load(DATA / "cooperative.ptx")["scan"].launch(
        5, 64, [values, np.zeros_like(values), n], options=wf.ptx.LaunchOptions(cooperative=True)
    )

    assert values.view(np.uint32).tolist() == H200["scan"]


def test_linked_modules():
    module = wf.ptx.link([DATA / "link_a.ptx", DATA / "link_b.ptx"], keep_state=True)
    values, out = np.arange(4, dtype=np.float32), np.zeros(2, np.int32)
    module["first"].launch(1, 4, [values], shared=64)
    seconds = [(module["second"].launch(1, 1, [out], shared=64), out.tolist())[1] for _ in range(2)]

    assert (values.tolist(), seconds) == (H200["first"], H200["second"])


@pytest.mark.one_engine
@pytest.mark.parametrize("name", [name for name in H200 if name.startswith("blocks of")])
def test_as_many_blocks_are_resident_as_the_driver_says(name):
    numbers = [int(word) for word in name.split() if word.isdigit()]
    threads, shared = numbers[0], (numbers[1:] or [0])[0]
    fits = MULTIPROCESSORS * H200[name]

    check_resident(LaunchConfig((fits, 1, 1), (threads, 1, 1), shared, "sm_90", 1), shared)
    with pytest.raises(
        wf.errors.InvalidOperand, match=f"holds {MULTIPROCESSORS} x {H200[name]} blocks .*, got a grid of {fits + 1}"
    ):
        check_resident(LaunchConfig((fits + 1, 1, 1), (threads, 1, 1), shared, "sm_90", 1), shared)
