"""Tensor maps that the driver accepts: the answers of driver 580 to 18,000 random ones, and the positions of boxes.

`driver_takes.txt` and `driver_takes_interleaved.txt` have a bit for each map, the first highest: whether
cuTensorMapEncodeTiled or ...Im2col took it.
"""

import gzip
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.errors import InvalidOperand
from warpfrag.smem.shared_memory import Memory
from warpfrag.smem.tensor_map import (
    DRIVER_TYPES,
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    REPLACED,
    SWIZZLE_NUMBERS,
    Im2col,
    TensorMapFields,
    replace_field,
)

DATA = Path(__file__).parent.parent / "data" / "ptx" / "hopper"
ENCODED = DATA.parent.parent / "tensor_maps_h200.json.gz"
IM2COL = DATA.parent.parent / "tensor_maps_im2col_h200.json.gz"
KINDS = DRIVER_TYPES
CORNERS = (-128, -129, 127, 128, -16, -17, 15, 16, -32768, -32769, 32767, 32768)


def random_maps():
    """Return the maps that were passed to the driver: mostly valid, some with an error."""
    rng = random.Random(31)

    def pick(good, bad, share=0.93):
        return rng.choice(good) if rng.random() < share else rng.choice(bad)

    for _ in range(6000):
        rank, kind = rng.randint(1, 5), rng.choice(KINDS)
        size = ELEMENT_TYPES[kind].bytes
        interleave = pick([0], [16, 32], 0.85)
        swizzle = rng.choice([0, 32, 64, 128]) if interleave != 32 or rng.random() < 0.3 else 32
        wrong = [1, 2, 3, 1 << 31, 1 << 32, (1 << 32) + 1, 0, 7]
        dims = [pick([8, 16, 32, 64, 100, 1000], wrong) for _ in range(rank)]
        wrong = [16, 8, 4, 24, 0, 1 << 39, 1 << 40, (1 << 40) - 16, 20]
        strides = [pick([256, 1024, 4096, 65536, 32, 48], wrong) for _ in range(rank - 1)]
        inner = rng.choice([16, 32, 64, 128, 256]) // size if rng.random() < 0.9 else rng.choice([1, 3, 5, 256, 257, 0])
        box = [inner, *(pick([1, 2, 8, 64, 256], [0, 257, 512]) for _ in range(rank - 1))]
        steps = [pick([1], [2, 3, 8, 9, 0, 7], 0.9) for _ in range(rank)]
        fill, offset = pick(["zero"], ["nan"], 0.8), pick([0], [16, 8, 4, 1, 32])
        column = None
        if rng.random() < 0.25:
            lower, upper = ([pick([0, -1, 3], CORNERS, 0.7) for _ in range(3)] for _ in range(2))
            channels = pick([8, 16, 32, 64], [0, 1, 256, 257, 4], 0.85)
            pixels = pick([1, 16, 128, 1024], [0, 1025, 256], 0.9)
            spatial = max(0, rank - 2)
            column = Im2col(tuple(lower[:spatial]), tuple(upper[:spatial]), channels, pixels)
        numbers = (tuple(part) for part in (dims, strides, box, steps))
        yield TensorMapFields(ELEMENT_TYPES[kind], offset, *numbers, swizzle, fill, interleave, column)


def interleaved_maps():
    """Return the interleaved maps that were passed to the driver."""
    rng = random.Random(47)

    def pick(good, bad, share=0.97):
        return rng.choice(good) if rng.random() < share else rng.choice(bad)

    for _ in range(12000):
        rank, kind = pick([3, 4, 5], [1, 2], 0.97), KINDS[rng.randrange(13)]
        interleave, size = rng.choice([16, 32]), ELEMENT_TYPES[kind].bytes
        swizzle = rng.choice([0, 32, 64, 128]) if interleave == 16 or rng.random() < 0.4 else 32
        wrong = [1 << 31, 1 << 32, (1 << 32) + 1, 0]
        dims = [pick([1, 2, 3, 4, 7, 8, 16, 32, 64, 100, 1000], wrong) for _ in range(rank)]
        wrong = [48, 16, 8, 4, 24, 0, 1 << 39, 1 << 40, (1 << 40) - 32, 20]
        strides = [pick([256, 1024, 4096, 65536, 32, 64, 96], wrong) for _ in range(rank - 1)]
        wide = [16, 32, 48, 64, 96, 128, 256]
        inner = rng.choice(wide) // size if rng.random() < 0.9 else rng.choice([1, 3, 5, 2, 4, 256, 257, 0])
        box = [inner, *(pick([1, 2, 3, 8], [0, 257, 256, 64]) for _ in range(rank - 1))]
        steps = [pick([1], [2, 3, 8, 9, 0, 7], 0.93) for _ in range(rank)]
        fill, offset = pick(["zero"], ["nan"], 0.85), pick([0, 32, 64], [16, 8, 4, 1])
        column = None
        if rng.random() < 0.3:
            lower, upper = ([pick([0, -1, 3], CORNERS, 0.9) for _ in range(3)] for _ in range(2))
            channels = pick([8, 16, 32, 64, 4, 24], [0, 1, 2, 256, 257], 0.85)
            pixels = pick([1, 16, 128, 1024], [0, 1025, 256], 0.93)
            spatial = max(0, rank - 2)
            column = Im2col(tuple(lower[:spatial]), tuple(upper[:spatial]), channels, pixels)
        numbers = (tuple(part) for part in (dims, strides, box, steps))
        yield TensorMapFields(ELEMENT_TYPES[kind], offset, *numbers, swizzle, fill, interleave, column)


@pytest.mark.parametrize(
    ("file", "maps", "taken"),
    [("driver_takes.txt", random_maps, 1456), ("driver_takes_interleaved.txt", interleaved_maps, 6436)],
)
def test_problems_are_what_the_driver_refuses(file, maps, taken):
    digits = (DATA / file).read_text(encoding="ascii").replace("\n", "")
    bits = f"{int(digits, 16):0{4 * len(digits)}b}"
    for fields, bit in zip(maps(), bits, strict=True):
        problems = fields.problems()
        assert (not problems) == (bit == "1"), (fields, problems)
    assert bits.count("1") == taken


def test_the_bytes_of_a_map_hold_all_that_it_says():
    good = [fields for fields in random_maps() if not fields.problems() and fields.im2col is None]
    assert len(good) > 1200
    for fields in good:
        assert TensorMapFields.decode(fields.encode()) == fields
    box = (1, 1, 1, 1)
    column = Im2col((-1, 3), (-128, 127), 64, 1024)
    images = TensorMapFields(
        ELEMENT_TYPES["float16"], 4096, (64, 9, 9, 2), (128, 2048, 4096), box, (1, 2, 2, 1), im2col=column
    )
    assert TensorMapFields.decode(images.encode()) == images


def encoded_maps():
    """Return calls of cuTensorMapEncodeTiled on an H200: the fields, and the 128 bytes, or none if rejected."""
    for call in json.loads(gzip.decompress(ENCODED.read_bytes())):
        dtype, _, address, dims, strides, box, steps, interleave, swizzle, promotion, fill, result, data = call
        numbers = (tuple(part) for part in (dims, strides, box, steps))
        options = (SWIZZLE_NUMBERS[swizzle], FILLS[fill], INTERLEAVES[interleave], None, L2_PROMOTIONS[promotion])
        fields = TensorMapFields(ELEMENT_TYPES[DRIVER_TYPES[dtype]], address, *numbers, *options)
        yield fields, b"" if result else bytes.fromhex(data)


def test_a_map_has_the_bytes_of_the_driver():
    calls = list(encoded_maps())
    assert [bool(data) for _, data in calls].count(True) == 102
    for fields, data in calls:
        assert bool(fields.problems()) == (not data), fields
        if data:
            assert fields.encode() == data
            assert TensorMapFields.decode(data) == fields
            assert bytes(wf.ptx.TensorMap.from_bytes(data)) == data


def test_an_im2col_map_has_the_bytes_of_the_driver():
    calls = json.loads(gzip.decompress(IM2COL.read_bytes()))["im2col"]
    accepted = 0
    for dtype, rank, address, dims, strides, lower, upper, channels, pixels, steps, *choices, result, data in calls:
        interleave, swizzle, promotion, fill = choices
        fields = TensorMapFields(
            ELEMENT_TYPES[DRIVER_TYPES[dtype]], address, tuple(dims), tuple(strides), (1,) * rank, tuple(steps),
            SWIZZLE_NUMBERS[swizzle], FILLS[fill], INTERLEAVES[interleave],
            Im2col(tuple(lower), tuple(upper), channels, pixels), L2_PROMOTIONS[promotion],
        )  # fmt: skip
        assert bool(fields.problems()) == bool(result), fields
        if not result:
            accepted += 1
            assert fields.encode().hex() == data
            assert TensorMapFields.decode(bytes.fromhex(data)) == fields
    assert (len(calls), accepted) == (400, 217)


def test_replace_writes_the_bytes_of_an_h200():
    rows = json.loads(gzip.decompress(IM2COL.read_bytes()))["replace"]
    filled = next(bytes.fromhex(data) for is_filled, name, data in rows if is_filled and name == "swizzle_mode 2")
    numbers = {
        "global_address": 0x7F1234567890, "box_dim": 77, "global_dim": 0x12345678, "global_stride": 0xABCDEF1230,
        "element_stride": 6,
    }  # fmt: skip
    for is_filled, name, data in rows:
        field, axis, number = re.fullmatch(r"(\w+)(?:\[(\d)\])?(?: (\d+))?", name).groups()
        value = int(number) if number else numbers[field]
        assert replace_field(filled if is_filled else bytes(128), field, value, int(axis or 0)).hex() == data, name
    assert len(rows) == 72


@pytest.mark.parametrize("data", [b"", bytes(127), b"\xff" * 128])
def test_bytes_that_are_no_map_are_refused(data):
    with pytest.raises(InvalidOperand, match="expected the 128 bytes of a tensor map"):
        wf.ptx.TensorMap.from_bytes(data)


def test_a_map_may_be_made_field_by_field():
    wanted = TensorMapFields(ELEMENT_TYPES["bfloat16"], 0x7F0000001000, (128, 64), (256,), (64, 32), (1, 2), 128, "nan")
    fields = {
        "global_address": [wanted.address], "rank": [1], "global_dim": wanted.dims, "global_stride": wanted.strides,
        "box_dim": wanted.box, "element_stride": wanted.element_strides, "elemtype": [10], "interleave_layout": [0],
        "swizzle_mode": [3], "fill_mode": [1],
    }  # fmt: skip
    assert fields.keys() == REPLACED.keys()
    data = bytes(128)
    for name, values in fields.items():
        for axis, value in enumerate(values):
            data = replace_field(data, name, value, axis)
    assert TensorMapFields.decode(data) == wanted
    with pytest.raises(ValueError, match=r"swizzle_mode: expected a value in 0\.\.3, got 4"):
        replace_field(data, "swizzle_mode", 4)
    with pytest.raises(ValueError, match="expected global_stride to be a multiple of 16, got 24"):
        replace_field(data, "global_stride", 24)
    with pytest.raises(ValueError, match=r"global_stride: expected an axis in 0\.\.3, got 4"):
        replace_field(data, "global_stride", 16, 4)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_box_lies_as_the_memory_of_its_pitch_and_swizzle_does(swizzle):
    row = swizzle or 64
    fields = TensorMapFields(ELEMENT_TYPES["uint16"], 0, (128, 64), (256,), (row // 2, 16), (1, 1), swizzle)
    expected = Memory(order="row", pitch=row, swizzle=swizzle, start=384).addresses((16, row // 2), 16)
    assert np.array_equal(fields.shared_units(384), expected[:, ::8].reshape(-1))
