"""The experiments, in groups that each test one property of textures or surfaces."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from tools.textures.experiment import AXES, Channels, Experiment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.machine.semantics.textures import AddressMode, Filter, ReadMode

GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d")
FILTERS: tuple[Filter, ...] = ("point", "linear")
MODES: tuple[AddressMode, ...] = ("clamp", "wrap", "mirror", "border")
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
NORMALIZED = INTEGERS[:4]
FLOATS = ("float16", "float32")
SMALL = {"1d": (53, 0, 0), "2d": (23, 17, 0), "3d": (11, 6, 8), "a1d": (29, 0, 4), "a2d": (15, 10, 5)}
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
UPDATES = ("add.u32", "add.s32", "add.u64", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32")


def experiments() -> Iterator[Experiment]:
    """Yield all experiments by group, each with its own seed."""
    seeds = count(700_000_001, 10_037)
    groups = (point_sampling, wide_textures, linear_filtering, levels, fetches, gathers, surfaces, reductions)
    for make in (*groups, coordinate_bits):
        for experiment in make():
            yield replace(experiment, group=make.__name__, seed=next(seeds))


def texture(geometry: str, dtype: str, read: ReadMode, **options: Any) -> Experiment:  # noqa: ANN401 (fields of an Experiment)
    """Return a tex experiment on a small texture."""
    result = "f32" if dtype.startswith("float") or read == "normalized" else "s32" if dtype[0] == "i" else "u32"
    kind, lod = options.pop("kind", "f32"), options.pop("lod", "")
    opcode = f"tex{lod}.{geometry}.v4.{result}.{kind}"
    defaults = {"extents": SMALL[geometry], "channels": 1, "threads": 192, "seed": 0}
    return Experiment("", opcode, geometry, dtype=dtype, read=read, **{**defaults, **options})


def formats() -> Iterator[tuple[str, ReadMode, Channels]]:
    """Yield every combination of a format, a read mode and a number of channels."""
    reads: tuple[ReadMode, ...] = ("element", "normalized")
    counts: tuple[Channels, ...] = (1, 2, 4)
    for dtype in (*INTEGERS, *FLOATS):
        for read in reads if dtype in NORMALIZED else reads[:1]:
            for channels in counts:
                yield dtype, read, channels


def own_axes(geometry: str, mode: AddressMode) -> tuple[AddressMode, ...]:
    """Return an address mode for each axis of a texture."""
    return (*(mode,) * AXES[geometry], *MODES[:1] * 3)[:3]


def point_sampling() -> Iterator[Experiment]:
    """Test every format in every geometry, cycling through the address modes."""
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
    """Test large extents, for which the precision of a coordinate matters; each texel is its index."""
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
    """Test extents near those from which normalized coordinates have more bits; another axis has extent 3."""
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
    """Test every format that can be filtered: floats of several ranges, in all address modes."""
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
    """Test tex.level and tex.grad on textures with one level."""
    for geometry in GEOMETRIES:
        for lod in (".level", ".grad", *((".base",) if not geometry.startswith("a") else ())):
            for filter_mode in FILTERS:
                yield texture(
                    geometry, "float16", "element", channels=2, texels="narrow", filter=filter_mode, normalized=True,
                    lod=lod,
                )  # fmt: skip


def fetches() -> Iterator[Experiment]:
    """Test integer coordinates."""
    for geometry in GEOMETRIES:
        for dtype, read, channels in formats():
            yield texture(geometry, dtype, read, channels=channels, threads=96, kind="s32")
        yield texture(geometry, "float32", "element", threads=192, kind="s32", address=("wrap",) * 3, filter="linear")


def gathers() -> Iterator[Experiment]:
    """Test tld4 with every format."""
    for number, (dtype, read, channels) in enumerate(formats()):
        plain = texture(
            "2d", dtype, read, channels=channels, texels="special" if dtype in FLOATS else "bits",
            address=(MODES[number % 4],) * 3, normalized=bool(number // 4 % 2),
        )  # fmt: skip
        for channel in "rgba":
            yield replace(plain, opcode=plain.opcode.replace("tex", f"tld4.{channel}"))


def surface(opcode: str, geometry: str, size: int, places: str, threads: int) -> Experiment:
    """Return an experiment on a small surface."""
    dtype, channels = ELEMENTS[size]
    return Experiment(
        "", opcode, geometry, SMALL[geometry], dtype, channels, threads, 0, places=places, element=size
    )  # fmt: skip


def surfaces() -> Iterator[Experiment]:
    """Test suld and sust of every size; stores do not overlap, and .trap coordinates are inside."""
    for geometry in GEOMETRIES:
        for size, accesses in ACCESSES.items():
            for access in accesses:
                for boundary in ("trap", "clamp", "zero"):
                    places = "inside" if boundary == "trap" else "mixed"
                    yield surface(f"suld.b.{geometry}.{access}.{boundary}", geometry, size, places, 64)
                    yield surface(f"sust.b.{geometry}.{access}.{boundary}", geometry, size, "unique", 10)


def reductions() -> Iterator[Experiment]:
    """Test sured, whose result does not depend on the order."""
    for geometry in ("1d", "2d", "3d"):
        for update in UPDATES:
            name, kind = update.split(".")
            for boundary in ("trap", "clamp", "zero"):
                places = "inside" if boundary == "trap" else "mixed"
                size = int(kind[1:]) // 8
                yield surface(f"sured.b.{name}.{geometry}.{kind}.{boundary}", geometry, size, places, 96)
