"""Make calls with random numbers, and compare their results with stored ones."""

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.lt_epilogues.library import DTYPES, EPILOGUES, FILL, LAYOUTS, PAIRS, EpilogueLibrary, LtCall, LtCase, text_of
from warpfrag.errors import NoGpu

COLUMNS = 4
SHAPES = (
    (64, 32, 64), (512, 32, 512), (128, 64, 512), (512, 48, 3072), (256, 64, 128), (96, 160, 2048), (128, 128, 1024),
    (512, 208, 256), (1024, 64, 768), (256, 256, 256), (40, 104, 72), (768, 384, 512),
)  # fmt: skip
FIRST_WIDE = 6
"""The first seed whose numbers have several magnitudes; the operands of run 0 have the seeds 1 to 5."""


def numbers(shape: tuple[int, ...], dtype: str, seed: int, shift: int = 0) -> NDArray[Any]:
    """Return numbers between -4 and 4, divided by 2^shift, and rounded to a type."""
    random = np.random.default_rng([seed, *shape])
    drawn = random.integers(-(1 << 19), 1 << 19, shape) / (1 << (17 + shift))
    if seed >= FIRST_WIDE:  # several magnitudes, so that the order of additions matters
        drawn = drawn * 2.0 ** random.integers(-9, 1, shape)
    return drawn.astype(np.float32).astype(DTYPES[dtype])


def operands(case: LtCase, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return A (K x M if not transposed), B (N x K if not transposed) and C (N x M); cuBLAS's columns are rows here."""
    shape_a = (case.m, case.k) if case.layout[0] == "t" else (case.k, case.m)
    shape_b = (case.k, case.n) if case.layout[1] == "t" else (case.n, case.k)
    shift = int(np.log2(case.k)) // 2 + 1  # so that results are about 1
    return (
        numbers(shape_a, case.type, 3 * seed + 1),
        numbers(shape_b, case.type, 3 * seed + 2, shift),
        numbers((case.n, case.m), case.result, 3 * seed + 3),
    )


def inputs(case: LtCase, seed: int) -> tuple[bytes, bytes]:
    """Return the auxiliary buffer (empty if it is an output) and the bias or the initial bytes of its gradient."""
    aux = b""
    if case.epilogue.startswith("drelu"):
        aux = np.random.default_rng([seed, case.m, case.n]).integers(0, 256, case.aux_bytes, np.uint8).tobytes()
    elif case.epilogue.startswith("dgelu"):
        aux = numbers((case.n, case.ld_aux), case.result, 3 * seed + 4).tobytes()
    dtype = np.dtype(DTYPES[case.result])
    bias = numbers((case.bias_count,), case.result, 3 * seed + 5).tobytes()
    return aux, bias if EPILOGUES[case.epilogue] & 4 else bytes([FILL]) * (case.bias_count * dtype.itemsize)


def shapes_of(seed: int) -> tuple[tuple[int, int, int], ...]:
    """Return the shapes of a run: the listed ones for seed 0, random ones for others."""
    if not seed:
        return SHAPES
    random = np.random.default_rng(seed)
    return tuple(
        (8 * int(random.integers(4, 97)), 8 * int(random.integers(2, 49)), 8 * int(random.integers(6, 193)))
        for _ in range(len(SHAPES))
    )


def cases(seed: int) -> Iterator[LtCase]:
    """Yield the calls with random numbers; calls with the same operands are adjacent."""
    for shape in shapes_of(seed):
        for type_, result in PAIRS:
            for layout in LAYOUTS:
                for name in EPILOGUES:
                    yield LtCase(name, type_, result, layout, *shape)
    for shape in shapes_of(seed)[2:5]:
        for type_, result in PAIRS[:3]:
            for name in EPILOGUES:
                yield LtCase(name, type_, result, "tn", *shape, 0.75)
                yield LtCase(name, type_, result, "tn", *shape, 0.75, 1.5)
                yield LtCase(name, type_, result, "tn", *shape, 1.0, 1.0)
                yield LtCase(name, type_, result, "tn", *shape, 1.0, 1.0, in_place=True)
                yield LtCase(name, type_, result, "tn", *shape, 0.75, 1.5, in_place=True)


def digest(data: bytes) -> str:
    """Return a short digest."""
    return hashlib.sha256(data).hexdigest()[:16]


def run_cases(library: EpilogueLibrary, folder: Path, seed: int, stop: float, stored: dict[str, Any]) -> int:
    """Make the calls with random numbers, and return the number of calls that differ from stored ones."""
    found: dict[str, Any] = {}
    samples: dict[str, Any] = {}
    last: tuple[object, ...] = ()
    wrong = compared = 0
    for case in cases(seed):
        if time.monotonic() > stop:
            break
        key = text_of(case)
        if stored and "d" not in stored.get(key, {}):
            continue
        if case[1:7] != last:
            library.set_operands(*operands(case, seed))
            last = case[1:7]
        aux, bias = inputs(case, seed)
        try:
            result, facts = library.call(case, aux, bias, is_short=bool(stored))
        except NoGpu as error:
            found[key] = {"error": str(error)}
            continue
        facts |= {"status": result.status}
        if not result.status:
            facts |= {name: digest(getattr(result, name)) for name in ("d", "aux", "bias")}
            if "bgrad" in case.epilogue and not stored:
                facts["again"] = library.call(case, aux, bias, is_short=True)[0] == result
            samples |= sampled(key, case, result)
        found[key] = facts
        if stored:
            compared += 1
            different = [name for name in ("d", "aux", "bias") if facts.get(name) != stored[key][name]]
            wrong += bool(different)
            if different:
                print(f"{key}: different {' '.join(different)}", flush=True)
        if len(found) % 500 == 0:
            write(folder, found, samples)
    write(folder, found, samples)
    print(f"{len(found)} calls" + (f", {compared} compared, {wrong} different" if stored else ""), flush=True)
    return wrong


def sampled(key: str, case: LtCase, result: LtCall) -> dict[str, NDArray[Any]]:
    """Return the bias, and the first columns of D and of the auxiliary buffer."""
    parts = {"d": result.d, "aux": result.aux}
    cut = {name: raw[: len(raw) * COLUMNS // case.n] for name, raw in parts.items() if raw}
    if EPILOGUES[case.epilogue] & (16 | 256 | 512):
        cut["bias"] = result.bias
    return {f"{key} {name}": np.frombuffer(raw, np.uint8) for name, raw in cut.items()}


def write(folder: Path, found: dict[str, Any], samples: dict[str, Any]) -> None:
    """Write the results so far."""
    (folder / "cases.json").write_text(json.dumps(found, indent=0), encoding="utf-8")
    np.savez_compressed(folder / "samples.npz", **samples)
