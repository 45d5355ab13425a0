"""Tables of activations, and probes that reveal the order in which bias gradients are summed."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.lt_epilogues.library import DTYPES, LAYOUTS, PAIRS, EpilogueLibrary, LtCase, text_of
from warpfrag.errors import NoGpu

LARGE, FIRST = 2.0**39, 256
MAX_SHORT = 1024
"""The length of the longest sum with a 16-bit result that is probed, in blocks of 256 units."""
SUMMED_K = (
    (256, 256, 4096), (512, 128, 3072), (256, 256, 256), (256, 64, 512), (512, 128, 2048), (64, 512, 1024),
    (128, 128, 64), (768, 384, 512),
)  # fmt: skip
SUMMED_N = (
    (256, 1000, 256), (512, 4096, 512), (256, 64, 256), (256, 256, 256), (256, 512, 256), (256, 2048, 256),
    (512, 256, 512), (256, 512, 2048),
)  # fmt: skip


def run_tables(library: EpilogueLibrary, folder: Path) -> None:
    """Store D for many inputs: activation gradients with A B = 1, and GELU and ReLU with exact inputs."""
    tables: dict[str, Any] = {}
    size, depth = 256, 256
    for type_, result in PAIRS:
        dtype = np.dtype(DTYPES[type_])
        ones = np.zeros((size, depth), np.float32)
        ones[:, 0] = 1
        codes = np.arange(size * size, dtype=np.uint32)
        if np.dtype(DTYPES[result]).itemsize == 2:
            grid = codes.astype(np.uint16).view(DTYPES[result])
        else:
            grid = (np.random.default_rng(5).standard_normal(size * size) * 2).astype(np.float32)
        narrow = codes.astype(np.uint16).view(DTYPES["bf16" if type_ == "tf32" else type_]).astype(np.float32)
        narrow = np.where(np.isfinite(narrow) & (np.abs(narrow) < 30000), narrow, np.float32(1)).reshape(size, size)
        for name in ("dgelu", "drelu", "gelu", "gelu_aux", "relu_aux"):
            case = LtCase(name, type_, result, "tn", size, size, depth)
            aux = b""
            if name == "drelu":
                aux = np.random.default_rng(6).integers(0, 256, case.aux_bytes, np.uint8).tobytes()
            elif name == "dgelu":
                aux = grid.tobytes()
            if name.startswith("d"):
                library.set_operands(ones.astype(dtype), ones.astype(dtype))
            else:  # A is the identity; a column of D is a row of `narrow`
                library.set_operands(np.eye(size).astype(dtype), narrow.astype(dtype))
            try:
                found, facts = library.call(case, aux, bytes(4 * size))
            except NoGpu as error:
                print(f"{case}: {error}")
                continue
            key = f"{name} {type_} {result}"
            tables[f"{key} d"] = np.frombuffer(found.d, np.uint8)
            tables[f"{key} aux"] = np.frombuffer(found.aux, np.uint8)
            print(key, found.status, str(facts.get("kernels", ""))[:150], flush=True)
        np.savez_compressed(folder / "tables.npz", **tables)


def pairs(length: int) -> NDArray[np.int64]:
    """Return the indices of the large number and its negative, for each probe."""
    seconds = np.arange(length)
    if length > 2 * FIRST:
        seconds = np.unique(np.concatenate([np.arange(FIRST), np.arange(FIRST, length, max(1, length // FIRST) + 1)]))
    firsts = sorted({0, 1, 5, 8, 16, 37, min(64, length - 1), length // 2, length - 1})
    return np.array([(one, two) for one in firsts for two in seconds if one != two])


def patterns(length: int, first: int, last: int) -> NDArray[np.float32]:
    """Return a row for each pair: units from `first` to `last`, the large number and its negative."""
    chosen = pairs(length)
    rows = np.zeros((len(chosen), length), np.float32)
    rows[:, first:last] = 1
    at = np.arange(len(chosen))
    rows[at, chosen[:, 0]], rows[at, chosen[:, 1]] = LARGE, -LARGE
    return rows


def scaled(case: LtCase) -> float:
    """Return the value of a unit, chosen so that float16 can represent the large number."""
    return 2.0**-24 if case.type == "f16" else 1.0


def probe_operands(case: LtCase, rows: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return A and B such that the epilogue sums `rows`: as rows of A or B, or as rows of D if A is the identity."""
    if case.epilogue == "bgrada":
        a, b = rows, np.zeros((case.n, case.k), np.float32)
    elif case.epilogue == "bgradb":
        a, b = np.zeros((case.m, case.k), np.float32), rows
    else:
        a, b = np.eye(case.m, case.k, dtype=np.float32), np.zeros((case.n, case.k), np.float32)
        b[:, : case.m] = rows.T
    dtype = DTYPES[case.type]
    a, b = a.astype(dtype), b.astype(dtype)
    return a if case.layout[0] == "t" else a.T, b.T if case.layout[1] == "t" else b


def probe(library: EpilogueLibrary, case: LtCase) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return the sums of all pairs, for each block of units."""
    is_over_k = case.epilogue.startswith("bgrad")
    length, count = (case.k, case.bias_count) if is_over_k else (case.n, case.m)
    aux = b"\xff" * case.aux_bytes
    if case.epilogue.startswith("dgelu"):
        aux = np.full((case.n, case.ld_aux), 16, DTYPES[case.result]).tobytes()
    dtype = np.dtype(DTYPES[case.result])
    found = []
    facts: dict[str, Any] = {}
    units = length if case.result == "f32" else FIRST  # a 16-bit sum is exact up to 256 units
    for block in range(0, length, units):
        rows = patterns(length, block, block + units)
        sums = []
        for first in range(0, len(rows), count):
            part = np.zeros((count, length), np.float32)
            part[: len(rows) - first] = rows[first : first + count] * scaled(case)
            library.set_operands(*probe_operands(case, part))
            result, more = library.call(case, aux, bytes(count * dtype.itemsize), is_short=bool(facts))
            facts = facts or more
            if result.status:
                return np.zeros(0, np.float32), {"status": result.status}
            sums.append(np.frombuffer(result.bias, dtype).astype(np.float32) / scaled(case))
        found.append(np.concatenate(sums)[: len(rows)])
    return np.array(found), facts


def run_probes(library: EpilogueLibrary, folder: Path, stop: float) -> None:
    """Store the sums of the probes of each bias gradient."""
    sums: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for turn in range(len(SUMMED_K)):
        for type_, result in PAIRS:
            for name in ("bgrada", "bgradb", "drelu_bgrad", "dgelu_bgrad"):
                for layout in LAYOUTS:
                    shape = (SUMMED_K if name.startswith("bgrad") else SUMMED_N)[turn]
                    case = LtCase(name, type_, result, layout, *shape)
                    key = text_of(case)
                    length = shape[2 if name.startswith("bgrad") else 1]
                    is_long = length > MAX_SHORT and result != "f32"
                    if layout != "nt" or is_long or time.monotonic() > stop:
                        continue
                    try:
                        sums[key], facts[key] = probe(library, case)
                    except NoGpu as error:
                        facts[key] = {"error": str(error)}
        np.savez_compressed(folder / "probes.npz", **sums)
        (folder / "probes.json").write_text(json.dumps(facts, indent=0), encoding="utf-8")
        print(f"turn {turn}: {len(sums)} probes", flush=True)


def run_kernels(library: EpilogueLibrary, folder: Path) -> None:
    """Store the last kernel of the bias gradient for each shape, without running it."""
    found = {}
    depths = (
        8, 16, 32, 64, 96, 120, 128, 136, 144, 160, 192, 224, 240, 248, 256, 264, 320, 512, 1024, 1536, 2040, 2048,
    )  # fmt: skip
    deeper = (2056, 2064, 2112, 2304, 2560, 3072, 4096, 6144, 8192, 16384)
    shapes = [("bgrada", rows, 64, depth) for rows in (8, 256, 4096) for depth in (*depths, *deeper)]
    shapes += [("bgradb", 64, 256, depth) for depth in (128, 256, 2048, 4096)]
    columns = (8, 32, 40, 256, 480, 512, 520, 544, 768, 1024, 2048, 4096, 8192, 16384)
    shapes += [("drelu_bgrad", rows, count, 64) for rows in (8, 64, 256, 1024, 4096, 16384) for count in columns]
    for name, m, n, k in shapes:
        for type_, result in PAIRS:
            case = LtCase(name, type_, result, "nt", m, n, k)
            try:
                kernels = library.kernels_of(case)
            except NoGpu as error:
                kernels = str(error)
            found[text_of(case)] = kernels[-1] if kernels else None
    (folder / "kernels.json").write_text(json.dumps(found, indent=0), encoding="utf-8")
    print(f"{len(found)} kernels", flush=True)


def run_specials(library: EpilogueLibrary, folder: Path) -> None:
    """Store ReLU and GELU of a NaN, infinities and zeros, which are passed as the bias while A and B are zero."""
    found: dict[str, Any] = {}
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0**-126, -(2.0**-126), 3e38, -3e38], np.float32)
    for type_, result in PAIRS:
        for name in ("relu_aux_bias", "gelu_aux_bias"):
            case = LtCase(name, type_, result, "tn", 64, 64, 64)
            library.set_operands(np.zeros((64, 64), DTYPES[type_]), np.zeros((64, 64), DTYPES[type_]))
            with np.errstate(all="ignore"):
                bias = np.resize(values, 64).astype(DTYPES[result])
            result_, _ = library.call(case, b"", bias.tobytes(), is_short=True)
            found[f"{name} {type_} {result} d"] = np.frombuffer(result_.d, np.uint8)
            found[f"{name} {type_} {result} aux"] = np.frombuffer(result_.aux, np.uint8)
    np.savez_compressed(folder / "specials.npz", **found)
