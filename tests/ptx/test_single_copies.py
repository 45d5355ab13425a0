"""One tensor copy per launch, compared with an H200 with driver 580, by digests in `single_copies.json`.

The digest of a load is that of the bytes that its barrier was told and of shared memory, of a store that of the tensor.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from ptx import single_copies
from ptx.single_copies import COPIES
from warpfrag.errors import PtxError
from warpfrag.smem.tensor_map import ELEMENT_TYPES

DATA = Path(__file__).parent.parent / "data" / "ptx" / "hopper"
H200 = json.loads((DATA / "single_copies.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def module():
    return wf.ptx.load(single_copies.module())


def tensor_map(row, data):
    inner = row["interleave"] or ELEMENT_TYPES[row["dtype"]].bytes
    options = {
        "swizzle": row["swizzle"], "fill": row["fill"], "dtype": row["dtype"], "interleave": row["interleave"],
        "dims": row["dims"][::-1], "strides": [*row["strides"][::-1], inner], "element_strides": row["steps"][::-1],
    }  # fmt: skip
    if row["im2col"] is None:
        return wf.ptx.TensorMap(data, row["box"][::-1], **options)
    kind = row["im2col"]
    corners = (kind["lower"][::-1], kind["upper"][::-1])
    return wf.ptx.TensorMap(data, wf.ptx.Im2col(*corners, kind["channels"], kind["pixels"]), **options)


def arguments(copy):
    """Return the arguments of a copy's launch, the arrays that it changes, and the bytes of its shared memory."""
    tensor = copy.tensor.copy()
    tensor_argument, place = tensor_map(copy.map, tensor), np.array(copy.place, np.int32)
    if copy.data is not None:
        args = [tensor_argument, place, copy.data.copy(), np.uint32(copy.data.nbytes), np.uint32(0)]
        return args, [tensor], copy.data.nbytes
    out, told = np.zeros(copy.dump, np.uint8), np.uint32(tensor_argument.box_bytes)
    packed = sum((offset & 0xFFFF) << 16 * axis for axis, offset in enumerate(copy.offsets))
    args = [tensor_argument, place, out, told, np.uint32(copy.dump), np.uint32(copy.start), np.uint64(packed)]
    return args, [told, out], copy.dump


def left_by(module, copy, engine):
    """Return a digest of the memory that a copy leaves, and a summary of its launch."""
    args, left, shared = arguments(copy)
    summary = module[copy.entry].launch(1, 128, args, shared=shared, engine=engine)
    return hashlib.sha256(b"".join(part.tobytes() for part in left)).hexdigest()[:16], summary


def stores_twice(copy):
    """Return True if a store writes a byte twice in an unspecified order, because rows overlap."""
    if copy.data is None or copy.entry.startswith("reduce"):
        return False
    places, inside = tensor_map(copy.map, copy.tensor).fields.elements(copy.place)
    return len(np.unique(places[inside])) < inside.sum()


@pytest.mark.one_engine
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_leaves_what_the_gpu_left(module, name):
    if H200[name] == "error":
        with pytest.raises(PtxError, match="cp"):
            left_by(module, COPIES[name], "reference")
        return
    left, summary = left_by(module, COPIES[name], "reference")
    assert left == H200[name]
    assert bool(summary.uncertain) == stores_twice(COPIES[name])


@pytest.mark.one_engine
@pytest.mark.parametrize("name", [name for name in list(COPIES)[::4] if H200[name] != "error"])
def test_the_compiled_engine_leaves_the_same(module, name):
    left, summary = left_by(module, COPIES[name], "compiled")
    assert left == H200[name]
    assert (summary.engine, bool(summary.uncertain)) == ("compiled", stores_twice(COPIES[name]))


def test_every_measured_copy_is_run():
    assert COPIES.keys() == H200.keys()


def test_an_interleaved_map_is_made_of_an_array_with_slices_of_channels(module):
    """NC/8HWC8: two images of 24 channels, 5 rows, 10 columns."""
    images = np.arange(2 * 3 * 5 * 10 * 8, dtype=np.uint16).reshape(2, 3, 5, 10, 8)
    box = wf.ptx.TensorMap(images, box=(1, 1, 3, 8), interleave=16)
    out, place = np.zeros(box.box_bytes, np.uint8), np.array((1, 2, 1, 1), np.int32)
    args = [box, place, out, np.uint32(box.box_bytes), np.uint32(box.box_bytes), np.uint32(0), np.uint64(0)]
    run = module["load4"].launch(1, 128, args, shared=box.box_bytes)

    assert repr(box) == "TensorMap(uint16[2, 3, 5, 10], box=(1, 1, 3, 8), interleave=16)"
    assert box.box_bytes == 3 * 8 * 16
    assert np.array_equal(out.view(np.uint16), images[1, 1, 2:5, 1:9].reshape(-1))
    assert not run.uncertain


def test_im2col_of_slices_walks_over_pixels(module):
    images = np.arange(2 * 3 * 4 * 5 * 8, dtype=np.uint16).reshape(2, 3, 4, 5, 8)
    column = wf.ptx.TensorMap(images, wf.ptx.Im2col((0, 0), (0, 0), channels=8, pixels=16), interleave=16)
    out, place = np.zeros(column.box_bytes, np.uint8), np.array((3, 0, 2, 1), np.int32)
    args = [column, place, out, np.uint32(column.box_bytes), np.uint32(256), np.uint32(0), np.uint64(0)]
    module["load_im2col4"].launch(1, 128, args, shared=256)

    assert np.array_equal(out.view(np.uint16), images[1, 2].reshape(-1)[24 : 24 + 128])
