"""Special operands that reveal the order of additions in a library's kernels.

One term is M, another -M, and all others are 1, where M is so large that adding 1 to it has no effect. The sum is the
number of ones that are added after M and -M have cancelled: the number of k outside the smallest subtree that contains
both (FPRev, arXiv:2411.00442). Each output of a gemm is one experiment, so a gemm with n columns runs n of them.

    products.npz     for each gemm: L (anchors x k, the counts), D (codes of some outputs for hashed operands)
    segments.npz     segment-K kernels: for each block of 64 x 64 outputs, the counts of `SPLITS` experiments
    calls.npz        PyTorch calls with epilogues, scales and batches: codes of some outputs

Each file has a header that lists its gemms: the call, the configuration, and the kernels with their grids.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.choices.launches import KINDS, shapes
from tools.libraries.cases import Case
from tools.libraries.measure import _matrix, _profiled, make_call, say, take
from warpfrag.blas.cublas.choice_table import ProductKind
from warpfrag.blas.cublas.cublaslt import Question, library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

DEVICE = "cuda"
SECONDS = float(os.environ.get("ADDITIONS_SECONDS", "75"))
ROWS, COLUMNS = 8, 16
SCALES = {
    "f16": (2.0**15, 2.0**-24, 2.0**8), "bf16": (2.0**60, 1.0, 1.0), "tf32": (2.0**60, 1.0, 1.0),
    "f32": (2.0**60, 1.0, 1.0),
}  # fmt: skip
"""For each type: the values of M, of one, and of the other operand's elements."""
PER_KERNEL = {"nvjet": 0, "sm90_xmma": 3, "cutlass": 3}
PER_OTHER_KERNEL = 8
MAX_K_OF_ALL_PAIRS = 160
FIRST, REST = 520, 500
"""The number of values of k from 0 on that are all tried, and the approximate number of other values."""
MAX_EXPERIMENTS, MAX_GEMMS = 24_000, 600
MORE_RESULTS = 40
"""The number of gemms per kernel whose results are stored although no experiments are run on them."""
SPLITS = 40
BLOCK = 64


def candidates() -> Iterator[tuple[ProductKind, int, int, int, int]]:
    """Yield thin, aligned and unaligned gemms with a moderate K, cycling through the kinds."""
    chunk = 5_000_000
    while True:
        for kind in KINDS:
            if kind.type == "e4m3":
                continue
            random = np.random.default_rng([chunk, KINDS.index(kind)])
            some = list(shapes(chunk, kind))
            for batch, m, n, k in (some[place] for place in random.integers(len(some), size=6)):
                if m * n * k * batch <= 1 << 33:
                    yield kind, batch, m, n, min(k, 8192)
            for _ in range(4):  # one row, one column, or few of both
                m, n = (int(np.exp(random.uniform(0, np.log(end)))) for end in (20, 4097))
                m, n = (m, n) if random.integers(2) else (n, m)
                k = int(np.exp(random.uniform(np.log(8), np.log(8192))))
                if random.integers(2):
                    m, n = (1, n) if random.integers(2) else (m, 1)
                yield kind, 1 if kind.call != "bmm" else 1 + int(random.integers(1, 9)), m, n, k
        chunk += 1


def anchors_of(k: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the values of k at which M and -M are tried."""
    most = min(MAX_EXPERIMENTS, MAX_GEMMS * width)
    if k <= MAX_K_OF_ALL_PAIRS and k * k <= most:
        return np.arange(k), np.arange(k)
    near = [0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096]
    fixed = sorted({place for place in [*near, k // 3, k // 2, k - 1] if place < k})
    tried = np.unique(np.concatenate([np.arange(min(k, FIRST)), np.linspace(0, k - 1, REST).astype(int)]))
    if len(tried) > most:
        tried = np.unique(np.concatenate([np.arange(most // 2), np.linspace(0, k - 1, most // 2).astype(int)]))
    return np.array(fixed[: max(1, most // len(tried))]), tried


def experiments(torch: Any, case: Case, first: NDArray[np.int64], second: NDArray[np.int64]) -> Any:  # noqa: ANN401
    """Return the counts for every pair of positions of M and -M."""
    large, one, other = SCALES[case.type]
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(case.type, torch.float32)
    down = case.m > case.n  # True if the rows of D number the experiments, False if its columns do
    width = max(case.m, case.n)
    i, j = (np.repeat(first, len(second)), np.tile(second, len(first)))
    pairs = torch.as_tensor(np.stack([i, j]), device=DEVICE)
    counts = []
    for start in range(0, len(i), width):
        some = pairs[:, start : start + width]
        number = torch.arange(some.shape[1], device=DEVICE)
        varied = torch.full((width, case.k), one, dtype=dtype, device=DEVICE)
        varied[number, some[0]] = large
        varied[number, some[1]] = -large  # i == j gives -M, which is not a count
        fixed = torch.full((min(case.m, case.n), case.k), other, dtype=dtype, device=DEVICE)
        A, B = (varied, fixed) if down else (fixed, varied)  # k is contiguous in both
        A = A.t().contiguous().t() if case.layout[0] == "t" else A
        B = B.t() if case.layout[1] == "t" else B.t().contiguous()
        D = _apply(torch, case, A, B)
        counts.append((D[:, 0] if down else D[0])[: some.shape[1]].float() / (one * other))
    return torch.cat(counts).reshape(len(first), len(second))


def _apply(torch: Any, case: Case, A: Any, B: Any) -> Any:  # noqa: ANN401 (torch may be missing)
    if case.call == "bmm":
        A, B = (_batched(each, case.batch) for each in (A, B))
        return torch.bmm(A, B)[-1]
    if case.call == "linear":
        return torch.nn.functional.linear(A, B.t(), torch.zeros(case.n, dtype=A.dtype, device=DEVICE))
    return torch.matmul(A, B)


def _batched(matrix: Any, batch: int) -> Any:  # noqa: ANN401 (torch may be missing)
    if matrix.is_contiguous():
        return matrix.expand(batch, *matrix.shape).contiguous()
    return matrix.t().expand(batch, *matrix.t().shape).contiguous().transpose(1, 2)


def set_precision(torch: Any, kind: str) -> None:  # noqa: ANN401 (torch may be missing)
    """Allow TF32 unless the type is f32, and let partial sums be added in float32."""
    torch.backends.cuda.matmul.allow_tf32 = kind != "f32"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def describe(question: Question) -> dict[str, Any]:
    """Return the configuration and launches of a call."""
    configuration, launches = library().configuration(question), library().kernels(question)
    return {"configuration": configuration and list(configuration), "launches": [list(one) for one in launches]}


def _write(path: Path, lines: list[dict[str, Any]], arrays: dict[str, NDArray[Any]]) -> None:
    header = np.frombuffer(json.dumps(lines).encode(), np.uint8)
    np.savez_compressed(path, header=header, **arrays)  # type: ignore[arg-type] # numpy's stub has a flag there


def _limit(name: str) -> int:
    return next((count for start, count in PER_KERNEL.items() if start in name), PER_OTHER_KERNEL)


def reveal_orders(torch: Any, folder: Path, seconds: float) -> None:  # noqa: ANN401 (torch may be missing)
    """Run experiments on a few gemms for every kernel that the library selects."""
    end = time.monotonic() + seconds
    seen: Counter[tuple[str, str]] = Counter()
    lines: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for number, (kind, batch, m, n, k) in enumerate(candidates()):
        if time.monotonic() > end:
            break
        try:
            told = describe(Question(kind.call, kind.type, kind.layout, m, n, k, batch))
            name = " + ".join(launch[0] for launch in told["launches"])
            key = name, f"{kind.type} {kind.layout}"
            if not name or seen[key] >= _limit(name) + MORE_RESULTS:
                continue
            seen[key] += 1
            case = Case(kind.call, kind.type, m, n, k, kind.layout, batch=batch, seed=number)
            set_precision(torch, kind.type)
            arrays[f"D{number}"] = take(torch, case, make_call(torch, _torch_case(case))(), ROWS, COLUMNS)
            line: dict[str, Any] = {"number": number, **asdict(case), **told}
            if min(m, n) == 1 or seen[key] == 1:
                line["ran"] = _profiled(torch, make_call(torch, _torch_case(case)))[0]
            lines.append(line)
            if seen[key] > _limit(name):
                continue
            first, second = anchors_of(k, max(m, n))
            if (len(first) * len(second) / max(m, n)) * m * n * k > 1 << 42:
                first, second = first[:6], second[::4]
            found = experiments(torch, case, first, second)
            arrays[f"L{number}"] = found.clamp(-1, 1 << 20).round().to(torch.int32).cpu().numpy()
            line |= {"first": first.tolist(), "second": second.tolist()}
        except Exception as error:  # noqa: BLE001 (failures are part of the report)
            lines.append({"number": number, "error": f"{kind} {batch} {m} {n} {k}: {error}"[:300]})
    say(f"{len(lines)} gemms with {len(seen)} kernels")
    _write(folder / "products.npz", lines, arrays)


def _torch_case(case: Case) -> Case:
    """Return the case with the type name that `make_call` uses for float32 operands."""
    return case if case.type != "f32" else Case(**{**asdict(case), "type": "tf32"})


def reveal_segments(torch: Any, folder: Path, seconds: float) -> None:  # noqa: ANN401 (torch may be missing)
    """Run experiments that show which tiles of D a segment-K kernel cuts, and where."""
    end = time.monotonic() + seconds
    random = np.random.default_rng(4747)
    lines: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    set_precision(torch, "tf32")
    number = asked = 0
    while time.monotonic() < end:
        asked += 1
        layout = ("nn", "nt", "tn")[int(random.choice(3, p=[0.45, 0.45, 0.1]))]
        m, n, k = (
            int(np.exp(random.uniform(np.log(low), np.log(high))))
            for low, high in ((48, 8192), (128, 16384), (256, 16384))
        )
        n, k = n // 8 * 8, k // 64 * 64
        if layout == "tn":
            m = max(64, m // 8 * 8)
        if m * n * k > 1 << 36 or m * n > 1 << 26:
            continue
        try:
            told = describe(Question("matmul", "tf32", layout, m, n, k))
            if not any("segment_k" in launch[0] for launch in told["launches"]):
                continue
            number += 1
            case = Case("matmul", "tf32", m, n, k, layout, seed=700_000 + 8 * number)
            arrays[f"D{number}"] = take(torch, case, make_call(torch, case)(), ROWS, COLUMNS)
            cuts, codes = _cuts(torch, case)
            unique, inverse = np.unique(codes.reshape(-1, codes.shape[-1]), axis=0, return_inverse=True)
            arrays[f"U{number}"] = unique
            arrays[f"I{number}"] = inverse.reshape(codes.shape[:2]).astype(np.uint16)
            lines.append({"number": number, **asdict(case), **told, "cuts": cuts})
        except Exception as error:  # noqa: BLE001 (failures are part of the report)
            lines.append({"number": number, "error": f"{layout} {m} {n} {k}: {error}"[:300]})
    say(f"{number} segment-K gemms among {asked} queried ones")
    _write(folder / "segments.npz", lines, arrays)


def _cuts(torch: Any, case: Case) -> tuple[list[int], NDArray[np.int32]]:  # noqa: ANN401 (torch may be missing)
    """Return the k of -M, and the counts for each block of outputs if M is at k = 0."""
    large, one, other = SCALES["tf32"]
    cuts = sorted({min(case.k - 1, case.k * place // SPLITS // 8 * 8 + 4) for place in range(1, SPLITS)})
    down, across = ((torch.arange(-(-extent // BLOCK), device=DEVICE) * BLOCK) for extent in (case.m, case.n))
    A = torch.full((case.m, case.k), one, device=DEVICE)
    A = A.t().contiguous().t() if case.layout[0] == "t" else A
    B = torch.full((case.n, case.k), other, device=DEVICE).t()
    B = B if case.layout[1] == "t" else B.contiguous()
    A[:, 0] = large
    found = []
    for cut in cuts:
        A[:, cut] = -large
        found.append(torch.matmul(A, B)[down][:, across])
        A[:, cut] = one
    counts: NDArray[np.int32] = torch.stack(found, dim=2).clamp(-1, 1 << 20).round().to(torch.int32).cpu().numpy()
    return cuts, counts


def call_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield PyTorch calls by name, with the facts that `_call` needs."""
    random = np.random.default_rng(474747)
    for name in (
        "addmm",
        "relu",
        "gelu",
        "gelu 3d",
        "linear 3d",
        "baddbmm",
        "bmm strided",
        "scaled rowwise",
        "scaled",
        "int_mm",
        "out f32",
    ):
        for place in range(24):
            kind = {"scaled rowwise": "e4m3", "scaled": "e4m3", "int_mm": "s8"}.get(name) or (
                "f16",
                "bf16",
                "tf32",
                "f32",
            )[place % 4]
            unit = 16
            m, n, k = (
                max(unit, int(np.exp(random.uniform(np.log(low), np.log(high)))) // unit * unit)
                for low, high in ((16, 1024), (64, 4096), (64, 4096))
            )
            if name == "int_mm":
                m = max(32, m)
            alpha, beta = ((1.0, 1.0), (1.7, 0.3), (0.5, 0.0), (1.0, 0.25))[place // 4 % 4]
            bias = ("vector", "matrix")[place % 2] if name == "addmm" else "vector"
            yield name, {
                "type": kind, "m": m, "n": n, "k": k, "alpha": alpha, "beta": beta, "bias": bias,
                "layout": "nt" if kind in {"e4m3", "s8"} else ("nt", "nn")[place // 2 % 2],
                "seed": 900_000 + 64 * place, "batch": (2, 4, 12, 32)[place % 4], "fast": bool(place % 2),
                "is_rowwise": name == "scaled rowwise",
            }  # fmt: skip


def _call(torch: Any, name: str, facts: dict[str, Any]) -> Callable[[], Any]:  # noqa: ANN401 (torch may be missing)
    m, n, k, seed, kind = (facts[key] for key in ("m", "n", "k", "seed", "type"))
    case = Case(name, "tf32" if kind == "f32" else kind, m, n, k, facts["layout"], seed=seed)
    turned = facts["layout"][1] == "t"
    A, B = _matrix(torch, case, m, k, seed), _matrix(torch, case, k, n, seed + 1, turned=turned)
    bias_case = Case(name, "bf16" if kind == "e4m3" else case.type, m, n, k)
    vector = _matrix(torch, bias_case, 1, n, seed + 2)[0] if kind != "s8" else None
    if name == "addmm":
        C = _matrix(torch, case, m, n, seed + 3) if facts["bias"] == "matrix" else vector
        return partial(torch.addmm, C, A, B, alpha=facts["alpha"], beta=facts["beta"])
    if name in {"relu", "gelu"}:
        return partial(torch._addmm_activation, vector, A, B, use_gelu=name == "gelu")  # noqa: SLF001 (no public name)
    if name == "gelu 3d":
        return partial(torch.nn.functional.gelu, torch.addmm(vector, A, B), approximate="tanh")
    if name == "linear 3d":
        return partial(torch.nn.functional.linear, A.reshape(2, m // 2, k), B.t().contiguous(), vector)
    if name in {"baddbmm", "bmm strided"}:
        heads = facts["batch"]
        a = torch.stack([_matrix(torch, case, m, k, seed + 1000 * i) for i in range(heads)], dim=1)  # m, heads, k
        b = torch.stack([_matrix(torch, case, k, n, seed + 1 + 1000 * i) for i in range(heads)])
        if name == "bmm strided":
            return lambda: torch.bmm(a.transpose(0, 1), b)[-1]
        C = _matrix(torch, case, m, n, seed + 3).expand(heads, m, n)
        return lambda: torch.baddbmm(C, a.transpose(0, 1).contiguous(), b, alpha=facts["alpha"], beta=facts["beta"])[-1]
    if name in {"int_mm", "out f32"}:
        options = {"out_dtype": torch.float32} if kind in {"f16", "bf16"} else {}
        return partial(torch._int_mm if name == "int_mm" else torch.mm, A, B, **options)  # noqa: SLF001 (as above)
    return _scaled_call(torch, facts, A, B, vector)


def _scaled_call(torch: Any, facts: dict[str, Any], A: Any, B: Any, bias: Any) -> Callable[[], Any]:  # noqa: ANN401
    m, n = facts["m"], facts["n"]
    scale = partial(torch.tensor, dtype=torch.float32, device=DEVICE)
    if not facts["is_rowwise"]:
        scales = scale(0.37), scale(1.9)
    else:
        scales = (
            (torch.arange(m, device=DEVICE, dtype=torch.float32) % 7 * 0.11 + 0.3).reshape(m, 1),
            (torch.arange(n, device=DEVICE, dtype=torch.float32) % 5 * 0.13 + 0.2).reshape(1, n),
        )
    return partial(
        torch._scaled_mm, A, B, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16,  # noqa: SLF001
        use_fast_accum=facts["fast"], bias=bias if facts["seed"] // 64 % 4 > 1 else None,
    )  # fmt: skip


def record_calls(torch: Any, folder: Path) -> None:  # noqa: ANN401 (torch may be missing)
    """Store the results and kernel names of the PyTorch calls, and GELU for evenly spaced numbers."""
    lines: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for number, (name, facts) in enumerate(call_cases()):
        line = {"number": number, "call": name, **facts}
        try:
            set_precision(torch, facts["type"])
            call = _call(torch, name, facts)
            call()
            line["kernels"], result = _profiled(torch, call)
            flat = result.reshape(-1, result.shape[-1])
            shape = Case(name, facts["type"], flat.shape[0], flat.shape[1], 1)
            arrays[f"D{number}"] = take(torch, shape, flat, ROWS, COLUMNS)
        except Exception as error:  # noqa: BLE001 (failures are part of the report)
            line["error"] = f"{type(error).__name__}: {error}"[:300]
        lines.append(line)
    for kind, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16), ("tf32", torch.float32)):
        try:
            x = torch.linspace(-9, 9, 8192, device=DEVICE).to(torch.bfloat16).to(dtype).reshape(512, 16)
            x = torch.cat([x, torch.zeros(512, 48, dtype=dtype, device=DEVICE)], dim=1)
            eye, zero = torch.eye(64, dtype=dtype, device=DEVICE), torch.zeros(64, dtype=dtype, device=DEVICE)
            found = torch._addmm_activation(zero, x, eye, use_gelu=True)[:, :16].contiguous()  # noqa: SLF001
            arrays[f"gelu {kind}"] = found.view({2: torch.int16, 4: torch.int32}[found.element_size()]).cpu().numpy()
            arrays[f"gelu x {kind}"] = x[:, :16].float().cpu().numpy()
        except Exception as error:  # noqa: BLE001 (as above)
            lines.append({"call": f"gelu {kind}", "error": str(error)[:300]})
    say(f"{len(arrays)} of {len(lines)} calls ran")
    _write(folder / "calls.npz", lines, arrays)


def additions(folder: Path, seconds: float = SECONDS) -> None:
    """Run all experiments; a third of the time is for segment-K kernels."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    torch.zeros(1, device=DEVICE)
    for part in (
        partial(record_calls, torch, folder),
        partial(reveal_segments, torch, folder, seconds / 3),
        partial(reveal_orders, torch, folder, seconds * 2 / 3),
    ):
        try:
            part()
        except Exception as error:  # noqa: BLE001 (the other parts are worth having)
            say(f"{part.func.__name__}: {type(error).__name__}: {error}")
