"""Call cublasLtMatmul with each auxiliary and gradient epilogue, and store digests, samples and probes.

    python -m tools.lt_epilogues OUT                                 # on a GPU
    python -m tools.lt_epilogues OUT --seed 7 --only cases           # other shapes and numbers
    warpfrag gpu --fast -- python -m tools.lt_epilogues OUT --only cases --compare RECORDED.json

OUT/cases.json has a digest of D, of the auxiliary buffer and of the bias gradient of each call, the configuration and
the kernels; OUT/samples.npz has all bias gradients and the first columns of the rest. OUT/tables.npz has GELU and its
gradient for many numbers, OUT/specials.npz for a NaN and infinities. OUT/kernels.json has the kernels of bias
gradients for many shapes. OUT/probes.npz shows the order of the additions of a bias gradient: each sum has a large
number, its negative, and small units. The units that are lost are those added between the two.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.cublaslt import (
    BIAS,
    COMPUTE,
    EPILOGUE,
    FLOAT32,
    LT_WORKSPACE,
    SIZES,
    TRANSPOSE_A,
    TRANSPOSE_B,
    TYPES,
    WORKSPACE,
    Library,
    _check,
    _set_attributes,
)  # fmt: skip
from warpfrag.errors import NoGpu

AUX_POINTER, AUX_LD = 11, 12
EPILOGUES = {
    "default": 1, "bias": 4, "relu": 2, "gelu": 32, "relu_aux": 130, "relu_aux_bias": 134, "gelu_aux": 160,
    "gelu_aux_bias": 164, "drelu": 136, "drelu_bgrad": 152, "dgelu": 192, "dgelu_bgrad": 208, "bgrada": 256,
    "bgradb": 512,
}  # fmt: skip
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32}
SHAPES = (
    (64, 32, 64), (512, 32, 512), (128, 64, 512), (512, 48, 3072), (256, 64, 128), (96, 160, 2048), (128, 128, 1024),
    (512, 208, 256), (1024, 64, 768), (256, 256, 256), (40, 104, 72), (768, 384, 512),
)  # fmt: skip
PAIRS = (("bf16", "bf16"), ("f16", "f16"), ("tf32", "f32"), ("bf16", "f32"))
LAYOUTS = ("tn", "nn", "nt")
MASK_BITS, AUX_ELEMENTS = 128, 8
BUFFER = 32 << 20
LARGE, FIRST, COLUMNS = 2.0**39, 256, 4
FILL = 0xA5
MAX_SHORT = 1024
"""The longest probed sum of a 16-bit result, which has 256 units at a time."""
FIRST_WIDE = 6
"""The first seed of an operand whose numbers have several magnitudes; those of run 0 are 1 to 5."""


class LtCase(NamedTuple):
    """A call in cuBLAS's terms: D is m x n and column-major; `layout` has a t for each transposed operand."""

    epilogue: str
    type: str
    result: str
    layout: str
    m: int
    n: int
    k: int
    alpha: float = 1.0
    beta: float = 0.0
    in_place: bool = False
    """True if C is D."""

    @property
    def ld_aux(self) -> int:
        """The leading dimension of the auxiliary buffer, in bits or elements."""
        unit = MASK_BITS if "relu" in self.epilogue else AUX_ELEMENTS
        return -(-self.m // unit) * unit

    @property
    def aux_bytes(self) -> int:
        """The size of the auxiliary buffer."""
        if "relu" in self.epilogue:
            return self.ld_aux * self.n // 8
        return self.ld_aux * self.n * int(np.dtype(DTYPES[self.result]).itemsize)

    @property
    def has_aux(self) -> bool:
        """True if the epilogue reads or writes an auxiliary buffer."""
        return bool(EPILOGUES[self.epilogue] & 128)

    @property
    def bias_count(self) -> int:
        """The number of elements of the bias or its gradient."""
        return self.n if self.epilogue == "bgradb" else self.m


class LtCall(NamedTuple):
    """The results of a call: the bytes of D, the auxiliary buffer and the bias."""

    status: int
    d: bytes = b""
    aux: bytes = b""
    bias: bytes = b""


class EpilogueLibrary(Library):
    """cuBLASLt with memory for the operands of a call."""

    def __init__(self) -> None:
        """Allocate the buffers."""
        super().__init__()
        base = ctypes.c_void_p()
        _check(self._driver.cuMemAlloc_v2(ctypes.byref(base), ctypes.c_size_t(3 * BUFFER)), "cuMemAlloc")
        self._c, self._aux, self._bias = (ctypes.c_void_p((base.value or 0) + at * BUFFER) for at in range(3))

    def upload(self, target: ctypes.c_void_p, data: NDArray[Any]) -> None:
        """Copy an array to a buffer."""
        raw = np.ascontiguousarray(data).tobytes()
        _check(self._driver.cuMemcpyHtoD_v2(target, raw, ctypes.c_size_t(len(raw))), "cuMemcpyHtoD")

    def download(self, source: ctypes.c_void_p, size: int) -> bytes:
        """Copy bytes from a buffer."""
        raw = ctypes.create_string_buffer(max(1, size))
        _check(self._driver.cuMemcpyDtoH_v2(raw, source, ctypes.c_size_t(size)), "cuMemcpyDtoH")
        return raw.raw[:size]

    def set_operands(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None = None) -> None:
        """Copy A, B and C, stored by columns."""
        self.upload(self._a, a)
        self.upload(self._b, b)
        if c is not None:
            self.upload(self._c, c)

    def call(self, case: LtCase, aux: bytes, bias: bytes, *, is_short: bool = False) -> tuple[LtCall, dict[str, Any]]:
        """Make a call; also return the configuration and the kernels, unless `is_short`."""
        descriptor, layouts = self._described(case)
        facts: dict[str, Any] = {}
        try:
            if not is_short:
                self._heuristic(descriptor, layouts, LT_WORKSPACE, case.result)
                facts["configuration 1"] = self._configuration()
            status = self._heuristic(descriptor, layouts, WORKSPACE, case.result)
            if status:
                return LtCall(status), facts
            if not is_short:
                facts["configuration 32"] = self._configuration()
                facts["kernels"] = self._kernels(case, descriptor, layouts)
            size_d = case.m * case.n * np.dtype(DTYPES[case.result]).itemsize
            if case.in_place:
                _check(self._driver.cuMemcpyDtoD_v2(self._d, self._c, ctypes.c_size_t(size_d)), "cuMemcpyDtoD")
            else:
                self.upload(self._d, np.full(size_d, FILL, np.uint8))
            self.upload(self._aux, np.frombuffer(aux or bytes([FILL]) * case.aux_bytes, np.uint8))
            self.upload(self._bias, np.frombuffer(bias, np.uint8))
            status = self._matmul(case, descriptor, layouts)
            _check(self._driver.cuStreamSynchronize(self._stream), "cuStreamSynchronize")
            if status:
                return LtCall(status), facts
            aux_size = case.aux_bytes if case.has_aux else 0
            buffers = (self._d, size_d), (self._aux, aux_size), (self._bias, len(bias))
            return LtCall(0, *(self.download(*each) for each in buffers)), facts
        finally:
            self._lt.cublasLtMatmulDescDestroy(descriptor)
            for layout in layouts:
                self._lt.cublasLtMatrixLayoutDestroy(layout)

    def kernels_of(self, case: LtCase) -> Any:  # noqa: ANN401 (JSON)
        """Return the kernels of a call, which does not run."""
        descriptor, layouts = self._described(case)
        try:
            if self._heuristic(descriptor, layouts, WORKSPACE, case.result):
                return None
            return self._kernels(case, descriptor, layouts)
        finally:
            self._lt.cublasLtMatmulDescDestroy(descriptor)
            for layout in layouts:
                self._lt.cublasLtMatrixLayoutDestroy(layout)

    def _described(self, case: LtCase) -> tuple[ctypes.c_void_p, list[ctypes.c_void_p]]:
        descriptor = ctypes.c_void_p()
        status = self._lt.cublasLtMatmulDescCreate(ctypes.byref(descriptor), COMPUTE[case.type], FLOAT32)
        _check(status, "cublasLtMatmulDescCreate")
        number = EPILOGUES[case.epilogue]
        values: list[tuple[int, Any]] = [
            (TRANSPOSE_A, ctypes.c_int32(case.layout[0] == "t")), (TRANSPOSE_B, ctypes.c_int32(case.layout[1] == "t")),
            (EPILOGUE, ctypes.c_uint32(number)),
        ]  # fmt: skip
        if number & (4 | 16 | 256 | 512):
            values.append((BIAS, self._bias))
        if case.has_aux:
            values += [(AUX_POINTER, self._aux), (AUX_LD, ctypes.c_int64(case.ld_aux))]
        _set_attributes(self._lt.cublasLtMatmulDescSetAttribute, descriptor, values)
        m, n, k = case.m, case.n, case.k
        shapes = [
            (TYPES[case.type], *((k, m) if case.layout[0] == "t" else (m, k))),
            (TYPES[case.type], *((n, k) if case.layout[1] == "t" else (k, n))),
            (TYPES[case.result], m, n),
        ]
        layouts = []
        for kind, rows, columns in shapes:
            layout = ctypes.c_void_p()
            status = self._lt.cublasLtMatrixLayoutCreate(ctypes.addressof(layout), kind, rows, columns, rows)
            _check(status, "cublasLtMatrixLayoutCreate")
            layouts.append(layout)
        return descriptor, layouts

    def _kernels(self, case: LtCase, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p]) -> object:
        try:
            found = self._captured(lambda: self._matmul(case, descriptor, layouts))
        except NoGpu as error:
            return str(error)
        return [[each.name, *each.grid, each.block] for each in found]

    def _heuristic(self, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p], size: int, result: str) -> int:
        a, b, d = layouts
        count, preference = ctypes.c_int(0), self._preferences[size, result != "f32"]
        status = self._lt.cublasLtMatmulAlgoGetHeuristic(
            self._lt_handle, descriptor, a, b, d, d, preference, 1, ctypes.addressof(self._algorithm),
            ctypes.addressof(count),
        )  # fmt: skip
        return int(status) or (0 if count.value else -1)

    def _configuration(self) -> list[int]:
        numbers = []
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        for attribute, width in enumerate(SIZES):
            value.value = 0
            self._lt.cublasLtMatmulAlgoConfigGetAttribute(
                ctypes.byref(self._algorithm), attribute, ctypes.byref(value), ctypes.c_size_t(width),
                ctypes.byref(written),
            )  # fmt: skip
            numbers.append(struct.unpack("i", struct.pack("I", value.value))[0])
        return numbers

    def _matmul(self, case: LtCase, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p]) -> int:
        a, b, d = layouts
        c = self._c if case.beta and not case.in_place else self._d
        alpha, beta = ctypes.c_float(case.alpha), ctypes.c_float(case.beta)
        return int(
            self._lt.cublasLtMatmul(
                self._lt_handle, descriptor, ctypes.addressof(alpha), self._a, a, self._b, b, ctypes.addressof(beta),
                c, d, self._d, d, ctypes.addressof(self._algorithm), self._workspace,
                WORKSPACE, self._stream,
            )
        )  # fmt: skip


# --- calls with random numbers


def numbers(shape: tuple[int, ...], dtype: str, seed: int, shift: int = 0) -> NDArray[Any]:
    """Return numbers between -4 and 4, divided by 2^shift, and rounded to a type."""
    random = np.random.default_rng([seed, *shape])
    drawn = random.integers(-(1 << 19), 1 << 19, shape) / (1 << (17 + shift))
    if seed >= FIRST_WIDE:  # of several magnitudes, so that the order of additions matters
        drawn = drawn * 2.0 ** random.integers(-9, 1, shape)
    return drawn.astype(np.float32).astype(DTYPES[dtype])


def operands(case: LtCase, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return A (K x M if it is not transposed), B (N x K likewise) and C (N x M): columns are rows here."""
    shape_a = (case.m, case.k) if case.layout[0] == "t" else (case.k, case.m)
    shape_b = (case.k, case.n) if case.layout[1] == "t" else (case.n, case.k)
    shift = int(np.log2(case.k)) // 2 + 1  # results of about 1
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
    """Return the calls with random numbers, those of one set of operands in a row."""
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


def text_of(case: LtCase) -> str:
    """Return the name of a case."""
    return " ".join(map(str, case[:9])) + " in_place" * case.in_place


def digest(data: bytes) -> str:
    """Return a short digest."""
    return hashlib.sha256(data).hexdigest()[:16]


def run_cases(library: EpilogueLibrary, folder: Path, seed: int, stop: float, stored: dict[str, Any]) -> int:
    """Make the calls with random numbers; return how many differ from stored ones."""
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


# --- tables of the activations and their gradients


def run_tables(library: EpilogueLibrary, folder: Path) -> None:
    """Store D of epilogues for many numbers: the gradients for A B = 1, GELU and ReLU of exact numbers."""
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


# --- probes of the order of the additions of a bias gradient

SUMMED_K = (
    (256, 256, 4096), (512, 128, 3072), (256, 256, 256), (256, 64, 512), (512, 128, 2048), (64, 512, 1024),
    (128, 128, 64), (768, 384, 512),
)  # fmt: skip
SUMMED_N = (
    (256, 1000, 256), (512, 4096, 512), (256, 64, 256), (256, 256, 256), (256, 512, 256), (256, 2048, 256),
    (512, 256, 512), (256, 512, 2048),
)  # fmt: skip


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
    """Return the value of a unit: float16 cannot represent the large number otherwise."""
    return 2.0**-24 if case.type == "f16" else 1.0


def probe_operands(case: LtCase, rows: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return A and B whose sums are those of rows: of A, of B, or of D with A the identity."""
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
    units = length if case.result == "f32" else FIRST  # a 16-bit sum has the exact number of up to 256 units
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
    """Store the last kernel of bias gradients by shape; nothing runs."""
    found = {}
    depths = (
        8,
        16,
        32,
        64,
        96,
        120,
        128,
        136,
        144,
        160,
        192,
        224,
        240,
        248,
        256,
        264,
        320,
        512,
        1024,
        1536,
        2040,
        2048,
    )
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
    """Store ReLU and GELU of a NaN, infinities and zeros, which the bias adds to zero."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; the status is 1 if a call differs from the stored one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="OUT")
    parser.add_argument("--seed", type=int, default=0, help="0: the listed shapes; others: random ones")
    parser.add_argument("--only", choices=["tables", "cases", "probes", "kernels"], help="one part")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a cases.json to compare with")
    parser.add_argument("--seconds", type=float, default=25, help="the limit of the cases, and of the probes")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    library = EpilogueLibrary()
    print(f"{library.gpu}, cuBLASLt {library.version}", flush=True)
    stored = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else {}
    wrong = 0
    if options.only in {None, "tables"}:
        run_tables(library, options.folder)
    if options.only in {None, "cases"}:
        stop = time.monotonic() + options.seconds
        wrong = run_cases(library, options.folder, options.seed, stop, stored)
    if options.only in {None, "kernels"}:
        run_kernels(library, options.folder)
        run_specials(library, options.folder)
    if options.only in {None, "probes"}:
        run_probes(library, options.folder, time.monotonic() + options.seconds)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
