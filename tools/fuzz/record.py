"""Record a GPU's results for random kernels, so that they can be compared later without a GPU.

Each kernel is assembled by ptxas, its cubin runs twice, and the driver compiles and runs its PTX once. The record has
the PTX itself (a newer generator may make a different kernel from a seed), and the digests of the cubin and of the
results of each run.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tempfile
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.fuzz.assembler import assemble
from tools.fuzz.driver import device
from tools.fuzz.emulation import Data, data_of, make_data
from tools.fuzz.generate import favourite, generate
from tools.fuzz.kernel import IN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

ARCH = "sm_90"
KERNELS_PER_FILE = 5000


class Recorded(NamedTuple):
    """A kernel with the digests of its cubin, of two runs of the cubin, and of the driver-compiled code, if it ran."""

    seed: int
    text: str
    grid: int
    block: int
    in_bytes: int
    out_bytes: int
    has_nans: bool
    cubin: str
    left: tuple[str, str]
    left_by_driver: str
    output: str = ""  # the second array as the GPU left it, compressed; empty unless requested

    @property
    def repeats(self) -> bool:
        """True if both runs of the cubin wrote the same bytes."""
        return self.left[0] == self.left[1]

    @property
    def arch(self) -> str:
        """The architecture that the PTX is assembled for."""
        return arch_of(self.text)

    @property
    def output_bytes(self) -> bytes:
        """The bytes of the second array as the GPU left it; empty if they were not kept."""
        return zlib.decompress(b64decode(self.output)) if self.output else b""

    def data(self) -> Data:
        """Return the kernel's arguments."""
        return make_data(self.seed, self.in_bytes, self.out_bytes, has_nans=self.has_nans)


def arch_of(text: str) -> str:
    """Return the architecture to assemble a module for: that of the GPU, with the suffix of the module's target."""
    return f"{ARCH}a" if ".target sm_90a" in text else ARCH


def digest(data: bytes | Sequence[NDArray[np.uint8]]) -> str:
    """Return the digest of bytes, or of the arrays after a kernel."""
    whole = data if isinstance(data, bytes) else b"".join(array.tobytes() for array in data)
    return hashlib.sha256(whole).hexdigest()[:32]


def record(seed: int, size: int, *, keeps: bool = False, favour: str = "", uses_driver: bool = True) -> dict[str, Any]:
    """Run the kernel of a seed on the GPU and return its record."""
    kernel = generate(seed, size, favour=favourite(seed) if favour == "each" else favour)
    text, data = kernel.text(), data_of(kernel)
    answer: dict[str, Any] = {"seed": seed, "state": "recorded"}
    with tempfile.TemporaryDirectory() as folder:
        assembled = Path(folder) / "kernel.cubin"
        refused = assemble(text, arch_of(text), assembled)
        if refused:
            return answer | {"state": "refused by ptxas", "why": str(refused)[:300]}
        cubin = assembled.read_bytes()
    arguments: list[NDArray[np.uint8] | bytes] = [data.given, data.before, data.blob]
    images: list[str | bytes] = [cubin, cubin, text] if uses_driver else [cubin, cubin]
    arrays = [device().run(image, kernel.grid, kernel.block, arguments) for image in images]
    left = [digest(one) for one in arrays]
    output = b64encode(zlib.compress(arrays[0][1].tobytes(), 9)).decode() if keeps else ""
    recorded = Recorded(
        seed, text, kernel.grid, kernel.block, kernel.threads * IN_BYTES, kernel.out_bytes, seed % 5 == 0,
        digest(cubin), (left[0], left[1]), left[2] if uses_driver else "", output,
    )  # fmt: skip
    return answer | {"record": recorded}


def write(folder: Path, records: Sequence[Recorded]) -> None:
    """Write records as compressed lines of JSON, several thousand per file."""
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(0, len(records), KERNELS_PER_FILE):
        lines = "".join(json.dumps(record) + "\n" for record in records[at : at + KERNELS_PER_FILE])
        (folder / f"kernels{at // KERNELS_PER_FILE}.jsonl.xz").write_bytes(lzma.compress(lines.encode()))


def read(paths: Iterable[Path]) -> Iterator[Recorded]:
    """Read records from files that `write` wrote."""
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                yield Recorded(*fields)._replace(left=tuple(fields[8]))
