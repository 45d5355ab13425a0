"""Arrays with fixed addresses: tables of pointers, tables of tables, structures with pointers, and stale addresses."""

import copy
import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.ptx import DeviceArray

MODULE = wf.ptx.load(Path(__file__).parent.parent / "data" / "ptx" / "modules" / "symbols.ptx")
NODE = np.dtype([("values", "u8"), ("scale", "i4")], align=True)


def floats(*numbers):
    return np.array(numbers, np.float32)


def test_a_list_of_arrays_is_a_table_of_pointers():
    a = [floats(1, 2, 3, 4), None, floats(5, 6, 7, 8)]
    c = [floats(0, 0, 0, 0), floats(1, 1, 1, 1), floats(2, 2, 2, 2)]
    table = DeviceArray(c)
    run = MODULE["batched"].launch(1, 4, [DeviceArray(a), table, 3])

    assert [row.tolist() for row in c] == [[1, 2, 3, 4], [1, 1, 1, 1], [17, 20, 23, 26]]
    assert not run.uncertain
    assert table.array.dtype == np.uint64
    assert repr(table) == f"<DeviceArray uint64[3] at {table.address:#x}>"


def test_tables_of_tables_and_structures_in_memory_point_to_arrays():
    out, other, values = floats(0, 0, 0, 0), floats(9, 9, 9, 9), DeviceArray(floats(1, 2, 3, 4))
    nodes = np.array([(0, 0), (values.address, 5)], NODE)
    MODULE["nested"].launch(1, 4, [DeviceArray([[other], [out, None]]), nodes])

    assert out.tolist() == [5, 10, 15, 20]
    assert other.tolist() == [9, 9, 9, 9]


def test_the_same_memory_has_one_address():
    whole = np.zeros((4, 8), np.float32)
    device = DeviceArray(whole)
    row = DeviceArray(whole[2])

    assert (row.address - device.address, DeviceArray(whole).address) == (64, device.address)
    del device
    gc.collect()
    MODULE["fill<float, 4>"].launch(1, 1, [whole[2], 7.0])  # the whole is kept by its part
    assert whole[2, :5].tolist() == [7, 7, 7, 7, 0]
    assert DeviceArray(np.zeros(0)).address != DeviceArray(np.zeros(0)).address


def test_an_array_argument_lies_where_its_device_array_does():
    a, c = floats(1, 2, 3, 4), floats(0, 0, 0, 0)
    table = DeviceArray([c])
    MODULE["batched"].launch(1, 4, [DeviceArray([c]), table, 1])  # both tables name one array
    MODULE["fill<float, 4>"].launch(1, 1, [c, 3.0])

    assert table.array[0] == DeviceArray(c).address
    assert c.tolist() == [3, 3, 3, 3]
    assert a.tolist() == [1, 2, 3, 4]


def test_an_address_that_is_gone_is_outside_every_allocation():
    table = np.array([DeviceArray(floats(1)).address], np.uint64)
    gc.collect()

    with pytest.raises(wf.ptx.PtxError, match="are outside every allocation"):
        MODULE["batched"].launch(1, 1, [table, DeviceArray([floats(1)]), 1])


def test_a_device_array_beyond_its_end_is_named():
    c = DeviceArray([floats(1, 2)])

    with pytest.raises(
        wf.ptx.PtxError, match=r"the nearest is <DeviceArray float32\[2\] at 0x1.* 4 bytes after its end"
    ):
        MODULE["batched"].launch(1, 3, [c, c, 1])


def test_read_only_memory_is_not_written():
    array = floats(1, 2)
    array.flags.writeable = False
    c = DeviceArray([array])

    with pytest.raises(wf.ptx.PtxError, match=r"a store to <DeviceArray .*, which is read-only"):
        MODULE["batched"].launch(1, 2, [c, c, 1])


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "expected an array, or a list of arrays and None, got 7"),
        ([floats(1), "x"], "expected an array, or a list of arrays and None, got 'x'"),
        (np.zeros((4, 4))[:, 1], "expected a contiguous array"),
        (np.zeros(4, object), "expected an array of numbers"),
        (np.zeros(4, ">f4"), "big-endian"),
        (np.ma.zeros(4), "got a masked one"),
    ],
)
def test_what_has_no_memory_that_a_kernel_reads_is_refused(source, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        DeviceArray(source)


@pytest.mark.one_engine
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_address_cannot_be_copied(duplicate):
    with pytest.raises(TypeError, match="its address is valid in this process only"):
        duplicate(DeviceArray(floats(1)))
