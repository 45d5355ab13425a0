"""Launches of one tensor copy each that ran on an H200: at the edges of tensors, and by interleaved maps.

Maps are as the driver takes them, innermost axis first. Word i of a tensor is `TENSOR` plus i and word i of shared
memory before a store `SHARED` plus i, unless a row says otherwise: what a copy left shows where each unit came from.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from ptx.hopper_kernels import HEAD, REDUCTIONS, load, store
from ptx.hopper_launches import SIZES, tmap

TENSOR = 0x01000000
SHARED = 0x02000000
DUMP = 8192  # bytes of shared memory that a launch which loads gives back


class SingleCopy(NamedTuple):
    """A kernel of `module`, a map and its tensor, the coordinates and, for a store, the contents of shared memory."""

    entry: str
    map: dict
    place: tuple
    tensor: np.ndarray
    data: np.ndarray | None = None
    offsets: tuple = ()  # of im2col
    start: int = 0  # of the box behind the first byte of shared memory
    dump: int = DUMP


def module():
    parts = [HEAD]
    parts += [load(f"load{rank}", rank) for rank in (3, 4, 5)]
    parts += [load(f"load_im2col{rank}", rank, "im2col") for rank in (3, 4, 5)]
    parts += [store(f"store{rank}", rank) for rank in range(2, 6)]
    parts += [store(f"reduce{rank}_{op}", rank, op) for rank in range(1, 6) for op in REDUCTIONS]
    parts += [store(f"put_im2col{rank}", rank, mode="im2col_no_offs") for rank in (3, 4, 5)]
    parts += [store(f"reduce_im2col{rank}_add", rank, "add", mode="im2col_no_offs") for rank in (3, 4, 5)]
    return "\n".join(parts)


def words(size, first):
    return (np.arange(-(-size // 4), dtype=np.uint32) + np.uint32(first)).view(np.uint8)[:size].copy()


def loads(m, place, *, size=1 << 18, tensor=None, **more):
    entry = f"load_im2col{len(m['dims'])}" if m["im2col"] else f"load{len(m['dims'])}"
    return SingleCopy(entry, m, place, words(size, TENSOR) if tensor is None else tensor, **more)


def stores(m, place, entry, data=None, tensor=None):
    return SingleCopy(
        entry,
        m,
        place,
        words(1 << 18, TENSOR) if tensor is None else tensor,
        words(4096, SHARED) if data is None else data,
    )


def numbers(rng, kind, size):
    """Return bytes of small random numbers."""
    count = size // SIZES[kind]
    if kind in ("float16", "float32", "float64"):
        return (rng.integers(-64, 64, count) / 8).astype(kind).view(np.uint8)
    if kind == "bfloat16":
        wide = (rng.integers(-64, 64, count) / 8).astype(np.float32).view(np.uint32)
        return (wide >> 16).astype(np.uint16).view(np.uint8)
    return rng.integers(1, 200, count).astype(kind).view(np.uint8)


def random_stores(rng, m, place, entry, in_shared, in_tensor):
    data = numbers(rng, m["dtype"], in_shared)
    return stores(m, place, entry, data, numbers(rng, m["dtype"], in_tensor))


def edges():
    """Stores and reductions of boxes for tensors that end inside a 16-byte unit."""
    rng = np.random.default_rng(5)  # of all rows: what is computed follows their order
    row = partial(random_stores, rng)
    yield from edges_of_types(row)
    yield from edges_of_ranks(row)
    yield from edges_of_pixels(row)


def edges_of_types(row):
    for kind, ops in {
        "uint32": REDUCTIONS, "int32": ("add", "min"), "uint64": ("add", "max"), "float16": ("add", "max"),
        "bfloat16": ("add",), "float32": ("add",), "float64": ("add",), "int64": ("min",),
    }.items():  # fmt: skip
        size = SIZES[kind]
        for less in {4: (1, 2, 3), 2: (1, 3), 8: (1,)}[size]:
            for op in ops if less == 1 else ("add",):
                m = tmap(kind, [64 // size - less, 4], [32 // size, 4], strides=[64])
                yield f"reduce edge {kind} {op} less{less}", row(m, (32 // size, 0), f"reduce2_{op}", 128, 512)


def edges_of_ranks(row):
    for rank in (1, 3, 4, 5):
        strides = [64, 192, 576, 1152][: rank - 1]
        m = tmap("uint32", [13, 3, 3, 2, 2][:rank], [16, 2, 2, 2, 2][:rank], strides=strides)
        yield f"reduce edge r{rank}", row(m, (0,) * rank, f"reduce{rank}_add", 4096, 8192)
    for kind, extent in (("uint32", 3), ("uint32", 1), ("uint64", 1), ("float16", 3), ("float16", 5)):
        m = tmap(kind, [extent, 6], [16 // SIZES[kind], 4], strides=[32])
        for entry in ("reduce2_add", "store2"):
            yield f"{entry} narrow {kind} {extent}", row(m, (0, 4), entry, 64, 512)
    for kind in ("uint32", "float16"):
        wide = 64 // SIZES[kind]
        m = tmap(kind, [wide - 1, 4], [wide, 4], 64, strides=[64])
        yield f"reduce edge {kind} sw64", row(m, (0, 0), "reduce2_add", 256, 512)


def edges_of_pixels(row):
    for rank in (3, 4, 5):
        spatial = rank - 2
        for channels, extent in ((8, 8), (8, 6), (16, 13)):
            kind = {"lower": [0] * spatial, "upper": [0] * spatial, "channels": channels, "pixels": 20}
            dims, strides = [extent, 6, 5, 3, 2][:rank], [64, 384, 1920, 5760][: rank - 1]
            m = tmap("uint32", dims, [1] * rank, strides=strides, im2col=kind)
            for entry in (f"reduce_im2col{rank}_add", f"put_im2col{rank}"):
                place = (0, *([1] * spatial), 0)
                yield f"{entry} ch{channels} of{extent}", row(m, place, entry, 4096, 16384)


WIDE = {3: [224, 5216], 4: [224, 2208, 20512], 5: [224, 1056, 7200, 40992]}
"""Strides that tell axes apart; rows of 16 pixels and more overlap the next."""


def interleaved(slice_bytes):
    """Boxes of every rank, swizzle and type of map, inside tensors and at their edges."""

    def sliced(kind, dims, box, **more):
        return tmap(kind, dims, box, interleave=slice_bytes, **{"strides": WIDE[len(dims)]} | more)

    for part in (sliced_loads, sliced_edges, sliced_stores, sliced_pixels):
        yield from part(sliced, f"il{slice_bytes}")


def sliced_loads(sliced, name):
    for rank in (3, 4, 5):
        m = sliced("uint16", [40, 6, 5, 4, 3][:rank], [16, 3, 2, 2, 2][:rank], swizzle=32)
        places = [tuple((8 if axis == 0 else 1) * (axis == one) for axis in range(rank)) for one in range(-1, rank)]
        for place in places:
            yield f"load {name} r{rank} inner16 sw32 at{place}", loads(m, place)
    dims, zero = [40, 6, 5, 4], (0, 0, 0, 0)
    for kind in ("uint8", "uint32", "uint64"):
        yield f"load {name} {kind} inner32B", loads(sliced(kind, dims, [32 // SIZES[kind], 3, 2, 2]), zero)
    for swizzle, inner in ((64, 8), (128, 16)):
        m = sliced("uint16", dims, [inner, 3, 2, 2], swizzle=swizzle)
        yield f"load {name} sw{swizzle} inner{inner}", loads(m, zero)


def sliced_edges(sliced, name):
    dims, zero = [40, 6, 5, 4], (0, 0, 0, 0)
    m = sliced("uint16", dims, [16, 3, 2, 2])
    for start in (1, 32, -1):
        yield f"load {name} c{start}", loads(m, (start, 0, 0, 0))
    for place in ((0, 1, 2, 3), (0, -1, -2, -3), (0, 4, 4, 3), (24, 2, 1, 0)):
        yield f"load {name} at{place}", loads(m, place)
    yield f"load {name} extent12", loads(sliced("uint16", [12, 6, 5, 4], [32, 3, 2, 2]), zero)
    m = sliced("float16", [5, 6, 5, 4], [32, 3, 2, 2], fill="nan")
    yield f"load {name} nan extent5", loads(m, (0, 4, 4, 3))
    for steps in ([1, 2, 1, 1], [1, 1, 2, 1], [2, 1, 1, 1], [1, 2, 3, 2]):
        yield f"load {name} steps{steps}", loads(sliced("uint16", dims, [16, 5, 4, 3], steps=steps), zero)
    for rank in (4, 5):  # of rank 5 the box is larger than shared memory where a slice has 32 bytes
        dense = [int(name[2:]) * size for size in (6, 30, 120, 480)][: rank - 1]
        m = sliced("uint16", [64, 6, 5, 3, 2][:rank], [32, 3, 2, 2, 2][:rank], strides=dense)
        yield f"load {name} dense r{rank} c16", loads(m, (16, *([1] * (rank - 1))))


def sliced_stores(sliced, name):
    dims, zero = [40, 6, 5, 4], (0, 0, 0, 0)
    for rank in (3, 4, 5):
        m = sliced("uint16", [40, 6, 5, 4, 3][:rank], [16, 3, 2, 2, 2][:rank])
        for place in ((1, *([1] * (rank - 1))), (2, *([4] * (rank - 1)))):
            yield f"store {name} r{rank} at{place}", stores(m, place, f"store{rank}")
        m = sliced("uint32", [20, 6, 5, 4, 3][:rank], [8, 3, 2, 2, 2][:rank])
        yield f"reduce {name} r{rank}", stores(m, (0,) * rank, f"reduce{rank}_add")
    yield f"store {name} sw32", stores(sliced("uint16", dims, [16, 3, 2, 2], swizzle=32), zero, "store4")
    for extent in (1, 2, 3):
        m = sliced("uint16", [extent, 6, 5, 4], [16, 3, 2, 2])
        yield f"store {name} extent{extent}", stores(m, zero, "store4")


def sliced_pixels(sliced, name):
    for rank in (3, 4, 5):
        kind = {"lower": [0] * (rank - 2), "upper": [0] * (rank - 2), "channels": 8, "pixels": 20}
        m = sliced("uint16", [40, 6, 5, 4, 3][:rank], [1] * rank, im2col=kind)
        yield f"im2col {name} r{rank} ch8", loads(m, (0,) * rank)
    kind = {"lower": [-1, -1], "upper": [-1, -1], "channels": 16, "pixels": 24}
    m = sliced("uint16", [40, 6, 5, 4], [1, 1, 1, 1], im2col=kind)
    for corner, place in (("corners", (0, -1, -1, 0)), ("corners c1", (1, 2, 1, 1))):
        yield f"im2col {name} {corner}", loads(m, place)


APART = {3: [256, 2048], 4: [256, 2048, 16384], 5: [256, 1024, 4096, 32768]}
"""Strides of rows that do not overlap."""
ODD = np.array(
    [0x3F801000, 0x3F803000, 0x7FC00001, 0x7F800001, 0x00001000, 0x00003000, 0x7F7FFFFF, 0xFFFFFFFF] * 8192, np.uint32
).view(np.uint8)


def column(rank, slice_bytes, corners=None, pixels=30, kind="uint16", **more):
    """A map for im2col over small images."""
    lower, upper = corners or ([0] * (rank - 2), [0] * (rank - 2))
    of_pixels = {"lower": lower, "upper": upper, "channels": 16 // SIZES[kind], "pixels": pixels}
    dims = {3: [5, 4, 3], 4: [5, 4, 4, 3], 5: [4, 3, 3, 4, 3]}[rank]
    more = {"strides": APART[rank], "interleave": slice_bytes, "im2col": of_pixels} | more
    return tmap(kind, dims, [1] * rank, **more)


def walks(slice_bytes):
    """Columns of pixels of interleaved images: corners, offsets, element strides, swizzles, and pixels outside."""
    name = f"im2col il{slice_bytes}"
    for lower, upper, pixels, start in (
        ([0], [0], 14, (3, 3, 1)),
        ([-1], [1], 14, (4, 2, 1)),
        ([0, 0], [0, 0], 30, (1, 3, 3, 1)),
        ([-1, -1], [-1, -1], 30, (2, 1, 1, 1)),
        ([1, 0], [0, -2], 30, (4, 1, 0, 1)),
        ([0, 0, 0], [0, 0, 0], 44, (2, 1, 1, 2, 1)),
        ([-1, 0, -1], [0, -1, 0], 44, (2, 1, 1, 1, 1)),
    ):
        m = column(len(start), slice_bytes, (lower, upper), pixels)
        yield f"{name} r{len(start)} {lower}{upper} at{start}", loads(m, start)
    for offsets in ((1,), (2,), (1, 0), (0, 1), (2, 1), (1, 0, 0), (0, 0, 1), (1, 1, 1)):
        spatial = len(offsets)
        m = column(spatial + 2, slice_bytes, ([-1] * spatial, [-1] * spatial), 24)
        copy = loads(m, (-1,) * spatial + (1, 0), offsets=offsets)
        yield f"{name} r{spatial + 2} offs{offsets}", copy
    for swizzle in (32, 64, 128):
        yield f"{name} sw{swizzle}", loads(column(4, slice_bytes, swizzle=swizzle), (0, 0, 0, 0))
    for steps in ([2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2], [2, 2, 1, 1]):
        yield f"{name} steps{steps}", loads(column(4, slice_bytes, pixels=20, steps=steps), (0, 0, 0, 0))
    m = column(4, slice_bytes, ([-1, -1], [0, 0]), kind="float16", fill="nan")
    yield f"{name} nan", loads(m, (-1, -1, 0, 1))
    yield f"{name} slice outside", loads(column(4, slice_bytes, pixels=20), (0, 0, 4, 0))
    yield f"{name} image outside", loads(column(4, slice_bytes), (0, 0, 1, 2))
    for start in ((-1, 0, 0, 0), (0, 4, 0, 0), (5, 0, 0, 0)):
        yield f"bad {name} at{start}", loads(column(4, slice_bytes, pixels=8), start)
    for rank in (3, 4, 5):
        m, place = column(rank, slice_bytes, pixels=22, kind="uint32"), (1, *([1] * (rank - 3)), 1, 1)
        yield f"put {name} r{rank}", stores(m, place, f"put_im2col{rank}")
        yield f"reduce {name} r{rank}", stores(m, place, f"reduce_im2col{rank}_add")


def narrow(slice_bytes):
    """Interleaved boxes with short rows, other box positions, and launches that end with an error."""
    name = f"il{slice_bytes}"

    def sliced(kind, box, **more):
        return tmap(kind, [9, 4, 4, 3], box, strides=APART[4], interleave=slice_bytes, **more)

    for wide, swizzle in ((1, 32), (1, 128), (3, 64), (5, 32)):
        m = sliced("uint64", [2 * wide, 3, 1, 2], swizzle=swizzle)
        yield f"narrow {name} wide{wide} sw{swizzle}", loads(m, (1, 1, 1, 0))
    for slices in (1, 64, 256):
        yield f"slices {name} {slices}", loads(sliced("uint16", [8, 2, slices, 1]), (0, 0, 1, 0))
    for place in ((0, 0, 4, 0), (0, 0, 1 << 30, 0), ((1 << 31) - 1, 0, 0, 0), (-3, -1, 3, -1), (5, 3, 0, 2)):
        yield f"slice {name} at{place}", loads(sliced("uint16", [8, 2, 1, 2]), place)
    for steps, place in (([2, 1, 1, 1], (-3, 0, 0, 0)), ([3, 2, 1, 2], (1, -1, 2, 0)), ([8, 1, 1, 1], (0, 0, 0, 0))):
        yield f"steps {name} {steps} at{place}", loads(sliced("uint16", [16, 3, 2, 2], steps=steps), place)
    for start in (128, 384):
        m = sliced("uint16", [8, 3, 1, 2], swizzle=128)
        yield f"box {name} at{start}", loads(m, (0, 0, 0, 0), start=start)
    for kind in ("tfloat32", "float32_ftz"):
        yield f"load {name} {kind}", loads(sliced(kind, [4, 2, 1, 1]), (1, 1, 1, 1), tensor=ODD)
    for place in ((1, 1, 1, 1), (5, 3, 2, 2)):
        yield f"store {name} at{place}", stores(sliced("uint16", [8, 2, 1, 2], swizzle=64), place, "store4")
    for kind, op in (("uint64", "add"), ("float16", "add"), ("uint32", "inc"), ("int32", "min")):
        data = (np.arange(4096 // SIZES[kind]) % 50 + 1).astype(kind).view(np.uint8)
        old = (np.arange((1 << 18) // SIZES[kind]) % 37 + 1).astype(kind).view(np.uint8)
        m = sliced(kind, [16 // SIZES[kind], 3, 1, 2])
        yield f"reduce {name} {kind} {op}", stores(m, (6, 2, 1, 1), f"reduce4_{op}", data, old)
    for place in ((-1, 0, 0, 0), (0, 0, -1, 0)):
        yield f"bad store {name} at{place}", stores(sliced("uint16", [8, 2, 1, 2]), place, "store4")
    yield f"bad box {name} at64", loads(sliced("uint16", [8, 3, 1, 2]), (0, 0, 0, 0), start=64)


COPIES = dict(edges())
for size in (16, 32):
    COPIES |= dict(interleaved(size)) | dict(walks(size)) | dict(narrow(size))
