"""Textures and surfaces of the PTX machine against a real GPU, element by element.

    python -m tools.textures [REPORT.md] [--only GROUP]
    python -m tools.textures --keep RESULTS.npz

Every experiment is a texture or surface of random texels and one instruction that many threads run, each at coordinates
of its own: inside, outside, near every place where a rounding could change, and special ones. The GPU and the machine
run the same text. Inputs are made from raw words of a generator, so that they are the same everywhere: the file that
--keep writes has results only, and tests/ptx/test_textures.py compares with the H200's.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tools.arguments import report_parser
from warpfrag.errors import NoGpu
from warpfrag.ptx.launch.kernel import load
from warpfrag.ptx.semantics.textures import Surface, Texture
from warpfrag.render.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.ptx.semantics.textures import AddressMode, Filter, ReadMode

    Words = NDArray[np.uint32]

Channels: TypeAlias = Literal[1, 2, 4]
GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d")
FILTERS: tuple[Filter, ...] = ("point", "linear")
MODES: tuple[AddressMode, ...] = ("clamp", "wrap", "mirror", "border")
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
NORMALIZED = INTEGERS[:4]
FLOATS = ("float16", "float32")
AXES = {"1d": 1, "a1d": 1, "2d": 2, "a2d": 2, "3d": 3}
KEPT_ROWS, KEPT_EVERY = 24, 7  # in the file for the tests: threads of every seventh experiment
SPECIAL_COORDINATES = np.array(
    [
        0, 0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F7FFFFF,
        0xFF7FFFFF, 0x4B000000, 0xCB000000, 0x4B800000, 0xCB800000, 0x4F000000, 0xCF000000, 0x4EFFFFFF, 0x4F7FFFFF,
        0x5F000000, 0xDF000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000, 0xBF000000, 0x3EFFFFFF, 0x3F000001,
        0x33800000, 0xB3800000, 0x37000000, 0xB7000000, 0x46FFFE00, 0x47000000, 0xC7000000, 0x43800000,
    ],
    np.uint32,
)  # fmt: skip
SPECIAL_TEXELS = {
    "float32": (0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x807FFFFF, 0x00800000,
                0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000),
    "float16": (0x7E00, 0x7C01, 0xFFFF, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00),
}  # fmt: skip


def raw(seed: int, number: int) -> NDArray[np.uint64]:
    """Random words, which no version of numpy changes."""
    return np.random.PCG64(seed).random_raw(number)


def unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random words as numbers from 0 to 1."""
    return (words >> np.uint64(11)).astype(np.float64) / 2.0**53


@dataclass(frozen=True)
class Experiment:
    """One instruction on one texture or surface, by so many threads."""

    group: str
    opcode: str  # with all words
    geometry: str
    extents: tuple[int, int, int]  # x, y, and z or layers; 0 where there is none
    dtype: str
    channels: Channels
    threads: int
    seed: int
    texels: str = "bits"
    places: str = "mixed"
    filter: Filter = "point"
    address: tuple[AddressMode, ...] = ("clamp", "clamp", "clamp")
    normalized: bool = False
    read: ReadMode = "element"
    border: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    element: int = 1  # bytes that x of a surface is a multiple of

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.group} {self.opcode} {self.dtype} {self.channels} {self.seed}"

    @property
    def is_surface(self) -> bool:
        """Whether it accesses a surface."""
        return self.opcode.startswith("su")

    @property
    def is_layered(self) -> bool:
        """Whether the first coordinate is a layer."""
        return self.geometry.startswith("a")

    @cached_property
    def array(self) -> NDArray[Any]:
        """The texels: [layer or z, y, x, channel], as far as it has these axes."""
        x, y, z = self.extents
        whole = texels_of(self).reshape(max(1, z), max(1, y), x, self.channels)
        axes = AXES[self.geometry]
        shape = (
            *((z,) if self.is_layered or axes == 3 else ()),
            *((y,) if axes >= 2 else ()),
            x,
            *((self.channels,) if self.channels > 1 else ()),
        )
        return np.ascontiguousarray(whole.reshape(shape))

    @cached_property
    def resource(self) -> Texture | Surface:
        """The argument of the kernel."""
        if self.is_surface:
            return Surface(self.array, channels=self.channels, layered=self.is_layered)
        return Texture(
            self.array, self.filter, self.address, normalized=self.normalized, read=self.read, channels=self.channels,
            layered=self.is_layered, border=self.border,
        )  # fmt: skip


# --- inputs


def texels_of(experiment: Experiment) -> NDArray[Any]:
    """Texels of a style: any bits, their numbers, special floats, or floats of a range of exponents."""
    x, y, z = experiment.extents
    size = x * max(1, y) * max(1, z) * experiment.channels
    dtype, style = np.dtype(experiment.dtype), experiment.texels
    words = raw(experiment.seed, size)
    plain = np.dtype(f"u{dtype.itemsize}")
    if style == "index":
        return np.arange(size).astype(dtype)
    if style == "bits" or dtype.kind != "f":
        return words.astype(plain).view(dtype)
    bits, bias, exponents = (23, 127, 8) if dtype.itemsize == 4 else (10, 15, 5)
    if style == "special":
        table = SPECIAL_TEXELS[experiment.dtype]
        pick = (words >> np.uint64(32)) % np.uint64(80)
        codes = np.array([*table, *[0] * (80 - len(table))], np.uint64)[pick]
        return np.where(pick < len(table), codes, words & np.uint64(0xFFFFFFFF)).astype(plain).view(dtype)
    if style == "tiny":
        exponent = (words >> np.uint64(32)) % np.uint64(14 if bits == 23 else 6)
    else:
        width = min({"narrow": 4, "wide": 40}[style], 24 if bits == 10 else 99)
        exponent = (words >> np.uint64(32)) % np.uint64(width) + np.uint64(bias - width // 2)
    sign = words >> np.uint64(60) & np.uint64(1)
    codes = sign << np.uint64(bits + exponents) | exponent << np.uint64(bits) | words & np.uint64((1 << bits) - 1)
    result: NDArray[Any] = codes.astype(plain).view(dtype)
    return result


def float_coordinates(experiment: Experiment, axis: int) -> NDArray[np.float32]:
    """Coordinates along an axis: inside, around, at 512ths of texels and a few units off, and special ones."""
    number, extent = experiment.threads, experiment.extents[axis]
    words = raw(experiment.seed + 1000 + axis, 2 * number)
    ratio, rest = unit(words[:number]), words[number:]
    pick = (rest & np.uint64(7)).astype(np.int64)
    units = (rest >> np.uint64(8) & np.uint64(0xFFFFFFFFFFFFFF)) % np.uint64(9)
    scale = 1.0 / extent if experiment.normalized else 1.0

    def scaled(values: NDArray[np.float64]) -> NDArray[np.float32]:
        return (values * scale).astype(np.float32)

    def moved(values: NDArray[np.float32]) -> NDArray[np.float32]:
        by = np.where(values == 0, 0, units.astype(np.int64) - 4).astype(np.int32)
        return (values.view(np.int32) + by).view(np.float32)

    grid = scaled(np.floor(ratio * (extent + 3) * 512 - 1.5 * 512) / 512)
    whole = scaled(np.floor(ratio * (3 * extent + 2) - extent - 1))
    special = SPECIAL_COORDINATES[(rest >> np.uint64(16)) % np.uint64(len(SPECIAL_COORDINATES))].view(np.float32)
    anything = (words[:number] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    choices = [scaled(ratio * extent), scaled((ratio * 5 - 2) * extent), moved(grid), moved(whole), grid]
    result = np.select([pick < 2, pick < 4, pick < 5, pick < 6, pick < 7], choices, choices[-1])
    return np.where(pick == 7, np.where(ratio < 0.3, anything, special), result).astype(np.float32)


def integer_coordinates(experiment: Experiment, axis: int) -> NDArray[np.uint32]:
    """Integers inside and around, some of them far outside; x of a surface is a multiple of its element's bytes."""
    number, extent = experiment.threads, experiment.extents[axis]
    words = raw(experiment.seed + 3000 + axis, number)
    unit_bytes = experiment.element if axis == 0 else 1
    stays = experiment.places in {"inside", "unique"}
    low, high = (0, extent) if stays else (-2, extent + 2)
    index = ((words % np.uint64(high - low)).astype(np.int64) + low) * unit_bytes
    if experiment.places == "unique" and axis == 0:
        return (np.arange(number) % extent * unit_bytes).astype(np.uint32)
    if not stays:
        far = (words >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.int64) // unit_bytes * unit_bytes
        index = np.where((words >> np.uint64(20)) % np.uint64(16) == 0, far, index)
    return index.astype(np.uint32)


def words_of(experiment: Experiment) -> Words:
    """What each thread reads, [threads, 16]: coordinates, a level and gradients, and the values of a store."""
    number = experiment.threads
    result = np.zeros((number, 16), np.uint32)
    first = int(experiment.is_layered)
    if first:
        words, layers = raw(experiment.seed + 2000, number), experiment.extents[2]
        stays = experiment.places in {"inside", "unique"}
        result[:, 0] = words % np.uint64(layers) if stays else (words % np.uint64(layers + 3)).astype(np.int64) - 1
        far = (words >> np.uint64(40)) % np.uint64(50) == 0
        result[:, 0] = np.where(far & (not stays), (words >> np.uint64(8)).astype(np.uint32), result[:, 0])
    axes = AXES[experiment.geometry]
    is_integer = experiment.is_surface or experiment.opcode.endswith(".s32")
    for axis in range(axes):
        result[:, first + axis] = (
            integer_coordinates(experiment, axis) if is_integer else float_coordinates(experiment, axis).view(np.uint32)
        )
    result[:, first + axes : 4] = result[:, first + axes - 1 : first + axes]
    if ".level" in experiment.opcode and not is_integer:
        result[:, 4] = (unit(raw(experiment.seed + 5000, number)) * 8 - 4).astype(np.float32).view(np.uint32)
    if ".grad" in experiment.opcode:
        for place in (4, 5, 6, 8, 9, 10):
            values = unit(raw(experiment.seed + 6000 + place, number)) * 4 - 2
            result[:, place] = values.astype(np.float32).view(np.uint32)
    if experiment.is_surface:
        result[:, 8:] = raw(experiment.seed + 7000, 4 * number).view(np.uint32).reshape(number, 8)
    return result


# --- kernels


HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 words, .param .u64 out, .param .u32 count)
{
    .reg .pred %p; .reg .b32 %r<40>; .reg .f32 %f<24>; .reg .b64 %d<20>; .reg .b16 %h<4>;
    ld.param.u64 %d0, [handle]; ld.param.u64 %d1, [words]; ld.param.u64 %d2, [out]; ld.param.u32 %r30, [count];
    mov.u32 %r31, %ctaid.x; mov.u32 %r32, %ntid.x; mov.u32 %r33, %tid.x; mad.lo.u32 %r34, %r31, %r32, %r33;
    setp.ge.u32 %p, %r34, %r30;
    @%p ret;
    mul.wide.u32 %d3, %r34, 64; add.u64 %d1, %d1, %d3; mul.wide.u32 %d4, %r34, 32; add.u64 %d2, %d2, %d4;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d1+16];
    ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d1+32];
    ld.global.v2.b64 {%d10, %d11}, [%d1+32]; ld.global.v2.b64 {%d12, %d13}, [%d1+48];
"""


def coordinates(experiment: Experiment) -> str:
    """The coordinates of the instruction: registers 0 and on."""
    is_integer = experiment.is_surface or experiment.opcode.endswith(".s32")
    number = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4}[experiment.geometry]
    kinds = ["r" if is_integer or (experiment.is_layered and place == 0) else "f" for place in range(number)]
    return ", ".join(f"%{kind}{place}" for place, kind in enumerate(kinds))


def texture_kernel(experiment: Experiment) -> str:
    """A kernel of tex or tld4."""
    words = experiment.opcode.split(".")
    axes = AXES[experiment.geometry]
    kind = "r" if words[-1] == "s32" else "f"
    tail = {
        "level": f", %{kind}4",
        "grad": ", " + {
            1: "{%f4}, {%f8}", 2: "{%f4, %f5}, {%f8, %f9}", 3: "{%f4, %f5, %f6, %f6}, {%f8, %f9, %f10, %f10}",
        }[axes],
    }.get(words[1], "")  # fmt: skip
    moves = "".join(f" mov.b32 %f{place}, %r{place};" for place in range(12))
    result = "f" if words[-2] == "f32" else "r"
    results = ", ".join(f"%{result}{place}" for place in range(20, 24))
    back = "".join(f" mov.b32 %r{place}, %f{place};" for place in range(20, 24)) if result == "f" else ""
    return f"""{HEAD}   {moves}
    {experiment.opcode} {{{results}}}, [%d0, {{{coordinates(experiment)}}}]{tail};
   {back} st.global.v4.b32 [%d2], {{%r20, %r21, %r22, %r23}};
    ret;
}}
"""


def surface_kernel(experiment: Experiment) -> str:
    """A kernel of suld, sust or sured."""
    words = experiment.opcode.split(".")
    number = next((int(word[1]) for word in words if word in {"v2", "v4"}), 1)
    bits = int(words[-2][1:])
    place = f"[%d0, {{{coordinates(experiment)}}}]"
    registers = {8: "%h{}", 16: "%h{}", 32: "%r2{}", 64: "%d1{}"}[bits]
    names = [registers.format(item) for item in range(number)]
    lines = []
    if words[0] == "suld":
        lines.append(f"{experiment.opcode} {{{', '.join(names)}}}, {place};")
        for item, name in enumerate(names):
            if bits == 8:
                lines.append(f"and.b16 {name}, {name}, 255;")
            if bits < 64:
                lines.append(f"cvt.u64.u{max(16, bits)} %d1{item}, {name};")
            lines.append(f"st.global.b64 [%d2+{8 * item}], %d1{item};")
    else:
        if bits < 64:
            lines += [f"cvt.u{max(16, bits)}.u64 {name}, %d1{item};" for item, name in enumerate(names)]
        values = names[0] if words[0] == "sured" else f"{{{', '.join(names)}}}"
        lines.append(f"{experiment.opcode} {place}, {values};")
    return HEAD + "\n".join(f"    {line}" for line in lines) + "\n    ret;\n}\n"


def kernel(experiment: Experiment) -> str:
    """The kernel of an experiment, `k(handle, words, out, count)`."""
    return surface_kernel(experiment) if experiment.is_surface else texture_kernel(experiment)


# --- the list


def experiments() -> Iterator[Experiment]:
    """All of them, group after group, each with a seed of its own."""
    seeds = count(700_000_001, 10_037)
    groups = (point_sampling, wide_textures, linear_filtering, levels, fetches, gathers, surfaces, reductions)
    for make in (*groups, coordinate_bits):
        for experiment in make():
            yield replace(experiment, group=make.__name__, seed=next(seeds))


SMALL = {"1d": (53, 0, 0), "2d": (23, 17, 0), "3d": (11, 6, 8), "a1d": (29, 0, 4), "a2d": (15, 10, 5)}


def texture(geometry: str, dtype: str, read: ReadMode, **options: Any) -> Experiment:  # noqa: ANN401 (fields of an Experiment)
    """An experiment of tex on a small texture."""
    result = "f32" if dtype.startswith("float") or read == "normalized" else "s32" if dtype[0] == "i" else "u32"
    kind, lod = options.pop("kind", "f32"), options.pop("lod", "")
    opcode = f"tex{lod}.{geometry}.v4.{result}.{kind}"
    defaults = {"extents": SMALL[geometry], "channels": 1, "threads": 192, "seed": 0}
    return Experiment("", opcode, geometry, dtype=dtype, read=read, **{**defaults, **options})


def formats() -> Iterator[tuple[str, ReadMode, Channels]]:
    """Every format, how it is read, and its channels."""
    reads: tuple[ReadMode, ...] = ("element", "normalized")
    counts: tuple[Channels, ...] = (1, 2, 4)
    for dtype in (*INTEGERS, *FLOATS):
        for read in reads if dtype in NORMALIZED else reads[:1]:
            for channels in counts:
                yield dtype, read, channels


def own_axes(geometry: str, mode: AddressMode) -> tuple[AddressMode, ...]:
    """An address mode for the axes that a texture has."""
    return (*(mode,) * AXES[geometry], *MODES[:1] * 3)[:3]


def point_sampling() -> Iterator[Experiment]:
    """Every format in every geometry, the address modes in turn."""
    for geometry in GEOMETRIES:
        for number, (dtype, read, channels) in enumerate(formats()):
            yield texture(
                geometry, dtype, read, channels=channels, address=own_axes(geometry, MODES[number % 4]),
                normalized=bool(number // 4 % 2),
            )  # fmt: skip
        for mode in MODES:
            for normalized in (False, True):
                yield texture(
                    geometry, "uint16", "element", threads=1024, address=own_axes(geometry, mode), normalized=normalized
                )


def wide_textures() -> Iterator[Experiment]:
    """Extents at which the bits of a coordinate matter; a texel is its number."""
    sizes = [(width, 0, 0) for width in (2047, 4097, 6001, 8191, 8193, 10000, 12345, 30001, 65537, 131071)]
    sizes += [(3, 5000, 0), (3, 9000, 0), (9000, 3, 0), (3, 2, 5000), (2, 3, 9000), (2, 9000, 3), (9000, 3, 2)]
    for extents in sizes:
        geometry = f"{sum(extent > 0 for extent in extents)}d"
        for filter_mode in FILTERS:
            for mode in MODES[:3]:
                yield texture(
                    geometry, "float32", "element", extents=extents, threads=640, texels="index", filter=filter_mode,
                    normalized=True, address=own_axes(geometry, mode),
                )  # fmt: skip


def coordinate_bits() -> Iterator[Experiment]:
    """Extents on both sides of those at which normalized coordinates get more bits, seen from another axis of 3."""
    sizes = [(3, other, 0) for other in (4096, 4097, 8192, 8193, 16385, 32769, 65535, 65536)]
    sizes += [(other, 3, 0) for other in (8192, 8193, 65536, 65537, 131071)]
    sizes += [(3, 3, other) for other in (33, 100, 513, 1000, 1025, 2047, 2048, 2049, 3000, 4096, 4097, 8193, 16384)]
    sizes += [(3, other, 3) for other in (2049, 4097, 8192, 8193, 16384)]
    sizes += [(other, 3, 3) for other in (2049, 4097, 8192, 8193, 16384)]
    sizes += [(2049, 2049, 3), (5000, 5, 1025), (3, 8193, 2049)]
    layered = [(3, 0, 2048), (8193, 0, 3), (3, 3, 2048), (3, 8193, 2), (16384, 3, 3)]
    for extents in (*sizes, *layered):
        plain = f"{sum(extent > 0 for extent in extents)}d"
        geometry = plain if extents not in layered else "a2d" if extents[1] else "a1d"
        for filter_mode in FILTERS:
            yield texture(
                geometry, "float32", "element", extents=extents, threads=4096, texels="index", filter=filter_mode,
                normalized=True, address=own_axes(geometry, "wrap"),
            )  # fmt: skip


def linear_filtering() -> Iterator[Experiment]:
    """Every format that can be filtered: floats of several ranges, all address modes."""
    for geometry in GEOMETRIES:
        for number, (dtype, read, channels) in enumerate(formats()):
            if dtype in INTEGERS and read == "element":
                continue
            for style in ("narrow", "wide", "special", "tiny") if dtype in FLOATS else ("bits",):
                for normalized in (False, True):
                    mode = MODES[(number + len(style) + normalized) % 4]
                    yield texture(
                        geometry, dtype, read, channels=channels, threads=512, texels=style, filter="linear",
                        address=own_axes(geometry, mode), normalized=normalized,
                    )  # fmt: skip
        yield texture(
            geometry, "float32", "element", channels=4, threads=2048, texels="wide", filter="linear", normalized=True,
            address=("wrap", "mirror", "clamp"),
        )  # fmt: skip
        yield texture(
            geometry, "float32", "element", channels=2, threads=256, texels="narrow", filter="linear", normalized=True,
            address=own_axes(geometry, "border"), border=(2.5, -0.125, 0.0, 0.0),
        )  # fmt: skip


def levels() -> Iterator[Experiment]:
    """tex.level and tex.grad of textures that have one level."""
    for geometry in GEOMETRIES:
        for lod in (".level", ".grad", *((".base",) if not geometry.startswith("a") else ())):
            for filter_mode in FILTERS:
                yield texture(
                    geometry, "float16", "element", channels=2, texels="narrow", filter=filter_mode, normalized=True,
                    lod=lod,
                )  # fmt: skip


def fetches() -> Iterator[Experiment]:
    """Integer coordinates."""
    for geometry in GEOMETRIES:
        for dtype, read, channels in formats():
            yield texture(geometry, dtype, read, channels=channels, threads=96, kind="s32")
        yield texture(geometry, "float32", "element", threads=192, kind="s32", address=("wrap",) * 3, filter="linear")


def gathers() -> Iterator[Experiment]:
    """tld4 of every format."""
    for number, (dtype, read, channels) in enumerate(formats()):
        plain = texture(
            "2d", dtype, read, channels=channels, texels="special" if dtype in FLOATS else "bits",
            address=(MODES[number % 4],) * 3, normalized=bool(number // 4 % 2),
        )  # fmt: skip
        for channel in "rgba":
            yield replace(plain, opcode=plain.opcode.replace("tex", f"tld4.{channel}"))


ELEMENTS: dict[int, tuple[str, Channels]] = {
    1: ("uint8", 1),
    2: ("uint16", 1),
    4: ("float32", 1),
    8: ("uint32", 2),
    16: ("float32", 4),
}
ACCESSES = {
    1: ("b8",), 2: ("b16", "v2.b8"), 4: ("b32", "v2.b16", "v4.b8"), 8: ("b64", "v2.b32", "v4.b16"),
    16: ("v4.b32", "v2.b64"),
}  # fmt: skip


def surface(opcode: str, geometry: str, size: int, places: str, threads: int) -> Experiment:
    """An experiment on a small surface."""
    dtype, channels = ELEMENTS[size]
    return Experiment(
        "", opcode, geometry, SMALL[geometry], dtype, channels, threads, 0, places=places, element=size
    )  # fmt: skip


def surfaces() -> Iterator[Experiment]:
    """suld and sust of every size; stores of different threads do not meet, and what would trap stays inside."""
    for geometry in GEOMETRIES:
        for size, accesses in ACCESSES.items():
            for access in accesses:
                for boundary in ("trap", "clamp", "zero"):
                    places = "inside" if boundary == "trap" else "mixed"
                    yield surface(f"suld.b.{geometry}.{access}.{boundary}", geometry, size, places, 64)
                    yield surface(f"sust.b.{geometry}.{access}.{boundary}", geometry, size, "unique", 10)


UPDATES = ("add.u32", "add.s32", "add.u64", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32")


def reductions() -> Iterator[Experiment]:
    """sured, whose order does not matter."""
    for geometry in ("1d", "2d", "3d"):
        for update in (
            "add.u32",
            "add.s32",
            "add.u64",
            "min.u32",
            "min.s32",
            "max.u32",
            "max.s32",
            "and.b32",
            "or.b32",
        ):
            name, kind = update.split(".")
            for boundary in ("trap", "clamp", "zero"):
                places = "inside" if boundary == "trap" else "mixed"
                size = int(kind[1:]) // 8
                yield surface(f"sured.b.{name}.{geometry}.{kind}.{boundary}", geometry, size, places, 96)


# --- the machine, and a GPU


def machine_result(experiment: Experiment) -> NDArray[Any]:
    """What the machine leaves: four results of each thread, or the bytes of a surface."""
    words = words_of(experiment)
    out = np.zeros((experiment.threads, 8), np.uint32)
    argument = experiment.resource
    if experiment.is_surface:
        argument = Surface(experiment.array.copy(), channels=experiment.channels, layered=experiment.is_layered)
    blocks = -(-experiment.threads // 128)
    args = [argument, words, out, np.uint32(experiment.threads)]
    load(kernel(experiment))["k"].launch(grid=blocks, block=128, args=args, engine="reference")
    if experiment.opcode.startswith(("sust", "sured")):
        return argument.array.reshape(-1).view(np.uint8)
    return out if experiment.is_surface else out[:, :4]


FORMAT_CODES = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
LAYERED, LOAD_STORE, GATHER = 1, 2, 8  # flags of a CUDA array
MODE_CODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}


class TextureDriver:
    """CUDA's driver, as far as arrays, textures and surfaces need it."""

    def __init__(self) -> None:
        """Open the first GPU."""
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            msg = f"there is no driver: {error}"
            raise NoGpu(msg) from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *args: Any) -> None:  # noqa: ANN401 (whatever C takes)
        """Call a function of the driver; NoGpu with its number if it fails."""
        status = getattr(self.library, name)(*args)
        if status:
            msg = f"{name} failed with {status}"
            raise NoGpu(msg)

    def buffer(self, data: NDArray[Any]) -> ctypes.c_uint64:
        """A copy of an array in the memory of the GPU."""
        pointer = ctypes.c_uint64()
        size = ctypes.c_size_t(max(256, data.nbytes))
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self.call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
        return pointer

    def cuda_array(self, experiment: Experiment) -> ctypes.c_void_p:
        """A CUDA array with the texels."""
        flags = LAYERED * experiment.is_layered | LOAD_STORE * experiment.is_surface
        flags |= GATHER * experiment.opcode.startswith("tld4")
        code = FORMAT_CODES[experiment.dtype] | experiment.channels << 32
        descriptor = (ctypes.c_uint64 * 5)(*experiment.extents, code, flags)
        array = ctypes.c_void_p()
        self.call("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(descriptor))
        self.copy(experiment, array, experiment.array, to_host=False)
        return array

    def copy(self, experiment: Experiment, array: ctypes.c_void_p, data: NDArray[Any], *, to_host: bool) -> None:
        """All of a CUDA array from the host, or back."""
        x, y, z = experiment.extents
        row = x * experiment.channels * np.dtype(experiment.dtype).itemsize
        block = np.zeros(25, np.uint64)  # CUDA_MEMCPY3D: source, target, extents
        host, device = (11, 0) if to_host else (0, 11)
        block[host + 4], block[host + 5] = 1, data.ctypes.data
        block[host + 9], block[host + 10] = row, max(1, y)
        block[device + 4], block[device + 7] = 3, array.value or 0
        block[22:] = row, max(1, y), max(1, z)
        self.call("cuMemcpy3D_v2", ctypes.c_void_p(block.ctypes.data))

    def handle(self, experiment: Experiment, array: ctypes.c_void_p | None, memory: int) -> ctypes.c_uint64:
        """The handle of a texture or surface."""
        resource = np.zeros(36, np.uint32)  # CUDA_RESOURCE_DESC
        if array is not None:
            resource[2:4] = np.array([array.value], np.uint64).view(np.uint32)
        else:  # linear memory
            resource[0] = 2
            resource[2:4] = np.array([memory], np.uint64).view(np.uint32)
            resource[4:6] = FORMAT_CODES[experiment.dtype], experiment.channels
            resource[6] = experiment.array.nbytes
        place, handle = ctypes.c_void_p(resource.ctypes.data), ctypes.c_uint64()
        if experiment.is_surface:
            self.call("cuSurfObjectCreate", ctypes.byref(handle), place)
            return handle
        settings = np.zeros(26, np.uint32)  # CUDA_TEXTURE_DESC
        settings[:3] = [MODE_CODES[mode] for mode in experiment.address]
        settings[3] = experiment.filter == "linear"
        settings[4] = (experiment.read == "element") | experiment.normalized << 1
        settings[10:14] = np.array(experiment.border, np.float32).view(np.uint32)
        self.call("cuTexObjectCreate", ctypes.byref(handle), place, ctypes.c_void_p(settings.ctypes.data), None)
        return handle

    def result(self, experiment: Experiment) -> NDArray[Any]:
        """What the GPU leaves, as `machine_result`."""
        array, memory = None, 0
        if experiment.geometry == "1d" and experiment.opcode.endswith(".s32"):  # as tex1Dfetch has it
            memory = self.buffer(experiment.array).value
        else:
            array = self.cuda_array(experiment)
        handle = self.handle(experiment, array, memory)
        out = np.zeros((experiment.threads, 8), np.uint32)
        pointers = [self.buffer(words_of(experiment)), self.buffer(out)]
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(kernel(experiment).encode()))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        arguments = [handle, *pointers, ctypes.c_uint32(experiment.threads)]
        places = (ctypes.c_void_p * 4)(*(ctypes.addressof(argument) for argument in arguments))
        blocks = -(-experiment.threads // 128)
        self.call("cuLaunchKernel", function, blocks, 1, 1, 128, 1, 1, 0, None, places, None)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), pointers[1], ctypes.c_size_t(out.nbytes))
        if experiment.opcode.startswith(("sust", "sured")):
            stored = np.zeros(experiment.array.nbytes, np.uint8)
            self.copy(experiment, array or ctypes.c_void_p(), stored, to_host=True)
            return stored
        return out if experiment.is_surface else out[:, :4]


def kept(result: NDArray[Any]) -> NDArray[np.uint8]:
    """What the file for the tests has of a result: the first threads, or all bytes of a surface."""
    return np.ascontiguousarray(result if result.ndim == 1 else result[:KEPT_ROWS]).reshape(-1).view(np.uint8)


def write_kept(path: Path, results: dict[str, NDArray[Any]]) -> None:
    """Write the file for the tests: names, and the bytes of all one after the other."""
    chosen = {name: kept(results[name]) for name in list(results)[::KEPT_EVERY]}
    names = np.frombuffer("\n".join(chosen).encode(), np.uint8)
    sizes = np.array([len(data) for data in chosen.values()], np.int64)
    np.savez_compressed(path, names=names, sizes=sizes, data=np.concatenate(list(chosen.values())))


def read_kept(path: Path) -> dict[str, NDArray[np.uint8]]:
    """What such a file has, by the names of experiments."""
    with np.load(path) as file:
        names = file["names"].tobytes().decode().splitlines()
        parts = np.split(file["data"], np.cumsum(file["sizes"])[:-1])
    return dict(zip(names, parts, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare everything; exit 1 if anything differs."""
    parser = report_parser("textures", __doc__, "only groups whose name contains this")
    parser.add_argument("--keep", type=Path, metavar="RESULTS.npz", help="write what the GPU gave, for the tests")
    args = parser.parse_args(argv)
    try:
        driver = TextureDriver()
    except NoGpu as error:
        print(error, file=sys.stderr)
        return 2
    equal, different = Counter[str](), Counter[str]()
    results: dict[str, NDArray[Any]] = {}
    for experiment in experiments():
        if args.only not in experiment.group:
            continue
        result = driver.result(experiment)
        is_equal = np.array_equal(result, machine_result(experiment))
        (equal if is_equal else different)[experiment.group] += 1
        if not is_equal:
            print(f"different: {experiment}")
        results[experiment.name] = result
    if args.keep:
        write_kept(args.keep, results)
    lines = ["| experiments | equal | different |", "| --- | ---: | ---: |"]
    lines += [f"| {group} | {equal[group]} | {different[group]} |" for group in sorted(equal | different)]
    print("\n".join(lines))
    if args.report:
        write_atomically(args.report, "\n".join([*lines, ""]))
    return int(bool(different))


if __name__ == "__main__":
    raise SystemExit(main())
