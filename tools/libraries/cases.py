"""The measured gemms and their operands, which are identical in NumPy and PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

ROWS, COLUMNS = 32, 48
"""The maximum numbers of rows and columns of each D whose outputs are stored."""
MASK = 0xFFFFFFFF
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "s8": np.int8, "e4m3": ml_dtypes.float8_e4m3fn,
    "f32": np.float32, "s32": np.int32,
}  # fmt: skip
RESULTS = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "s8": "s32", "e4m3": "bf16"}


@dataclass(frozen=True)
class Case:
    """One gemm: `call` is the PyTorch function, and `layout` has a t for each transposed operand (A, then B)."""

    call: str
    type: str
    m: int
    n: int
    k: int
    layout: str = "nn"
    batch: int = 1
    alpha: float = 1.0
    beta: float = 1.0
    result: str = ""
    seed: int = 0

    @property
    def result_type(self) -> str:
        """The format of D."""
        return self.result or RESULTS[self.type]

    @property
    def name(self) -> str:
        """The name in reports."""
        many = f"{self.batch} x " if self.batch > 1 else ""
        return f"{self.call} {self.type} {many}{self.m} x {self.n} x {self.k} {self.layout}"


# Operands: equal in NumPy and in PyTorch, element by element.


def scramble(x: Any) -> Any:  # noqa: ANN401 (an int64 array of numpy or torch)
    """Return a 32-bit hash."""
    x = x & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x46CA68B5) & MASK
    return x ^ (x >> 16)


def hashed(rows: Any, columns: Any, seed: int) -> Any:  # noqa: ANN401 (as scramble)
    """Return a 32-bit hash for each element of a matrix."""
    start = (seed * 0x2545F491) & MASK
    return scramble(scramble(rows * 0x9E3779B1 + start)[:, None] + columns[None, :] * 0x5EBCA6B7)


def values(bits: Any, kind: str) -> Any:  # noqa: ANN401 (as scramble)
    """Convert hashes to numbers: integers for s8, else 19-bit fractions with one of four scales, exact in float32."""
    if kind == "s8":
        return (bits & 255) - 128
    return ((bits & 0x7FFFF) - 0x40000) * 2.0**-18 * 2.0 ** -(1.0 * ((bits >> 29) & 3))


def numpy_matrix(rows: NDArray[Any], columns: NDArray[Any], seed: int, kind: str) -> NDArray[Any]:
    """Return the given rows and columns of an operand."""
    found = values(hashed(rows.astype(np.int64), columns.astype(np.int64), seed), kind)
    if kind != "s8":
        found = found.astype(np.float32)
    taken: NDArray[Any] = found.astype(DTYPES[kind])
    return taken


def sample(extent: int, most: int) -> NDArray[np.int64]:
    """Return evenly spread rows or columns to store."""
    return np.arange(extent) if extent <= most else np.arange(most) * extent // most


# The cases.

M = (2, 4, 8, 16, 24, 32, 48, 64, 96, 100, 128, 192, 256, 384, 512, 768, 1000, 1024, 2048, 4096)
N = (64, 96, 128, 200, 256, 320, 512, 768, 1000, 1024, 2048, 3072, 4096, 8192)
K = (64, 128, 256, 320, 500, 512, 640, 768, 1000, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 8192, 11008, 16384)
COUNTS = {
    ("matmul", "f16"): 62, ("matmul", "bf16"): 56, ("matmul", "tf32"): 56, ("scaled_mm fast", "e4m3"): 32,
    ("scaled_mm slow", "e4m3"): 32, ("int_mm", "s8"): 24, ("bmm", "f16"): 12, ("bmm", "bf16"): 10, ("bmm", "tf32"): 10,
    ("linear", "f16"): 18, ("linear", "bf16"): 18, ("linear", "tf32"): 12, ("scaled_mm bias", "e4m3"): 8,
    ("addmm", "f16"): 6, ("addmm", "bf16"): 6, ("addmm", "tf32"): 6, ("mm to f32", "f16"): 10, ("mm to f32", "bf16"): 8,
    ("triton", "f16"): 8, ("triton", "bf16"): 4, ("triton", "tf32"): 4, ("triton", "e4m3"): 6,
}  # fmt: skip
LARGEST = 1 << 35
"""The maximum number of multiply-adds in a case."""


def cases() -> Iterator[Case]:
    """Return every case: random model shapes, and a few shapes with odd extents."""
    random = np.random.default_rng(16)
    seed = 0
    for (call, kind), count in COUNTS.items():
        done = 0
        while done < count:
            m, n, k = (int(random.choice(extents)) for extents in (M, N, K))
            if done < 2 and call == "matmul":
                k += 1  # unaligned rows
            batch = int(random.choice([2, 4, 16])) if call == "bmm" else 1
            case = _aligned(Case(call, kind, m, n, k, batch=batch))
            if case.m * case.n * case.k * case.batch > LARGEST:
                continue
            layout = str(random.choice(["nn", "nt", "tn"])) if call in {"matmul", "bmm", "mm to f32"} else "nn"
            layout = "nt" if call == "linear" or kind in {"e4m3", "s8"} else layout
            alpha, beta = (1.7, 0.3) if call == "addmm" and done % 2 else (1.0, 1.0)
            result = "f32" if call in {"mm to f32", "triton"} else ""
            seed += 8
            done += 1
            yield replace(case, layout=layout, alpha=alpha, beta=beta, result=result, seed=seed)


def _aligned(case: Case) -> Case:
    """Return the case with extents that its call accepts."""
    if case.type == "s8":
        return replace(case, m=max(case.m, 32), n=case.n // 8 * 8, k=case.k // 8 * 8)
    if case.call == "triton":
        return replace(case, m=max(64, case.m // 64 * 64), n=case.n // 64 * 64, k=max(64, case.k // 64 * 64))
    if case.type == "e4m3":
        return replace(case, m=case.m // 16 * 16 or 16, n=case.n // 16 * 16, k=case.k // 16 * 16)
    return case


def operands(case: Case) -> dict[str, NDArray[Any]]:
    """Return the rows of A, the columns of B, and the bias and C of the stored outputs."""
    rows, columns, depth = sample(case.m, ROWS), sample(case.n, COLUMNS), np.arange(case.k)
    last = 1000 * (case.batch - 1)
    found = {
        "A": numpy_matrix(rows, depth, case.seed + last, case.type),
        "B": numpy_matrix(depth, columns, case.seed + 1 + last, case.type),
    }
    if case.call in {"linear", "scaled_mm bias"}:
        kind = "bf16" if case.type == "e4m3" else case.type
        found["bias"] = numpy_matrix(np.arange(1), columns, case.seed + 2, kind)[0]
    if case.call == "addmm":
        found["C"] = numpy_matrix(rows, columns, case.seed + 3, case.type)
    return found
