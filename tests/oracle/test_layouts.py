"""Layouts compared with the documents and the hardware, element by element.

Three witnesses, none of them warpfrag's tables: the formulas of the PTX ISA (ptx_formulas.py), the wmma
fragments an H200 gave (data/wmma_layout_sm90.npz), and what its ldmatrix, stmatrix and movmatrix did
(data/movers_sm90.npz).
"""

import csv
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import warpfrag as wf
from instructions import each_of, of_a_warp
from oracle import ptx_formulas as ptx

DATA = Path(__file__).resolve().parents[1] / "data"
Ints = npt.NDArray[np.int64]


def read_names() -> tuple[str, ...]:
    """The spellings the assembler accepts."""
    with (DATA / "ptxas_accepts.csv").open(encoding="utf-8", newline="") as file:
        return tuple(row["instruction"] for row in csv.DictReader(file))


def read_arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """All arrays of one captured file."""
    with np.load(DATA / name) as file:
        return {key: file[key] for key in file.files}


NAMES = read_names()
MMA = tuple(name for name in NAMES if name.startswith("mma."))
SPARSE = tuple(name for name in MMA if name.startswith("mma.sp"))
SCALED = tuple(name for name in MMA if ".block_scale" in name)
WMMA_MMA = tuple(name for name in NAMES if name.startswith("wmma.mma."))
WMMA_FILE = read_arrays("wmma_layout_sm90.npz")
MOVER_FILE = read_arrays("movers_sm90.npz")
MOVERS = ptx.movers()


@cache
def grid_of(layout: Any, regs: int, slots: int) -> Ints:
    """Coordinates [lane, reg, slot, dims] of a layout, asked for one at a time; each distinct layout once."""
    cells = [
        [[tuple(layout.at(lane=lane, reg=reg, slot=slot)) for slot in range(slots)] for reg in range(regs)]
        for lane in range(32)
    ]
    return np.array(cells, dtype=np.int64)


def grid(operand: Any) -> Ints:
    """Coordinates [lane, reg, slot, dims] of an operand."""
    return grid_of(operand.layout, operand.regs, operand.slots)


def differences(got: Ints, expected: Ints) -> list[str]:
    """Describe the first few places where two grids differ."""
    if got.shape != expected.shape:
        return [f"shape {got.shape}, expected {expected.shape}"]
    return [
        f"lane {lane} reg {reg} slot {slot}: {got[lane, reg, slot].tolist()}, "
        f"expected {expected[lane, reg, slot].tolist()}"
        for lane, reg, slot in np.argwhere((got != expected).any(axis=-1))[:4].tolist()
    ]


# --- the oracle itself


def test_oracle_files_are_complete() -> None:
    """The spellings, the wmma maps and the mover captures are complete and not empty."""
    assert (len(NAMES), len(MMA), len(SPARSE), len(SCALED), len(WMMA_MMA)) == (688, 420, 197, 110, 154)
    assert len(set(NAMES)) == 688
    assert len(WMMA_FILE) == 88
    assert all(array.shape[0] == 32 and array.size >= 32 for array in WMMA_FILE.values())
    assert len(MOVER_FILE) == 21
    assert all(array.size >= 32 for array in MOVER_FILE.values())
    assert len(MOVERS) == 27


@pytest.mark.parametrize("key", sorted(ptx.DENSE_A), ids="-".join)
def test_oracle_rows_follow_the_general_rule(key: tuple[str, str]) -> None:
    """Each explicit row of 1.2 is the general rule of 1.1: the oracle does not contradict itself."""
    m = 8 if key[0].startswith("m8") else 16
    for which, rule in (("a", ptx.DENSE_A[key]), ("b", ptx.DENSE_B[key])):
        assert differences(rule.grid(), ptx.general_rule(which, m, rule.slots, rule.regs).grid()) == []


@each_of(MMA)
def test_oracle_covers_each_element_once(name: str) -> None:
    """The formulas assign every element of every mma operand exactly one place."""
    for operand in "abcd":
        places = ptx.mma_grid(name, operand)
        shape = ptx.mma_shape(name, operand)
        flat = np.ravel_multi_index(tuple(places.reshape(-1, places.shape[-1]).T), shape)
        assert sorted(flat.tolist()) == list(range(int(np.prod(shape))))


@pytest.mark.parametrize("key", sorted(ptx.SPARSE_A), ids="-".join)
def test_oracle_spans_hold_their_stored_columns(key: tuple[str, str]) -> None:
    """2.2's logical spans contain every column a stored element may come from, in the same row."""
    pack = key[1]
    row_of, first_of, width = ptx.SPARSE_A[key]
    stored = ptx.DENSE_A[ptx.STORED_AS[key]]
    fields = (4, 14) if pack == "tf32" else (4, 8, 9, 12, 13, 14)
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for i in range(stored.elements):
            columns = {ptx.logical_column(pack, stored.col(g, t, i), field) for field in fields}
            assert row_of(g, t, i) == stored.row(g, t, i)
            assert columns <= set(range(first_of(g, t, i), first_of(g, t, i) + width))


# --- mma and mma.sp: every operand of every spelling


def test_find_gives_exactly_the_known_instructions() -> None:
    """`find()` lists the instructions of the table and section 4, each once: the tests below miss no instruction."""
    names = (*NAMES, *(mover.name for mover in MOVERS), *ptx.UNKNOWN_MOVERS, ptx.MOVMATRIX)
    expected = {wf.get(name) for name in names}
    found = of_a_warp()  # wgmma: tests/tensorcore/test_wgmma.py
    assert len(found) == len(set(found))
    assert {instruction.name for instruction in found} == {instruction.name for instruction in expected}
    assert set(found) == expected


@each_of(MMA)
def test_mma_layout_is_the_documents(name: str) -> None:
    """Every lane, register and slot of A, B, C and D holds the element that the formula gives (1.2, 1.3, 2.2)."""
    for operand in "abcd":
        assert differences(grid(getattr(wf.get(name), operand)), ptx.mma_grid(name, operand)) == [], operand


@each_of(MMA)
def test_mma_registers_are_the_documents(name: str) -> None:
    """Shapes, formats, register counts, elements per register, words and PTX types (1.2, 2.1)."""
    words = ptx.spelling(name)
    instruction = wf.get(name)
    assert tuple(instruction.shape) == (words.m, words.n, words.k)
    for operand in "abcd":
        actual = getattr(instruction, operand)
        kind = words.type_of(operand)
        _, regs, slots, _ = ptx.mma_grid(name, operand).shape
        assert (actual.format.name, str(actual.format)) == (kind, kind)
        assert tuple(actual.shape) == ptx.mma_shape(name, operand)
        assert (actual.regs, actual.slots) == (regs, slots)
        assert actual.words == regs * (2 if kind == "f64" else 1)
        assert actual.ptx_type == ptx.ptx_type(kind)


@each_of(MMA)
def test_coordinates_are_named(name: str) -> None:
    """Answers are named tuples: (row, col), or (mma, row, col) for the four products of m8n8k4.f16."""
    instruction = wf.get(name)
    volta = len(ptx.mma_shape(name, "a")) == 3
    place = instruction.a.layout.at(lane=0, reg=0, slot=0)
    assert place._fields == (("mma", "row", "col") if volta else ("row", "col"))
    holders = instruction.a.layout.where(**place._asdict())
    assert holders == [(0, 0, 0)]
    assert holders[0]._fields == ("lane", "reg", "slot")


# 1.2, "Spot values, lane 22 (g=5, t=2)": element number -> (row, col) of A and of B
SPOT_VALUES: dict[str, tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]] = {
    "m8n8k16.row.col.s32.s8.s8.s32": ({0: (5, 8), 3: (5, 11), 2: (5, 10)}, {0: (8, 5), 3: (11, 5)}),
    "m8n8k32.row.col.s32.s4.s4.s32": ({0: (5, 16), 7: (5, 23), 4: (5, 20)}, {0: (16, 5), 7: (23, 5)}),
    "m8n8k128.row.col.s32.b1.b1.s32.xor.popc": (
        {0: (5, 64), 31: (5, 95), 16: (5, 80)},
        {0: (64, 5), 31: (95, 5)},
    ),
    "m16n8k4.row.col.f32.tf32.tf32.f32": ({0: (5, 2), 1: (13, 2)}, {0: (2, 5)}),
    "m16n8k4.row.col.f64.f64.f64.f64": ({0: (5, 2), 1: (13, 2)}, {0: (2, 5)}),
    "m16n8k8.row.col.f32.f16.f16.f32": ({0: (5, 4), 3: (13, 5), 2: (13, 4)}, {0: (4, 5), 1: (5, 5)}),
    "m16n8k8.row.col.f32.tf32.tf32.f32": ({0: (5, 2), 3: (13, 6), 2: (5, 6)}, {0: (2, 5), 1: (6, 5)}),
    "m16n8k8.row.col.f64.f64.f64.f64": ({0: (5, 2), 3: (13, 6), 2: (5, 6)}, {0: (2, 5), 1: (6, 5)}),
    "m16n8k16.row.col.f32.f16.f16.f32": ({0: (5, 4), 7: (13, 13), 4: (5, 12)}, {0: (4, 5), 3: (13, 5)}),
    "m16n8k16.row.col.f64.f64.f64.f64": ({0: (5, 2), 7: (13, 14), 4: (5, 10)}, {0: (2, 5), 3: (14, 5)}),
    "m16n8k16.row.col.s32.s8.s8.s32": ({0: (5, 8), 7: (13, 11), 4: (13, 8)}, {0: (8, 5), 3: (11, 5)}),
    "m16n8k16.row.col.f32.e4m3.e5m2.f32": ({0: (5, 8), 7: (13, 11), 4: (13, 8)}, {0: (8, 5), 3: (11, 5)}),
    "m16n8k32.row.col.s32.s4.s4.s32": ({0: (5, 16), 15: (13, 23), 8: (13, 16)}, {0: (16, 5), 7: (23, 5)}),
    "m16n8k32.row.col.s32.s8.s8.s32": ({0: (5, 8), 15: (13, 27), 8: (5, 24)}, {0: (8, 5), 7: (27, 5)}),
    "m16n8k32.row.col.f32.e4m3.e4m3.f32": ({0: (5, 8), 15: (13, 27), 8: (5, 24)}, {0: (8, 5), 7: (27, 5)}),
    "m16n8k64.row.col.s32.s4.s4.s32": ({0: (5, 16), 31: (13, 55), 16: (5, 48)}, {0: (16, 5), 15: (55, 5)}),
    "m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0": (
        {0: (5, 16), 31: (13, 55), 16: (5, 48)},
        {0: (16, 5), 15: (55, 5)},
    ),
    "m16n8k128.row.col.s32.b1.b1.s32.and.popc": (
        {0: (5, 64), 63: (13, 95), 32: (13, 64)},
        {0: (64, 5), 31: (95, 5)},
    ),
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc": (
        {0: (5, 64), 127: (13, 223), 64: (5, 192)},
        {0: (64, 5), 63: (223, 5)},
    ),
}


@pytest.mark.parametrize("tail", SPOT_VALUES)
def test_spot_values_of_lane_22(tail: str) -> None:
    """The table of worked values: lane 22 of A and B, and of C for the shapes with 16 rows, in both directions."""
    instruction = wf.get(f"mma.sync.aligned.{tail}")
    a_values, b_values = SPOT_VALUES[tail]
    c_values = {0: (5, 4), 1: (5, 5), 2: (13, 4), 3: (13, 5)} if tail.startswith("m16") else {}
    for operand, values in ((instruction.a, a_values), (instruction.b, b_values), (instruction.c, c_values)):
        for i, (row, col) in values.items():
            reg, slot = divmod(i, operand.slots)
            assert operand.layout.at(lane=22, reg=reg, slot=slot) == (row, col)
            assert operand.layout.where(row=row, col=col) == [(22, reg, slot)]


# --- mma.sp: spans and metadata


@each_of(SPARSE)
def test_sparse_spans(name: str) -> None:
    """`span` returns the row and the logical column range of the ISA's A table for every register (2.2)."""
    a = wf.get(name).a
    got = [tuple(a.span(lane=lane, reg=reg)) for lane in range(32) for reg in range(a.regs)]
    assert got == [ptx.sparse_span(name, lane, reg) for lane in range(32) for reg in range(a.regs)]


@each_of(SPARSE)
def test_metadata_places(name: str) -> None:
    """Every selector, row and chunk: `where` returns the lane and lowest bit of 2.4, and `at` inverts it."""
    instruction = wf.get(name)
    chunks = ptx.metadata_chunks(name)
    assert tuple(instruction.selectors) == ptx.metadata_selectors(name)
    assert instruction.metadata.ptx_type == ".b32"
    for selector in ptx.metadata_selectors(name):
        seen = set()
        for row in range(16):
            for chunk in range(chunks):
                place = instruction.metadata.where(row=row, chunk=chunk, selector=selector)
                assert tuple(place) == ptx.metadata_place(name, row, chunk, selector)
                assert place._fields == ("lane", "bit")
                back = instruction.metadata.at(lane=place.lane, bit=place.bit, selector=selector)
                assert (tuple(back), back._fields) == ((row, chunk), ("row", "chunk"))
                seen.add(tuple(place))
        assert len(seen) == 16 * chunks


@each_of(SPARSE)
def test_metadata_words(name: str) -> None:
    """`pack` puts each 4-bit field at the position of 2.4, including batch axes, and `unpack` reads it back."""
    metadata = wf.get(name).metadata
    chunks = ptx.metadata_chunks(name)
    fields = (4, 14) if ptx.spelling(name).pack_of("a") == "tf32" else (4, 8, 9, 12, 13, 14)
    codes = np.random.default_rng(len(name)).choice(np.array(fields, np.uint8), (2, 3, 16, chunks))
    for selector in ptx.metadata_selectors(name):
        words = metadata.pack(codes, selector=selector)
        assert (words.shape, words.dtype) == ((2, 3, 32), np.dtype(np.uint32))
        lanes, bits = np.array(
            [[ptx.metadata_place(name, row, chunk, selector) for chunk in range(chunks)] for row in range(16)]
        ).transpose(2, 0, 1)
        assert np.array_equal((words[..., lanes] >> bits.astype(np.uint32)) & 15, codes)
        assert np.array_equal(metadata.unpack(words, selector=selector), codes)


# 2.4, the table of examples: spelling, selector, row, first column, then lane and lowest bit
METADATA_EXAMPLES = {
    "f16 k16, F=3, row 13, cols 4-7": ("m16n8k16.row.col.f32.f16.f16.f32", 3, 13, 4, 23, 20),
    "f16 k32, F=1, row 8, cols 0-3": ("m16n8k32.row.col.f16.f16.f16.f16", 1, 8, 0, 2, 16),
    "f16 k32, F=1, row 0, cols 28-31": ("m16n8k32.row.col.f32.f16.f16.f32", 1, 0, 28, 3, 12),
    "tf32 k16, F=1, row 15, cols 14-15": ("m16n8k16.row.col.f32.tf32.tf32.f32", 1, 15, 14, 31, 28),
    "s8 k32, F=1, row 8, cols 0-3": ("m16n8k32.row.col.s32.s8.s8.s32", 1, 8, 0, 3, 0),
    "s8 k64, row 0, cols 60-63": ("m16n8k64.row.col.s32.s8.s8.s32", 0, 0, 60, 2, 28),
    "s8 k64, row 13, cols 28-31": ("m16n8k64.row.col.s32.s8.s8.s32", 0, 13, 28, 21, 28),
    "s4 k128, row 8, cols 0-7": ("m16n8k128.row.col.s32.s4.s4.s32", 0, 8, 0, 1, 0),
}


@pytest.mark.parametrize("form", ["mma.sp", "mma.sp::ordered_metadata"])
@pytest.mark.parametrize("example", METADATA_EXAMPLES)
def test_metadata_examples(example: str, form: str) -> None:
    """The worked examples of 2.4, in plain and ordered form."""
    tail, selector, row, first, lane, bit = METADATA_EXAMPLES[example]
    name = f"{form}.sync.aligned.{tail}"
    chunk = first // ptx.CHUNK[ptx.spelling(name).pack_of("a")]
    assert wf.get(name).metadata.where(row=row, chunk=chunk, selector=selector) == (lane, bit)


def test_dense_has_no_metadata() -> None:
    """`metadata` is None when A is dense."""
    assert [name for name in MMA if (wf.get(name).metadata is None) == (name in SPARSE)] == []


# --- block scaling


@each_of(SCALED)
def test_scale_places(name: str) -> None:
    """Every scale sits in the lane and byte of 1.7, for each byte-id and thread-id; `unpack` inverts."""
    words = ptx.spelling(name)
    instruction = wf.get(name)
    s = words.scales
    cases = (
        (instruction.scale_a, (16, s), ptx.THREAD_IDS_A, ptx.scale_a_place),
        (instruction.scale_b, (s, 8), ptx.THREAD_IDS_B, lambda x, y, b, t: ptx.scale_b_place(y, x, b, t)),
    )
    limit = 128 if words.scale_type == "ue4m3" else 256
    for operand, shape, thread_ids, place in cases:
        assert operand.format.name == words.scale_type
        assert tuple(operand.shape) == shape
        assert operand.ptx_type == ".b32"
        codes = np.random.default_rng(len(name)).integers(0, limit, (2, 3, *shape), dtype=np.uint8)
        for byte_id in ptx.BYTE_IDS[s]:
            for thread_id in thread_ids:
                packed = operand.pack(codes, byte_id=byte_id, thread_id=thread_id, raw=True)
                assert (packed.shape, packed.dtype) == ((2, 3, 32), np.dtype(np.uint32))
                lanes, bits = np.array(
                    [[place(x, y, byte_id, thread_id) for y in range(shape[1])] for x in range(shape[0])]
                ).transpose(2, 0, 1)
                assert np.array_equal((packed[..., lanes] >> bits.astype(np.uint32)) & 255, codes)
                again = operand.unpack(packed, byte_id=byte_id, thread_id=thread_id, raw=True)
                assert np.array_equal(again, codes)


@each_of(SCALED)
def test_scale_selectors_out_of_range_are_refused(name: str) -> None:
    """byte-id and thread-id outside the table of 1.7 are undefined in PTX: an error here, not a guess."""
    words = ptx.spelling(name)
    instruction = wf.get(name)
    shapes = {"scale_a": (16, words.scales), "scale_b": (words.scales, 8)}
    threads = {"scale_a": ptx.THREAD_IDS_A, "scale_b": ptx.THREAD_IDS_B}
    for operand, shape in shapes.items():
        codes = np.zeros(shape, np.uint8)
        for byte_id in sorted({-1, 0, 1, 2, 3, 4} - set(ptx.BYTE_IDS[words.scales])):
            with pytest.raises(wf.WarpfragError):
                getattr(instruction, operand).pack(codes, byte_id=byte_id, thread_id=0, raw=True)
        for thread_id in sorted({-1, 0, 1, 2, 3, 4} - set(threads[operand])):
            with pytest.raises(wf.WarpfragError):
                getattr(instruction, operand).pack(codes, byte_id=0, thread_id=thread_id, raw=True)


# --- wmma: the measured maps of sm_90


def measured(key: str, operand: Any) -> Ints:
    """The captured map of one key as a grid [lane, reg, slot, (row, col)]."""
    flat = WMMA_FILE[key].astype(np.int64)
    assert flat.shape == (32, operand.regs * operand.slots)
    return np.stack(np.divmod(flat, operand.shape[1]), axis=-1).reshape(32, operand.regs, operand.slots, 2)


@each_of(sorted(WMMA_FILE))
def test_wmma_load_and_store_are_the_measured_maps(key: str) -> None:
    """wmma.load, and wmma.store of accumulators, has the map an H200 showed, target named or not."""
    op, layout, shape, kind = key.split(".")
    names = [(f"wmma.load.{op}.sync.aligned.{layout}.{shape}.global.{kind}", op)]
    if op == "c":
        names.append((f"wmma.store.d.sync.aligned.{layout}.{shape}.global.{kind}", "d"))
    for name, operand in names:
        for instruction in (wf.get(name), wf.get(name, arch="sm_90"), wf.get(name, arch="sm_90a")):
            actual = getattr(instruction, operand)
            assert actual.format.name == kind
            assert actual.ptx_type == ptx.ptx_type(kind)
            assert differences(grid(actual), measured(key, actual)) == []


@each_of(WMMA_MMA)
def test_wmma_mma_operands_are_the_measured_maps(name: str) -> None:
    """The operands of wmma.mma have the fragments their loads and stores have."""
    words = ptx.spelling(name)
    instruction = wf.get(name)
    matrices = {
        "a": (words.m, words.k),
        "b": (words.k, words.n),
        "c": (words.m, words.n),
        "d": (words.m, words.n),
    }
    for operand, matrix in matrices.items():
        layout = {"a": words.layouts[0], "b": words.layouts[1]}.get(operand, "row")
        kind = words.type_of(operand)
        key = f"{'c' if operand == 'd' else operand}.{layout}.{words.shape}.{kind}"
        actual = getattr(instruction, operand)
        assert tuple(actual.shape) == matrix
        assert actual.format.name == kind
        assert actual.ptx_type == ptx.ptx_type(kind)
        assert differences(grid(actual), measured(key, actual)) == []


def test_every_measured_map_belongs_to_a_wmma_mma() -> None:
    """Each captured A, B and accumulator map is used by at least one wmma.mma: none is left unchecked."""
    used = set()
    for name in WMMA_MMA:
        words = ptx.spelling(name)
        used.add(f"a.{words.layouts[0]}.{words.shape}.{words.type_of('a')}")
        used.add(f"b.{words.layouts[1]}.{words.shape}.{words.type_of('b')}")
        used |= {f"c.{layout}.{words.shape}.{words.type_of(o)}" for layout in ("row", "col") for o in "cd"}
    assert used == set(WMMA_FILE)


@each_of(sorted(WMMA_FILE))
def test_wmma_copies_and_the_one_the_hardware_reads(key: str) -> None:
    """`where` lists every copy, sorted: the hardware reads the first, in the lowest register (3.1)."""
    op, layout, shape, kind = key.split(".")
    operand = getattr(wf.get(f"wmma.load.{op}.sync.aligned.{layout}.{shape}.global.{kind}"), op)
    holders: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for (lane, reg, slot), cell in np.ndenumerate(WMMA_FILE[key].reshape(32, operand.regs, operand.slots)):
        holders.setdefault(divmod(int(cell), operand.shape[1]), []).append((lane, reg, slot))
    assert len(holders) == operand.shape[0] * operand.shape[1]
    for (row, col), places in holders.items():
        assert operand.layout.where(row=row, col=col) == sorted(places)
    copies = {"m16n16k16": 2, "m8n32k16": 4 if op == "a" else 1, "m32n8k16": 4 if op == "b" else 1}
    expected = copies[shape] if kind == "f16" and op in "ab" else 1
    assert {len(places) for places in holders.values()} == {expected}


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_wmma_layouts_nobody_measured_are_refused(target: str) -> None:
    """wmma is legal on these targets, but its map is unknown: NotModelled, not sm_90's map."""
    instruction = wf.get("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", arch=target)
    for operand in "abcd":
        with pytest.raises(wf.errors.NotModelled):
            _ = getattr(instruction, operand).layout


# --- ldmatrix, stmatrix, movmatrix


def mover_operand(name: str) -> Any:
    """Return the register operand: the one that ldmatrix writes or stmatrix reads."""
    instruction = wf.get(name)
    return instruction.a if name.startswith("stmatrix") else instruction.d


@pytest.mark.parametrize("mover", MOVERS, ids=lambda mover: mover.name)
def test_mover_registers(mover: ptx.Mover) -> None:
    """Every register and slot of every lane holds the element of 4.3, in both directions."""
    operand = mover_operand(mover.name)
    assert (operand.regs, operand.slots, operand.words) == (mover.regs, mover.slots, mover.regs)
    assert operand.ptx_type == ".b32"
    assert tuple(operand.shape) == (mover.matrices, *mover.shape)
    for lane in range(32):
        for reg in range(mover.regs):
            for slot in range(mover.slots):
                place = operand.layout.at(lane=lane, reg=reg, slot=slot)
                assert (tuple(place), place._fields) == (mover.at(lane, reg, slot), ("matrix", "row", "col"))
                assert operand.layout.where(**place._asdict()) == [(lane, reg, slot)]


@pytest.mark.parametrize("mover", MOVERS, ids=lambda mover: mover.name)
def test_mover_addresses(mover: ptx.Mover) -> None:
    """The lane that passes the address of each row of each matrix (4.2) or, for m16n8, of a column's line."""
    addresses = wf.get(mover.name).addresses
    for lane in range(mover.matrices * mover.address_rows):
        place = addresses.at(lane=lane)
        assert tuple(place) == divmod(lane, mover.address_rows)
        assert place._fields == ("matrix", "col" if ".m16n8." in mover.name else "row")


@pytest.mark.parametrize("name", ptx.UNKNOWN_MOVERS)
def test_ldmatrix_s8_s4_is_legal_but_unknown(name: str) -> None:
    """The positions of the elements of an .s8.s4 load are not documented: the layout is rejected."""
    instruction = wf.get(name)
    with pytest.raises(wf.errors.NotModelled):
        _ = instruction.d.layout


def test_movmatrix_registers() -> None:
    """movmatrix: half h of the source holds M[g][2t+h], half h of the result M[2t+h][g] (4.3)."""
    instruction = wf.get(ptx.MOVMATRIX)
    for operand in (instruction.a, instruction.d):
        assert (operand.regs, operand.slots, operand.words, operand.ptx_type) == (1, 2, 1, ".b32")
        assert tuple(operand.shape) == (8, 8)
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for h in range(2):
            assert instruction.a.layout.at(lane=lane, reg=0, slot=h) == (g, 2 * t + h)
            assert instruction.d.layout.at(lane=lane, reg=0, slot=h) == (2 * t + h, g)


CAPTURED = [f"x{count}{trans}" for count in (1, 2, 4) for trans in ("", "t")]


def captured_name(op: str, form: str) -> str:
    """The spelling of a captured form such as x2t."""
    trans = ".trans" if form.endswith("t") else ""
    return f"{op}.sync.aligned.m8n8.{form.removesuffix('t')}{trans}.shared.b16"


def row_addresses(name: str) -> dict[tuple[int, int], int]:
    """Return (matrix, row) -> the row of shared memory whose address its lane passed in the capture."""
    addresses = wf.get(name).addresses
    lanes = 8 * int(name.split(".x")[1][0])
    return {tuple(addresses.at(lane=lane)): int(MOVER_FILE["rows"][lane]) for lane in range(lanes)}


@pytest.mark.parametrize("form", CAPTURED)
def test_ldmatrix_gives_the_captured_registers(form: str) -> None:
    """From the layout and the address lanes alone: the registers that an H200 loaded from a memory of indices."""
    name = captured_name("ldmatrix", form)
    operand = wf.get(name).d
    rows = row_addresses(name)
    got = np.zeros((32, operand.regs), np.uint32)
    for lane in range(32):
        for reg in range(operand.regs):
            for slot in range(2):
                matrix, row, col = operand.layout.at(lane=lane, reg=reg, slot=slot)
                got[lane, reg] |= np.uint32((8 * rows[matrix, row] + col) << (16 * slot))
    assert np.array_equal(got, MOVER_FILE[f"ldmatrix.{form}"])


@pytest.mark.parametrize("form", CAPTURED)
def test_stmatrix_gives_the_captured_memory(form: str) -> None:
    """From the layout and the address lanes alone: the shared memory that an H200 left, unchanged bytes included."""
    name = captured_name("stmatrix", form)
    operand = wf.get(name).a
    rows = row_addresses(name)
    given = MOVER_FILE[f"stmatrix.{form}.in"]
    memory = np.full((64, 8), 0xDEAD, np.uint16)
    for lane in range(32):
        for reg in range(operand.regs):
            for slot in range(2):
                matrix, row, col = operand.layout.at(lane=lane, reg=reg, slot=slot)
                memory[rows[matrix, row], col] = (int(given[lane, reg]) >> (16 * slot)) & 0xFFFF
    assert np.array_equal(memory, MOVER_FILE[f"stmatrix.{form}.smem"])


def test_movmatrix_gives_the_captured_registers() -> None:
    """Reading the source by its layout and writing the result by its own layout gives an H200's result."""
    instruction = wf.get(ptx.MOVMATRIX)
    matrix = np.zeros((8, 8), np.uint32)
    got = np.zeros(32, np.uint32)
    for lane in range(32):
        for slot in range(2):
            row, col = instruction.a.layout.at(lane=lane, reg=0, slot=slot)
            matrix[row, col] = (int(MOVER_FILE["movmatrix.in"][lane]) >> (16 * slot)) & 0xFFFF
    for lane in range(32):
        for slot in range(2):
            row, col = instruction.d.layout.at(lane=lane, reg=0, slot=slot)
            got[lane] |= np.uint32(int(matrix[row, col]) << (16 * slot))
    assert np.array_equal(got, MOVER_FILE["movmatrix.out"])
