"""Address maps of real GPUs: the byte of shared memory from which a wgmma read each element, for some descriptors.

An `.npz` in the folder `addresses`: the array `about` is JSON text in bytes, with device, arch, driver and a list of
maps (instruction, operand, trans, descriptor in hex, shape); `steps` has the addresses of all maps one after another,
each map as the differences from one element to the next, modulo 65536. Memory had 65536 bytes: an element that a
descriptor seeks beyond them has address 0.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.files import read_bytes
from warpfrag.tensorcore.captures.capture_index import HERE, whole

FILE = Path(HERE) / "addresses" / "h200.npz"
MAX_BYTES = 1 << 24
MEMORY = 1 << 16


class AddressMap(NamedTuple):
    """From where one operand was read under one descriptor."""

    instruction: str
    operand: str
    trans: bool
    descriptor: int
    addresses: NDArray[np.int64]


class AddressMaps(NamedTuple):
    """All address maps captured on one GPU."""

    device: str
    arch: str
    driver: str
    maps: tuple[AddressMap, ...]


def address_maps() -> AddressMaps:
    """Every address map that there is."""
    with whole(FILE, "a file of address maps"):
        arrays = np.load(BytesIO(read_bytes(FILE, MAX_BYTES)), allow_pickle=False)
        about = json.loads(arrays["about"].tobytes().decode("utf-8"))
        steps, at, maps = arrays["steps"], 0, []
        for row in about["maps"]:
            count = int(np.prod(row["shape"]))
            addresses = np.cumsum(steps[at : at + count], dtype=np.int64) % MEMORY
            at += count
            maps.append(
                AddressMap(
                    row["instruction"],
                    row["operand"],
                    row["trans"],
                    int(row["descriptor"], 16),
                    addresses.reshape(row["shape"]),
                )
            )
    return AddressMaps(about["device"], about["arch"], about["driver"], tuple(maps))
