"""Convert captured operations (operations.json, memory.tar.xz, modules.tar.xz) to a folder for `warpfrag replay`.

    python -m tools.operations CAPTURED LAUNCHES

Only the outputs of an operation are compared: blocks that were freed within it are not recorded.
"""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from warpfrag.device.recording import MemoryBlock, RecordedLaunch, RecordedSequence, RecordingWriter
from warpfrag.sass.cubin import Cubin

SEGMENT = 1 << 21
"""The size and alignment of the allocator's segments; memory between recorded blocks counts as zero."""
WIDTHS = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "long": 8}


def files_of(archive: Path) -> dict[str, bytes]:
    """Return the files of an archive by name."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            data = tar.extractfile(member)
            if data is not None:
                found[Path(member.name).name] = data.read()
    return found


def extent_of(shape: list[int], strides: list[int], dtype: str) -> int:
    """Return the number of bytes from the first to the last element of an array."""
    name = dtype.removeprefix("torch.")
    width = 1 if name.startswith("float8") else WIDTHS.get(name) or np.dtype(name).itemsize
    return 0 if 0 in shape else (sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1) * width


def segments(blocks: dict[int, bytes], around: dict[int, bytes]) -> dict[int, np.ndarray[Any, Any]]:
    """Return zeroed arrays for the allocator segments that contain `around`, with `blocks` copied into them.

    Adjacent segments share an array.
    """
    numbers = set()
    for address, data in around.items():
        numbers |= set(range(address // SEGMENT, (address + len(data) - 1) // SEGMENT + 1))
    found = {}
    for start in sorted(number for number in numbers if number - 1 not in numbers):
        end = start
        while end in numbers:
            end += 1
        found[start * SEGMENT] = np.zeros((end - start) * SEGMENT, np.uint8)
    for address, data in blocks.items():
        start = max(at for at in found if at <= address)
        found[start][address - start : address - start + len(data)] = np.frombuffer(data, np.uint8)
    return found


def converted(
    name: str, facts: dict[str, Any], blobs: dict[str, bytes], code: dict[str, str], writer: RecordingWriter
) -> RecordedSequence:
    """Return an operation as a record."""
    before, after = ({int(at, 16): blobs[blob] for at, blob in facts[key].items()} for key in ("before", "after"))
    launches, reason = [], ""
    for number, call in enumerate(facts["launches"]):
        if "params" not in call:
            reason = f"{call.get('api', call)} between its launches was recorded by name only"
            continue
        params = bytearray(max((offset + size for offset, size, _ in call["params"]), default=0))
        for offset, size, data in call["params"]:
            params[offset : offset + size] = bytes.fromhex(data)
        digest = code.get(call["name"], "")
        missing = "" if digest else "the code of a closed-source library is not stored"
        cluster = next(filter(None, map(cluster_of, call.get("attributes", ()))), None)
        is_cooperative = call["api"] == "cuLaunchCooperativeKernel"
        launches.append(
            RecordedLaunch(
                call["name"], number, tuple(call["grid"]), tuple(call["block"]), call["shared"], cluster,
                is_cooperative, bytes(params), digest, "", missing,
            )
        )  # fmt: skip
    given, left = segments(before, before | after), segments(before | after, before | after)
    memory = tuple(
        MemoryBlock(at, len(data), writer.chunks(data.tobytes()), writer.chunks(left[at].tobytes()))
        for at, data in given.items()
    )
    compared = tuple((at, extent_of(shape, strides, dtype)) for at, shape, strides, dtype in facts["outputs"])
    return RecordedSequence(name, tuple(launches), memory, compared, reason)


def cluster_of(attribute: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return the cluster shape if a launch attribute contains it."""
    if attribute["id"] != 4:
        return None
    x, y, z = np.frombuffer(bytes.fromhex(attribute["hex"]), np.uint32)[:3].tolist()
    return x, y, z


def main(source: str, target: str) -> None:
    """Convert a folder."""
    folder = Path(source)
    blobs, modules = files_of(folder / "memory.tar.xz"), files_of(folder / "modules.tar.xz")
    with RecordingWriter(target, "NVIDIA H200", 13000) as writer:
        code = {kernel: writer.blob(data) for data in modules.values() for kernel in Cubin(data).kernels}
        for name, facts in json.loads((folder / "operations.json").read_text(encoding="utf-8")).items():
            writer.records.append(converted(name, facts, blobs, code, writer))


if __name__ == "__main__":
    main(*sys.argv[1:3])
