"""Products and attention in the style of Hopper libraries, with digests of an H200's results.

`pingpong` follows CUTLASS 3 (a warpgroup loads, two take turns; blocks of a cluster share A by multicast), `fp8_scaled`
DeepGEMM (sums of 128 products are promoted), `attention` FlashAttention 3 (P stays in registers): `own.cu`, by nvcc
13. `mm_device`, `mm_host` and `attention_triton` are Triton 3.9's, with descriptors made on the device and on the host.
"""

from typing import Any, NamedTuple

import numpy as np

from ptx.hopper_launches import pattern


class Tiles(NamedTuple):
    """An array that is passed as a tensor map, and its box."""

    array: Any
    box: tuple[int, int]


class Product(NamedTuple):
    """A launch and the array that it fills."""

    file: str
    entry: str
    grid: tuple[int, ...]
    block: int
    shared: int
    args: list[Any]
    output: Any
    engine: str = "reference"


def words(count, salt):
    return pattern(4 * count, salt).view(np.uint32)


def halves(shape, salt):
    return ((words(int(np.prod(shape)), salt) % 4096).astype(np.float32) / 1024 - 2).astype(np.float16).reshape(shape)


def e4m3(shape, salt):
    """Codes of e4m3 without NaN, of moderate size."""
    codes = (words(int(np.prod(shape)), salt) % 256).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x30
    codes[(codes & 0x78) > 0x58] &= 0x8F
    return codes.reshape(shape)


def scales(count, salt):
    return (words(count, salt) % 64 + 32).astype(np.float32) / 64


def descriptor(array, box):
    """Return the arguments that Triton passes for a tensor descriptor: a map, its shape, its strides in elements."""
    strides = [np.int64(stride // array.itemsize) for stride in array.strides]
    return [Tiles(array, box), *map(np.int32, array.shape), *strides]


def pingpong():
    m, n, k = 192, 256, 256
    a, b, d = halves((m, k), 1), halves((n, k), 2), np.zeros((m, n), np.float16)
    args = [Tiles(a, (32, 64)), Tiles(b, (64, 64)), Tiles(d, (64, 64)), *map(np.int32, (m // 64, n // 64, k))]
    return Product("own.ptx", "pingpong", (4,), 384, 8 * 8192, args, d, "compiled")


def fp8_scaled():
    m, n, k = 128, 128, 512
    a, b, d = e4m3((m, k), 3), e4m3((n, k), 4), np.zeros((m, n), np.float32)
    factors = scales(m * k // 128, 5), scales(n // 64 * k // 128, 6)
    args = [Tiles(a, (64, 128)), Tiles(b, (64, 128)), *factors, d, np.int32(n), np.int32(k)]
    return Product("own.ptx", "fp8_scaled", (n // 64, m // 64), 160, 6 * 8192, args, d)


def attention():
    q, k, v = (halves((256, 64), salt) for salt in (7, 8, 9))
    o = np.zeros((256, 64), np.float16)
    args = [*(Tiles(item, (64, 64)) for item in (q, k, v, o)), np.float32(0.125), np.int32(256)]
    return Product("own.ptx", "attention", (4,), 160, 5 * 8192, args, o)


def mm_device():
    m, n, k = 256, 128, 192
    a, b, c = halves((m, k), 11), halves((n, k), 12), np.zeros((m, n), np.float16)
    args = [a, b, c, *map(np.int32, (m, n, k)), np.zeros(768, np.uint8), None]
    return Product("mm_device.ptx", "mm_device", (2,), 128, 90136, args, c)


def mm_host():
    m, n, k = 256, 128, 192
    a, b, c = halves((m, k), 11), halves((n, k), 12), np.zeros((m, n), np.float16)
    args = [*descriptor(a, (128, 64)), *descriptor(b, (64, 64)), *descriptor(c, (128, 64)), np.int32(k), None, None]
    return Product("mm_ws2_8.ptx", "mm_ws2", (2, 2), 256, 73752, args, c)


def attention_triton():
    q, k, v = (halves((256, 64), salt) for salt in (13, 14, 15))
    o = np.zeros((256, 64), np.float16)
    maps = [part for item in (q, k, v, o) for part in descriptor(item, (64, 64))]
    return Product("attn.ptx", "attn", (4,), 128, 57400, [*maps, np.float32(0.18), np.int32(256), None, None], o)


PRODUCTS = {
    "pingpong": pingpong,
    "fp8_scaled": fp8_scaled,
    "attention": attention,
    "mm_device": mm_device,
    "mm_host": mm_host,
    "attention_triton": attention_triton,
}
H200 = {
    "pingpong": "44dffe5f28effa8ed6fecba4195061950f74a181dba0d2e44aa3f4591ac4d360",
    "fp8_scaled": "8b1944c528a81d3599b088549385e99f47a2f1dc62cb7e7fef8be5ff9df24317",
    "attention": "c17277a5af9ce7de10a8065e2210c7130d6facb4eaf79ec660c78b2c7ec1a18d",
    "mm_device": "331f2fd24b5a45b71fc08dd1adbe9a871a3403497826d82a9ba5f6feb2a5af39",
    "mm_host": "331f2fd24b5a45b71fc08dd1adbe9a871a3403497826d82a9ba5f6feb2a5af39",
    "attention_triton": "a8cdaeda0fadcaef5880b7ad384028a3a83fa07b0e0e63c807ad49a757d22a32",
}
"""SHA-256 of the output that an H200 left (driver 580)."""
