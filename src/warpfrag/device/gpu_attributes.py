"""The attributes of real GPUs, as their drivers report them: the profiles of the virtual GPU."""

import ctypes
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfrag.errors import InvalidOperand, NoGpu, quote

FOLDER = Path(__file__).parent / "attributes"
ATTRIBUTES, LIMITS = 256, 16  # must match stand_in.h
NO_LIMIT = 2**64 - 1
MAJOR = 75  # the attribute number of the major compute capability; the minor one follows
UUID = b"warpfrag gpu 0\0\0"


@dataclass(frozen=True)
class GpuProfile:
    """A driver's description of a GPU; `attributes` starts with attribute 1."""

    name: str
    arch: str
    source: str
    driver_version: int
    total_memory: int
    limits: tuple[int | None, ...]
    stream_priorities: tuple[int, int]
    attributes: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the profile as the bytes of `struct profile` in stand_in.h."""
        limits = [NO_LIMIT if limit is None else limit for limit in self.limits]
        limits += [NO_LIMIT] * (LIMITS - len(limits))
        attributes = [0, *self.attributes]
        count = len(attributes)
        attributes += [0] * (ATTRIBUTES - count)
        head = struct.pack("<4iQ", self.driver_version, count, *self.stream_priorities, self.total_memory)
        numbers = struct.pack(f"<{LIMITS}Q{ATTRIBUTES}i", *limits, *attributes)
        return head + numbers + UUID + self.name.encode().ljust(256, b"\0")


def profile_names() -> list[str]:
    """Return the names of the built-in profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read_profile(name: str) -> GpuProfile:
    """Return a built-in profile by name, or the profile in a file that `warpfrag verify --attributes` wrote."""
    names = {each.lower(): each for each in profile_names()}
    path = Path(name) if name.endswith(".json") else FOLDER / f"{names.get(name.lower(), '')}.json"
    try:
        exists = path.is_file()
    except (OSError, ValueError):  # the name cannot be a file name
        exists = False
    if not exists:
        raise InvalidOperand(f"expected a GPU profile ({', '.join(names.values())} or a file), got {quote(name)}")
    try:
        row = json.loads(path.read_bytes())
        lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        return GpuProfile(**lists)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidOperand(f"{quote(name)} is not a GPU profile: {error}") from None


def measure_profile(device: int = 0) -> GpuProfile:
    """Return the profile of this machine's GPU; raise NoGpu if there is no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoGpu(f"the CUDA driver cannot be loaded: {error}") from None

    def call(function: str, *arguments: object) -> None:
        if code := getattr(driver, function)(*arguments):
            raise NoGpu(f"{function} returned error {code}")

    call("cuInit", 0)
    context, number, size = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    attributes: list[int] = []
    while not driver.cuDeviceGetAttribute(ctypes.byref(number), len(attributes) + 1, device):
        attributes.append(number.value)
    limits = [size.value if not driver.cuCtxGetLimit(ctypes.byref(size), limit) else None for limit in range(8)]
    name, greatest = ctypes.create_string_buffer(256), ctypes.c_int()
    call("cuDeviceGetName", name, 256, device)
    call("cuCtxGetStreamPriorityRange", ctypes.byref(number), ctypes.byref(greatest))
    priorities = number.value, greatest.value
    call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
    call("cuDriverGetVersion", ctypes.byref(number))
    arch = f"sm_{attributes[MAJOR - 1]}{attributes[MAJOR]}"
    source = f"read from {name.value.decode()} with CUDA driver {number.value}"
    return GpuProfile(
        name.value.decode(), arch, source, number.value, size.value, tuple(limits), priorities, tuple(attributes)
    )
