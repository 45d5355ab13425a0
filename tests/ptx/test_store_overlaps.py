"""Stores of several lanes to one address: the bytes that an H200 keeps, and the runs that are still exact."""

import random
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from small_kernel import kernel
from tools.stores import emulate, stores

DATA = Path(__file__).parent.parent / "data" / "ptx"
HARDWARE = np.load(DATA / "store_overlaps_h200.npz")
EVERY = {store.key: store for store in stores()}
COMPILED = ("st_shared_1_1", "st_global_2_1", "st_global_4_1", "st_shared_4_2", "st_gglobal_4_4")  # each takes a second


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("named", "key"), [*(("reference", key) for key in EVERY), *(("compiled", key) for key in COMPILED)]
)
def test_the_lanes_stay_that_an_h200_keeps(named, key):
    store = EVERY[key]
    offsets, masks, seen = (HARDWARE[f"{key}_{part}"] for part in ("offsets", "masks", "seen"))
    out = emulate(store, offsets.astype(np.uint32), masks, engine=named)[:, : store.lanes]

    if store.opcode == "stmatrix":
        assert np.array_equal(out.view(np.uint16), seen)
    else:
        active = (masks[:, None] >> np.arange(32) & 1).astype(np.bool_)
        codes = out.view(np.uint8)[:, :, : store.size]
        assert np.array_equal(codes[active], seen[active][:, None].repeat(store.size, axis=1))


@pytest.mark.parametrize(("key", "arch", "reason"), [
    ("st_shared_1_1", "sm_90", None), ("st_global_4_2", "sm_90", None), ("st_global_4_2", "sm_100", "at once"),
    ("stmatrix_shared_2_0", "sm_90", "the same address and different bytes"),
])  # fmt: skip
def test_lanes_at_one_address_are_uncertain_where_nothing_was_measured(key, arch, reason):
    offsets, masks = HARDWARE[f"{key}_offsets"].astype(np.uint32), HARDWARE[f"{key}_masks"]
    out, memory = np.zeros((len(masks), 32, 4), np.uint32), np.zeros((len(masks), 4096), np.uint8)
    run = wf.ptx.load(EVERY[key].text("sm_90"))["k"].launch(len(masks), 32, [out, offsets, masks, memory], arch=arch)

    assert bool(run.uncertain) == (reason is not None)
    assert [reason in item.reason and "st" in item.source for item in run.inexact_lines] == [True] * (
        reason is not None
    )


def test_a_column_sum_of_triton_stores_rows_of_stmatrix_at_one_address():
    kernel = wf.ptx.load(DATA / "t_column_sum_sm90.ptx")["column_sum"]
    a, b = HARDWARE["column_sum_a"].copy(), HARDWARE["column_sum_b"].copy()
    out = np.zeros(16, np.float32)
    run = kernel.launch(1, 128, [a, b, out, None, None], shared=256)

    assert out.tobytes() == HARDWARE["column_sum_out"].tobytes()
    assert ["stmatrix" in item.source and "stmatrix" in item.reason for item in run.inexact_lines] == [True]
    a[...] = b[...] = 1.5
    same = kernel.launch(1, 128, [a, b, out, None, None], shared=256)
    assert not same.uncertain
    assert out.tolist() == [36] * 16


def test_asynchronous_copies_to_one_address_are_a_matter_of_timing():
    body = ".shared .align 16 .b8 cells[16];\nmov.u32 %r5, cells;\ncp.async.ca.shared.global [%r5], [%rd3], 4;"
    out = np.arange(32, dtype=np.uint32)
    run = wf.ptx.load(kernel(body))["k"].launch(1, 32, [out])

    assert ["timing" in item.reason for item in run.inexact_lines] == [True]


def test_fragments_that_overlap_in_memory_are_uncertain():
    body = (
        "mov.f32 %f1, 0f3F800000;\ncvt.rn.f32.u32 %f2, %r1;\n"
        "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f2}, %r5;"
    )
    for stride, expected in ((16, False), (8, True)):
        out = np.zeros(256, np.float32)
        run = wf.ptx.load(kernel(f"mov.u32 %r5, {stride};\n{body}"))["k"].launch(1, 32, [out])
        assert bool(run.uncertain) == expected


def random_stores(rng):
    """Return a kernel with stores of many widths, to few addresses and with few values, and some barriers."""
    lines = [".shared .align 16 .b8 cells[512];", "mov.u32 %r20, cells;"]
    for _ in range(rng.randint(4, 10)):
        if rng.random() < 0.3:
            lines.append(rng.choice(["bar.sync 0;", "ld.volatile.global.u32 %r30, [%rd1+2000];"]))
            continue
        kind, size, count = rng.choice([
            ("u8", 1, 1), ("v2.u8", 2, 2), ("u16", 2, 1), ("v2.u16", 4, 2),
            ("u32", 4, 1), ("v2.u32", 8, 2), ("v4.u32", 16, 4),
        ])  # fmt: skip
        lines += [
            f"shr.u32 %r6, {rng.choice(('%r1', '%r2', '%r4'))}, {rng.choice((0, 1, 4, 5))};",
            f"and.b32 %r6, %r6, {rng.choice((0, 1, 3, 15))};\nmul.lo.u32 %r6, %r6, {size};",
            f"shr.u32 %r7, {rng.choice(('%r1', '%r2', '%r4'))}, {rng.choice((0, 2, 5, 6))};",
            f"and.b32 %r7, %r7, {rng.choice((0, 1, 3))};\ncvt.u16.u32 %h1, %r7;",
            f"and.b32 %r8, %r1, {rng.choice((0, 1, 31, 32))};\nsetp.eq.u32 %p1, %r8, 0;",
            "add.u32 %r9, %r20, %r6;\ncvt.u64.u32 %rd5, %r6;\nadd.u64 %rd5, %rd5, %rd1;",
        ]
        items = ", ".join(["%r7" if "32" in kind else "%h1"] * count)
        place, space = rng.choice((("%r9", "shared"), ("%rd5", "global")))
        lines.append(f"@%p1 st.{space}.{kind} [{place}], {'{' * (count > 1)}{items}{'}' * (count > 1)};")
    return kernel("\n".join(lines))


@pytest.mark.slow
@pytest.mark.one_engine
def test_both_engines_call_the_same_lines_uncertain():
    rng = random.Random(27)
    uncertain = 0
    for _ in range(8):
        text, block = random_stores(rng), rng.choice((32, 96, 128))
        seen = []
        for engine in ("reference", "compiled"):
            out = np.zeros(1024, np.uint32)
            run = wf.ptx.load(text)["k"].launch(
                3, block, [out], engine=engine, arch="sm_100", options=wf.ptx.LaunchOptions(threads=1)
            )
            seen.append((out.tobytes(), run.inexact_lines))
        assert seen[0] == seen[1]
        uncertain += bool(run.uncertain)
    assert 1 < uncertain < 8
