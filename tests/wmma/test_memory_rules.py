"""Loads and stores: each memory rule of the guide, violated, and the error message."""

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag import wmma


def refuse_load(fragment, pointer, ldm, *more):
    before = fragment.words.copy()
    with pytest.raises(wf.errors.InvalidOperand) as caught:
        wmma.load_matrix_sync(fragment, pointer, ldm, *more)
    assert np.array_equal(fragment.words, before)
    return str(caught.value)


def refuse_store(pointer, fragment, ldm, *more):
    with pytest.raises(wf.errors.InvalidOperand) as caught:
        wmma.store_matrix_sync(pointer, fragment, ldm, *more)
    return str(caught.value)


def test_rule_the_pointer_is_aligned_to_256_bits(multiplicand, accumulator):
    memory = np.zeros(1024, np.float16)
    assert refuse_load(multiplicand, wmma.ptr(memory) + 8, 16) == (
        "load_matrix_sync: the pointer must be aligned to 256 bits; <pointer to element 8 of float16[1024]> is at byte "
        "16 of its allocation, 16 bytes past a multiple of 32"
    )
    message = refuse_store(wmma.ptr(np.zeros(512, np.float32)) + 4, accumulator, 16, wmma.mem_row_major)
    assert message.startswith("store_matrix_sync: the pointer must be aligned to 256 bits")


def test_rule_alignment_is_measured_from_the_start_of_the_allocation(multiplicand):
    memory = np.zeros((20, 32), np.float16)
    for view in (memory[:, 8:], memory.ravel()[8:], memory.ravel()[4:][4:], memoryview(memory.ravel())[8:]):
        assert "is at byte 16 of its allocation" in refuse_load(multiplicand, view, 32)
        wmma.load_matrix_sync(multiplicand, wmma.ptr(view) + 8, 32)  # aligned again
    raw = bytearray(2048)
    assert "is at byte 16 of its allocation" in refuse_load(multiplicand, np.frombuffer(raw, np.float16)[8:], 16)
    assert "is at byte 16 of its allocation" in refuse_load(multiplicand, np.frombuffer(raw, np.float16, offset=16), 16)
    assert "is at byte 16 of its allocation" in refuse_load(multiplicand, memoryview(raw)[16:], 16)
    strided = np.lib.stride_tricks.as_strided(memory.ravel()[8:], (16, 16), (64, 2))
    assert "is at byte 16 of its allocation" in refuse_load(multiplicand, strided, 32)


def test_the_start_of_an_allocation_counts_as_aligned_whatever_its_address(multiplicand):
    start = np.frombuffer(bytearray(2048), np.float16)
    start[:] = 3
    wmma.load_matrix_sync(multiplicand, start, 16)

    assert (np.asarray(multiplicand.x) == 3).all()


def test_rule_ldm_is_a_multiple_of_16_bytes(multiplicand, accumulator):
    memory = np.zeros(4096, np.float16)
    message = refuse_load(multiplicand, memory, 20)
    assert message == "load_matrix_sync: ldm must be a multiple of 8 elements (16 bytes), got 20; try 16, 24"
    message = refuse_load(multiplicand, memory, 12)
    assert message.endswith("got 12; try 16")
    for far_too_small in (3, -3):
        assert refuse_load(multiplicand, memory, far_too_small).endswith(f"got {far_too_small}; try 16")
    message = refuse_store(np.zeros(4096, np.float32), accumulator, 18, wmma.mem_row_major)
    assert message == "store_matrix_sync: ldm must be a multiple of 4 elements (16 bytes), got 18; try 16, 20"
    nibbles = wmma.fragment(wmma.matrix_a, 8, 8, 32, wmma.experimental.precision.u4, wmma.row_major)
    assert "multiple of 32 elements (16 bytes), got 48" in refuse_load(nibbles, bytes(4096), 48)
    bits = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)
    assert "multiple of 128 elements (16 bytes), got 192" in refuse_load(bits, bytes(4096), 192)
    doubles = wmma.fragment(wmma.matrix_a, 8, 8, 4, wmma.double, wmma.row_major)
    assert "multiple of 2 elements (16 bytes), got 5" in refuse_load(doubles, np.zeros(99), 5)


def test_rule_ldm_spans_the_tile(multiplicand):
    memory = np.zeros(4096, np.float16)
    message = refuse_load(multiplicand, memory, 8)
    assert message == "load_matrix_sync: ldm must be at least 16, the elements in one line of the tile; got 8"
    wide = wmma.fragment(wmma.matrix_a, 32, 8, 16, wmma.half, wmma.col_major)
    assert "ldm must be at least 32" in refuse_load(wide, memory, 16)
    assert "expected ldm to be an integer, got 16.0" in refuse_load(multiplicand, memory, 16.0)


def test_rule_the_memory_is_large_enough(multiplicand, accumulator):
    memory = np.zeros((16, 32), np.float16)
    wmma.load_matrix_sync(multiplicand, wmma.ptr(memory) + 16, 32)  # just
    assert refuse_load(multiplicand, wmma.ptr(memory) + 32, 32) == (
        "load_matrix_sync: memory is too small: 16 lines of 16 elements with ldm 32 take 992 bytes from "
        "<pointer to element 32 of float16[16, 32]>, but only 960 are available"
    )
    assert "but only 480 are available" in refuse_load(
        multiplicand, memory.ravel()[:240], 16
    )  # as far as the view reaches
    assert "is outside its memory, elements 0..511" in refuse_load(multiplicand, wmma.ptr(memory) + 528, 32)
    assert "is outside its memory, elements 0..511" in refuse_load(multiplicand, wmma.ptr(memory) - 16, 32)
    message = refuse_store(np.zeros(255, np.float32), accumulator, 16, wmma.mem_col_major)
    assert "take 1024 bytes" in message
    assert "1020 are available" in message


def test_rule_a_layout_is_given_for_accumulators_only(multiplicand, accumulator):
    memory = np.zeros(256, np.float32)
    expected = "expected the layout mem_row_major or mem_col_major for an accumulator, got"
    assert refuse_load(accumulator, memory, 16) == f"load_matrix_sync: {expected} None"
    assert refuse_load(accumulator, memory, 16, wmma.row_major) == f"load_matrix_sync: {expected} row_major"
    assert refuse_store(memory, accumulator, 16, None) == f"store_matrix_sync: {expected} None"
    message = refuse_load(multiplicand, np.zeros(256, np.float16), 16, wmma.mem_row_major)
    assert message == (
        "load_matrix_sync: <fragment<matrix_a, 16, 16, 16, half, row_major> of sm_90> already has a layout; expected "
        "none, got mem_row_major"
    )


def test_rule_only_accumulators_are_stored(multiplicand):
    message = refuse_store(np.zeros(256, np.float16), multiplicand, 16, wmma.mem_row_major)
    assert message.startswith("store_matrix_sync: expected an accumulator, got <fragment<matrix_a")


def test_rule_memory_has_the_type_of_the_fragment(multiplicand):
    message = refuse_load(multiplicand, np.zeros(256, np.float32), 16)
    assert message == "load_matrix_sync: expected memory of float16 (or bytes, uint8) for half, got float32"
    nibbles = wmma.fragment(wmma.matrix_a, 8, 8, 32, wmma.experimental.precision.s4, wmma.row_major)
    assert refuse_load(nibbles, np.zeros((8, 32), ml_dtypes.int4), 32) == (
        "load_matrix_sync: expected packed memory for experimental.precision.s4, 2 elements in a byte, low bits first, "
        "as uint8, uint32 or int32; got int4"
    )
    bits = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)
    assert "8 elements in a byte" in refuse_load(bits, np.zeros((8, 128), bool), 128)
    packed = np.packbits(np.zeros((128, 8), bool).T, axis=1)  # numpy keeps the order of its argument
    assert refuse_load(bits, packed, 128) == (
        "load_matrix_sync: the last axis of packed memory must be contiguous, got strides (1, 8); pass "
        "np.ascontiguousarray(array)"
    )


def test_rule_stores_need_writable_memory(accumulator):
    memory = np.zeros(256, np.float32)
    memory.flags.writeable = False
    expected = "store_matrix_sync: expected writable memory, got read-only memory"
    assert refuse_store(memory, accumulator, 16, wmma.mem_row_major) == expected
    assert refuse_store(bytes(1024), accumulator, 16, wmma.mem_row_major) == expected
    assert not memory.any()


def test_memory_must_be_memory(multiplicand):
    message = refuse_load(multiplicand, [1.0] * 256, 16)
    assert message == "memory: expected a NumPy array, a wmma.ptr or an object with a buffer; got list"
    matrix = np.zeros((32, 64), np.float16)
    for view in (matrix[:, ::2], matrix[::-1], np.broadcast_to(np.float16(1), (16, 16))):
        message = refuse_load(multiplicand, view, 32)
        assert "expected elements that are adjacent along one axis" in message
        assert message.endswith("a pointer has no strides")
    with pytest.raises(wf.errors.InvalidOperand, match="load_matrix_sync: expected a to be a fragment, got ndarray"):
        wmma.load_matrix_sync(matrix, multiplicand, 16)


def test_memory_must_be_one_block(multiplicand):
    matrix = np.zeros((32, 64), np.float16)

    class Foreign:
        """Strided memory whose owner does not describe the block that contains it."""

        __array_interface__ = matrix[:, :32].__array_interface__

    message = refuse_load(multiplicand, np.asarray(Foreign()), 64)
    assert message == "memory: expected one block of memory, got an array with strides (128, 2)"
