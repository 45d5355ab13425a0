"""Launches of `hopper_kernels` that ran on an H200: kernels, data and options.

Inputs are computed, so that only digests of the results need to be kept. Maps are as the driver takes them, innermost
axis first. A launch that is `risky` ran in a process of its own: it may end with an error.
"""

import numpy as np

from ptx.hopper_kernels import BULK_REDUCTIONS

SIZES = {
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float32_ftz": 4,
    "tfloat32": 4,
    "tfloat32_ftz": 4,
}

WORDS = [
    0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0xBF801000, 0xBF803000, 0x7FC00001, 0x7F800001, 0x7FFFFFFF,
    0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x00001000, 0x00003000, 0x00000FFF, 0x00001001, 0x80001000, 0x007FFFFF,
    0x007FF000, 0x00800000, 0x7F7FFFFF, 0x7F7FF000, 0x7F7FEFFF, 0x00000001, 0x80000001, 0x3F7FF000, 0x3F7FF001,
    0x3F7FEFFF, 0x7F801000, 0x7F803FFF, 0xFFC01234, 0x807FFFFF,
]  # fmt: skip
"""Codes of f32 that show how they are rounded to tf32, and what becomes of subnormals and NaN."""


def pattern(size, salt):
    """Return `size` bytes that look random."""
    x = np.arange(-(-size // 4), dtype=np.uint64) + np.uint64(salt * 1000003)
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(29)
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ x >> np.uint64(32)).astype(np.uint32).view(np.uint8)[:size].copy()


def gentle(size, salt, dtype):
    """Bytes of floats whose sums stay finite, with subnormals, infinities and NaN here and there."""
    count = size // SIZES[dtype]
    raw = pattern(4 * count, salt).view(np.uint32).astype(np.int64)
    kind = {"float16": np.float16, "float32": np.float32, "float64": np.float64}.get(dtype, np.float32)
    value = ((raw % 4096) - 2048) / 512.0 * 2.0 ** ((raw >> 12) % 12 - 6)
    value = value.astype(kind)
    value[raw % 37 == 1] *= kind(2.0 ** (-14 if dtype in ("float16", "bfloat16") else -126))
    value[raw % 61 == 2] = np.inf
    value[raw % 67 == 3] = -np.inf
    value[raw % 71 == 4] = np.nan
    if dtype == "bfloat16":
        return (value.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
    return value.view(np.uint8)


def fill(item):
    if item.get("zero"):
        return np.zeros(item["size"], np.uint8)
    if item.get("numbers") is not None:
        return np.array(item["numbers"], np.int64).astype(np.int32).view(np.uint8).copy()
    if item.get("words"):
        return np.array(WORDS * (item["size"] // 128), np.uint32).view(np.uint8).copy()
    if item.get("gentle"):
        return gentle(item["size"], item["salt"], item["gentle"])
    return pattern(item["size"], item["salt"])


def tmap(dtype, dims, box, swizzle=0, fill="zero", strides=None, steps=None, interleave=0, im2col=None):
    """Innermost first, as the driver takes it; strides from the second axis on."""
    size = SIZES[dtype]
    if strides is None:
        strides, total = [], dims[0] * size
        for extent in dims[1:]:
            strides.append(total)
            total *= extent
    return {
        "dtype": dtype,
        "dims": list(dims),
        "strides": list(strides),
        "box": list(box),
        "swizzle": swizzle,
        "fill": fill,
        "steps": list(steps or [1] * len(dims)),
        "interleave": interleave,
        "im2col": im2col,
    }


def tensor_bytes(m):
    return m["strides"][-1] * m["dims"][-1] if m["strides"] else m["dims"][0] * SIZES[m["dtype"]]


def box_bytes(m):
    if m["im2col"]:
        return m["im2col"]["channels"] * m["im2col"]["pixels"] * SIZES[m["dtype"]]
    total = m["box"][0] * SIZES[m["dtype"]]
    for extent, step in zip(m["box"][1:], m["steps"][1:], strict=False):
        total *= -(-extent // step)
    return total


CASES = {}


def add(name, entry, args, grid, cluster=None, *, shared=0, block=128, risky=False):
    """Add a launch; omitted extents are 1."""
    CASES[name] = {
        "entry": entry,
        "args": args,
        "grid": grid if isinstance(grid, tuple) else (grid, 1, 1),
        "cluster": (cluster, 1, 1) if isinstance(cluster, int) else cluster,
        "shared": shared,
        "block": block,
        "risky": risky,
    }


def tensor(m, salt=1, *, out=False, **more):
    """A tensor map argument."""
    return dict(map=m, size=tensor_bytes(m), salt=salt, out=out, **more)


def array(size, salt=2, *, out=False, **more):
    """Return an array argument with this number of bytes."""
    return dict(array=True, size=size, salt=salt, out=out, **more)


def numbers(values):
    return {"array": True, "numbers": [int(v) for v in values], "size": 4 * len(values)}


def u32(v):
    return {"scalar": int(v), "type": "uint32"}


def u64(v):
    return {"scalar": int(v), "type": "uint64"}


def load(name, m, places, entry=None, *, offset=0, dump=None, risky=False, offsets=(), **more):
    rank, count = len(m["dims"]), box_bytes(m)
    dump = dump or -(-(count + offset) // 4) * 4
    packed = sum((v & 0xFFFF) << 16 * i for i, v in enumerate(offsets))
    flat = [v for place in places for v in place]
    entry = entry or (f"im2col{rank}" if m["im2col"] else f"load{rank}")
    add(
        name,
        entry,
        [
            tensor(m, **more),
            numbers(flat),
            array(dump * len(places), out=True, zero=True),
            u32(count),
            u32(dump),
            u32(offset),
            u64(packed),
        ],
        len(places),
        shared=max(dump, count + offset),
        risky=risky,
    )


def store(name, m, places, entry=None, *, risky=False, data=None, **more):
    rank, count = len(m["dims"]), box_bytes(m)
    flat = [v for place in places for v in place]
    entry = entry or f"store{rank}"
    data = data or {}
    add(
        name,
        entry,
        [tensor(m, out=True, **more), numbers(flat), array(count * len(places), salt=5, **data), u32(count), u32(0)],
        len(places),
        shared=count,
        risky=risky,
    )


# --- loads: ranks, swizzles, types, fills
load("load1_u8", tmap("uint8", [200], [48]), [(0,), (32,), (160,), (-16,), (208,), (-64,)])
load("load1_u32", tmap("uint32", [100], [64]), [(0,), (4,), (96,), (-60,), (1000,)])
load("load1_f64_nan", tmap("float64", [30], [16], fill="nan"), [(0,), (16,), (-6,), (28,)])
load("load2_u16_sw32", tmap("uint16", [64, 20], [16, 12], 32), [(0, 0), (16, 5), (56, 14), (-8, -3)])
load("load2_i32_sw64", tmap("int32", [40, 20], [16, 10], 64), [(0, 0), (4, 5), (36, 14), (-8, -3)])
load("load2_u64_sw128", tmap("uint64", [40, 20], [16, 9], 128), [(0, 0), (2, 5), (36, 14), (-8, -3)])
load("load2_i64", tmap("int64", [10, 7], [4, 3]), [(0, 0), (2, 5), (8, 6)])
load("load2_u8_sw128", tmap("uint8", [256, 16], [128, 10], 128), [(0, 0), (128, 3), (208, 12), (-32, -1)])
for kind in ("float16", "bfloat16", "float32", "float64", "float32_ftz", "tfloat32", "tfloat32_ftz"):
    wide = 32 // SIZES[kind]
    load(
        f"load2_{kind}_nan",
        tmap(kind, [2 * wide, 6], [wide, 4], 32, fill="nan"),
        [(0, 0), (wide + 16 // SIZES[kind], 4), (-wide // 2, -2)],
        gentle=kind,
    )
    load(
        f"load2_{kind}_zero", tmap(kind, [2 * wide, 6], [wide, 4]), [(0, 1), (wide + 16 // SIZES[kind], 4)], gentle=kind
    )
load("load2_bits_tf32", tmap("tfloat32", [16, 16], [16, 16]), [(0, 0)])
load("load2_bits_ftz", tmap("float32_ftz", [16, 16], [16, 16]), [(0, 0)])
load("load2_narrow128", tmap("uint16", [64, 20], [32, 12], 128), [(0, 0), (16, 3)], dump=2048)
load("load2_narrow64", tmap("uint16", [64, 20], [8, 12], 64), [(0, 0), (16, 3)], dump=1024)
load("load2_narrow32", tmap("uint16", [64, 20], [8, 12], 32), [(8, 0)], dump=1024)
load("load2_pitch", tmap("uint16", [24, 9], [16, 5], strides=[80]), [(0, 0), (16, 6)])
load("load2_steps", tmap("uint16", [32, 40], [16, 11], steps=[1, 3], swizzle=32), [(0, 0), (16, 5), (8, 33), (0, -4)])
load("load2_inner_step", tmap("uint16", [32, 10], [16, 4], steps=[2, 1]), [(0, 0), (16, 5)], dump=256)
load("load3", tmap("uint16", [24, 6, 5], [16, 3, 4], 32), [(0, 0, 0), (8, 4, 3), (-8, -1, -2)])
load(
    "load3_steps",
    tmap("float32", [16, 9, 9], [8, 5, 6], steps=[1, 2, 4], fill="nan"),
    [(0, 0, 0), (8, 3, 5), (4, -2, -3)],
)
load("load4", tmap("uint8", [48, 5, 4, 3], [32, 3, 2, 2], 32), [(0, 0, 0, 0), (16, 3, 3, 2), (-16, -1, 1, -1)])
load(
    "load5",
    tmap("float16", [16, 4, 3, 3, 3], [8, 3, 2, 2, 2], fill="nan"),
    [(0, 0, 0, 0, 0), (8, 2, 2, 2, 2), (-8, -1, -1, -1, -1)],
    gentle="float16",
)
load("load5_sw128", tmap("uint32", [32, 3, 3, 2, 3], [32, 2, 1, 2, 2], 128), [(0, 1, 2, 0, 1), (4, 2, 0, 1, 2)])
load("load2_cta", tmap("uint16", [64, 20], [64, 8], 128), [(0, 3)], entry="load2_cta")
load("load2_pointer", tmap("uint16", [64, 20], [64, 8], 128), [(0, 5)], entry="load2_pointer")
for offset in (128, 256, 384, 512, 896):
    load(f"load2_at{offset}", tmap("uint16", [64, 20], [64, 9], 128), [(0, 1)], offset=offset)
load("load2_sw64_at128", tmap("uint16", [64, 20], [32, 9], 64), [(0, 1)], offset=128)
load("load2_sw32_at128", tmap("uint16", [64, 20], [16, 9], 32), [(0, 1)], offset=128)
# --- what may end a launch
for offset in (16, 32, 64):
    load(f"bad_box_at{offset}", tmap("uint16", [64, 20], [64, 8]), [(0, 1)], offset=offset, risky=True)
    load(f"bad_box_sw128_at{offset}", tmap("uint16", [64, 20], [64, 8], 128), [(0, 1)], offset=offset, risky=True)
for start in (1, 2, 4, -1, -4):
    load(f"bad_inner_u16_{start}", tmap("uint16", [64, 20], [16, 8]), [(start, 1)], risky=True)
load("bad_inner_u8_8", tmap("uint8", [64, 20], [16, 8]), [(8, 1)], risky=True)
load("bad_inner_f32_1", tmap("float32", [64, 20], [16, 8]), [(1, 1)], risky=True)
load("bad_inner_f32_2_sw64", tmap("float32", [64, 20], [16, 8], 64), [(2, 1)], risky=True)
load("bad_inner_steps", tmap("uint16", [64, 20], [16, 8], steps=[1, 2]), [(2, 1)], risky=True)
load(
    "far_2d",
    tmap("uint16", [64, 20], [16, 4]),
    [(1 << 20, 1), (0, 1 << 30), (-(1 << 20), -(1 << 30)), (0, (1 << 31) - 1), (0, -(1 << 31))],
    risky=True,
)
load("bad_rank", tmap("uint16", [64, 20], [16, 4]), [(0, 0, 0)], entry="load3", risky=True)
load("bad_rank_low", tmap("uint16", [64, 20], [16, 4]), [(0,)], entry="load1", risky=True)
store("bad_store_negative", tmap("uint16", [64, 20], [16, 4]), [(0, -1)], risky=True)
store("bad_store_inner", tmap("uint16", [64, 20], [16, 4]), [(4, 1)], risky=True)
store("bad_reduce_negative", tmap("uint32", [64, 20], [16, 4]), [(0, -1)], entry="reduce2_add", risky=True)
store("far_store", tmap("uint16", [64, 20], [16, 4]), [(1 << 20, 1), (0, 1 << 30), (64, 20)], risky=True)
# --- stores
store("store1", tmap("uint32", [100], [48]), [(0,), (48,), (96,)])
store("store2_sw128", tmap("uint16", [72, 20], [64, 8], 128), [(0, 0), (64, 9), (8, 18)])
store("store2_sw64", tmap("uint8", [100, 20], [64, 6], 64, strides=[112]), [(0, 0), (64, 7), (32, 17)])
store("store2_sw32", tmap("uint64", [10, 20], [4, 6], 32), [(0, 0), (4, 7), (8, 17)])
store("store2_steps", tmap("uint16", [32, 40], [16, 11], steps=[1, 3]), [(0, 0), (16, 5), (8, 33)])
store("store3", tmap("float32", [12, 6, 5], [8, 3, 4]), [(0, 0, 0), (8, 4, 3)])
store("store4", tmap("float16", [24, 5, 4, 3], [16, 3, 2, 2], 32), [(0, 0, 0, 0), (16, 3, 3, 2)])
store("store5", tmap("uint8", [48, 3, 3, 3, 3], [16, 2, 2, 2, 2]), [(0, 0, 0, 0, 0), (32, 2, 2, 2, 2)])
store("store2_tf32", tmap("tfloat32", [16, 8], [16, 8]), [(0, 0)])
store("store2_ftz", tmap("float32_ftz", [16, 8], [16, 8]), [(0, 0)], data={"gentle": "float32"}, gentle="float32")

# --- reductions
KINDS = {
    "add": (
        "uint32",
        "int32",
        "uint64",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "float32_ftz",
        "tfloat32",
    ),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64"),
    "inc": ("uint32", "int32"),
    "dec": ("uint32", "uint64"),
    "and": ("uint32", "int32", "uint64", "int64", "uint8"),
    "or": ("uint32", "uint64", "uint16"),
    "xor": ("uint32", "int64", "float32"),
}
for op, kinds in KINDS.items():
    for kind in kinds:
        wide = 64 // SIZES[kind]
        more = {"gentle": kind if not kind.startswith(("float32_", "tf")) else "float32"} if "float" in kind else {}
        store(
            f"reduce_{op}_{kind}",
            tmap(kind, [wide, 8], [wide // 2, 4], 32),
            [(0, 0), (wide // 2, 6)],
            entry=f"reduce2_{op}",
            risky=True,
            data=more,
            **more,
        )
for rank, m in (
    (1, tmap("uint32", [100], [48])),
    (3, tmap("int32", [12, 6, 5], [8, 3, 4])),
    (4, tmap("uint32", [12, 5, 4, 3], [8, 3, 2, 2], 32)),
    (5, tmap("uint64", [6, 3, 3, 3, 3], [4, 2, 2, 2, 2])),
):
    store(
        f"reduce{rank}_add",
        m,
        [(0,) * rank, tuple(max(0, e - 4) if i == 0 else e - 1 for i, e in enumerate(m["dims"]))],
        entry=f"reduce{rank}_add",
    )

# --- im2col


def conv(kind, dims, lower, upper, channels, pixels, swizzle=0, fill="zero", steps=None):
    return tmap(
        kind,
        dims,
        [1] * len(dims),
        swizzle,
        fill,
        steps=steps,
        im2col={"lower": list(lower), "upper": list(upper), "channels": channels, "pixels": pixels},
    )


load(
    "im2col4",
    conv("uint16", [16, 7, 6, 3], [-1, -1], [-1, -1], 16, 24, 32),
    [(0, -1, -1, 0), (0, 3, 2, 1), (0, -1, 4, 2)],
    offsets=(0, 0),
)
load(
    "im2col4_tap",
    conv("uint16", [16, 7, 6, 3], [-1, -1], [-1, -1], 8, 20),
    [(0, -1, -1, 0), (8, 3, 2, 1)],
    offsets=(2, 1),
)
load(
    "im2col4_step",
    conv("uint16", [8, 9, 9, 2], [-1, -1], [-1, -1], 8, 20, steps=[1, 2, 2, 1]),
    [(0, -1, -1, 0), (0, 3, 3, 0)],
    offsets=(1, 2),
)
load(
    "im2col4_step3",
    conv("uint16", [8, 10, 7, 3], [0, -1], [-2, 0], 8, 12, steps=[1, 3, 2, 1]),
    [(0, 0, -1, 0), (0, 3, 1, 1)],
    offsets=(1, 0),
)
load(
    "im2col4_nan",
    conv("float16", [64, 5, 5, 2], [-2, -1], [0, 1], 64, 16, 128, fill="nan"),
    [(0, -2, -1, 0), (8, 2, 3, 1)],
    offsets=(1, 1),
    gentle="float16",
)
load("im2col3", conv("uint32", [8, 11, 4], [-2], [1], 8, 30), [(0, -2, 0), (4, 5, 2)], offsets=(1,))
load(
    "im2col5",
    conv("uint8", [32, 4, 4, 4, 2], [-1, 0, -1], [0, -1, 0], 32, 40, 32),
    [(0, -1, 0, -1, 0), (0, 2, 1, 1, 1)],
    offsets=(1, 1, 1),
)
load(
    "im2col5_step",
    conv("uint16", [8, 5, 4, 4, 2], [-1, -1, -1], [0, 0, 0], 8, 40, steps=[1, 2, 2, 2, 1]),
    [(0, -1, -1, -1, 0)],
    offsets=(0, 1, 2),
)
load(
    "im2col4_outside",
    conv("uint16", [8, 5, 5, 2], [-1, -1], [-1, -1], 8, 40),
    [(0, 2, 3, 1), (0, 6, 2, 0), (0, -3, 0, 0)],
    offsets=(0, 0),
    risky=True,
)
load(
    "im2col4_step_start",
    conv("uint16", [8, 9, 9, 2], [-1, -1], [-1, -1], 8, 20, steps=[1, 2, 2, 1]),
    [(0, 0, 0, 0), (0, 2, 1, 0)],
    offsets=(0, 0),
    risky=True,
)
load(
    "im2col4_batch_step",
    conv("uint16", [8, 4, 4, 5], [0, 0], [0, 0], 8, 40, steps=[1, 1, 1, 2]),
    [(0, 0, 0, 0)],
    offsets=(0, 0),
    risky=True,
)
for rank, m, places in (
    (3, conv("uint32", [8, 11, 4], [0], [0], 8, 20), [(0, 0, 0), (4, 5, 3)]),
    (4, conv("uint16", [16, 7, 6, 3], [0, 0], [0, 0], 16, 24, 32), [(0, 0, 0, 0), (8, 3, 2, 2)]),
    (5, conv("uint8", [32, 4, 4, 4, 2], [0, 0, 0], [0, 0, 0], 32, 40, 32), [(0, 0, 0, 0, 0), (16, 2, 1, 1, 1)]),
):
    store(f"put_im2col{rank}", m, places, entry=f"put_im2col{rank}", risky=True)
store(
    "put_im2col4_corner",
    conv("uint16", [16, 7, 6, 3], [1, 1], [-1, -1], 16, 12),
    [(0, 1, 1, 0)],
    entry="put_im2col4",
    risky=True,
)

# --- clusters
for size in (1, 2, 4, 8):
    add(f"registers_{size}", "registers", [array(64 * 16, out=True, zero=True)], 16, size, block=32)
    add(f"distributed_{size}", "distributed", [array(256 * 8), array(256 * 8, out=True, zero=True)], 8, size, block=64)
    add(f"st_async_{size}", "st_async", [array(256 * 8), array(256 * 8, out=True, zero=True)], 8, size, block=64)
    add(f"arrivals_{size}", "arrivals", [array(64 * 8, out=True, zero=True)], 8, size, block=64)
    m = tmap("uint16", [64, 64], [64, 4], 128)
    masks = [(1 << size) - 1, 1, 0, 3, 2, 1 << size - 1, 0, 5 % (1 << size)][:size] if size > 1 else [1]
    expected = [sum(512 for mask in masks if mask >> rank & 1) for rank in range(size)]
    places = [v for block in range(8) for v in (0, 5 * block - 2)]
    add(
        f"multicast_{size}",
        "multicast2",
        [
            tensor(m),
            numbers(places),
            array(8 * 512 * size, out=True, zero=True),
            u32(512),
            u32(512 * size),
            numbers(masks),
            numbers(expected),
        ],
        8,
        size,
        shared=512 * size,
    )
    add(
        f"bulk_multicast_{size}",
        "bulk_multicast",
        [
            array(512 * 8),
            array(8 * 512 * size, out=True, zero=True),
            u32(512),
            u32(512 * size),
            numbers(masks),
            numbers(expected),
        ],
        8,
        size,
        shared=512 * size,
    )
add("registers_2x2", "registers", [array(64 * 48, out=True, zero=True)], (6, 4, 2), (2, 2, 1), block=32)
add("registers_1x2x2", "registers", [array(64 * 48, out=True, zero=True)], (6, 4, 2), (1, 2, 2), block=32)
for op in ("add", "min", "xor"):
    add(f"red_async_{op}", f"red_async_{op}", [array(256 * 8), array(256 * 8, out=True, zero=True)], 8, 4, block=64)
for op in ("", "_add", "_min", "_xor", "_u64"):
    add(f"bulk_remote{op}", f"bulk_remote{op}", [array(256 * 8), array(256 * 8, out=True, zero=True)], 8, 4, block=64)
NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def bulk_cases(ops):
    for op in ops:
        kind = NAMES.get(op.split(".")[-1])
        more = {"gentle": kind} if kind else {}
        add(
            f"bulk_{op.replace('.', '_')}",
            f"bulk_{op.replace('.', '_')}",
            [array(512, salt=3, **more), array(512, salt=4, out=True, **more), u32(256)],
            2,
            shared=256,
        )


bulk_cases(BULK_REDUCTIONS)
m = tmap("uint16", [64, 20], [64, 8], 128)
add(
    "made2",
    "made2",
    [
        array(tensor_bytes(m), salt=1),
        array(128 * 2, zero=True),
        numbers([0, 0, 0, 15]),
        array(2048, out=True, zero=True),
        u32(1024),
        u32(1024),
        u32(64),
        u32(20),
        u64(128),
        u32(64),
        u32(8),
    ],
    2,
    shared=1024,
)
add(
    "bad_mask",
    "multicast2",
    [
        tensor(m),
        numbers([0, 0, 0, 0]),
        array(2 * 1024, out=True, zero=True),
        u32(1024),
        u32(1024),
        numbers([7, 0]),
        numbers([1024, 1024]),
    ],
    2,
    2,
    shared=2048,
    risky=True,
)

# --- how elements of f32 and tf32 are rounded, and tensors that end inside a unit of 16 bytes
for kind in ("tfloat32", "tfloat32_ftz", "float32_ftz", "float32"):
    row = tmap(kind, [32, 1], [32, 1])
    load(f"words_{kind}", row, [(0, 0)], words=True)
    store(f"store_{kind}", row, [(0, 0)], data={"words": True})
for kind in ("float32", "float32_ftz"):
    row = tmap(kind, [32, 1], [32, 1])
    store(f"add_{kind}", row, [(0, 0)], entry="reduce2_add", words=True, data={"words": True})
store("partial_store_u32", tmap("uint32", [29, 4], [16, 4], strides=[128]), [(16, 0)])
store("partial_store_f16", tmap("float16", [21, 4], [16, 4], strides=[64]), [(16, 0)])
store("partial_store_3d", tmap("uint8", [21, 2, 2], [32, 2, 2], strides=[32, 64]), [(0, 0, 0)])
load("partial_load_u8", tmap("uint8", [21, 4], [32, 4], strides=[32]), [(0, 0), (16, 0)])
