"""What the libraries of a real GPU compute: products of PyTorch, and the order of additions that explains each.

    python -m warpfrag.hardware.libraries measure FOLDER     # on a machine with a GPU, torch and triton
    python -m warpfrag.hardware.libraries explain FOLDER     # anywhere, on all cores; needs only what measure wrote

Operands are a hash of their indices, so they need not be kept: a case is a line of text and the outputs of some rows
and columns. `measure` writes cases.json and outputs.npz, `explain` adds orders.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from warpfrag.epilogue import fma

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from warpfrag.find_order import Finish

ROWS, COLUMNS = 32, 48
"""Outputs of each product that are kept."""
MASK = 0xFFFFFFFF
DEVICE = "cuda"
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "s8": np.int8, "e4m3": ml_dtypes.float8_e4m3fn,
    "f32": np.float32, "s32": np.int32,
}  # fmt: skip
RESULTS = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "s8": "s32", "e4m3": "bf16"}


@dataclass(frozen=True)
class Case:
    """One product: `call` is what of PyTorch computes it; `layout` says which of A and B lie turned in memory."""

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
        """As a line of a report."""
        many = f"{self.batch} x " if self.batch > 1 else ""
        return f"{self.call} {self.type} {many}{self.m} x {self.n} x {self.k} {self.layout}"


# Operands: the same in numpy and in torch, element by element.


def scramble(x: Any) -> Any:  # noqa: ANN401 (an int64 array of numpy or torch)
    """A hash of 32 bits."""
    x = x & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x46CA68B5) & MASK
    return x ^ (x >> 16)


def hashed(rows: Any, columns: Any, seed: int) -> Any:  # noqa: ANN401 (as scramble)
    """A number of 32 bits for each element of a matrix."""
    start = (seed * 0x2545F491) & MASK
    return scramble(scramble(rows * 0x9E3779B1 + start)[:, None] + columns[None, :] * 0x5EBCA6B7)


def values(bits: Any, kind: str) -> Any:  # noqa: ANN401 (as scramble)
    """Numbers from hashes: whole ones for s8, else 19 bits of fraction and one of four scales, exact in float32."""
    if kind == "s8":
        return (bits & 255) - 128
    return ((bits & 0x7FFFF) - 0x40000) * 2.0**-18 * 2.0 ** -(1.0 * ((bits >> 29) & 3))


def numpy_matrix(rows: NDArray[Any], columns: NDArray[Any], seed: int, kind: str) -> NDArray[Any]:
    """Some rows and columns of an operand."""
    found = values(hashed(rows.astype(np.int64), columns.astype(np.int64), seed), kind)
    if kind != "s8":
        found = found.astype(np.float32)
    taken: NDArray[Any] = found.astype(DTYPES[kind])
    return taken


def sample(extent: int, most: int) -> NDArray[np.int64]:
    """Which rows or columns are kept: spread over all."""
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
"""Multiply-adds of a case."""


def cases() -> Iterator[Case]:
    """Every case: shapes drawn from those that models have, a few with odd extents."""
    random = np.random.default_rng(16)
    seed = 0
    for (call, kind), count in COUNTS.items():
        done = 0
        while done < count:
            m, n, k = (int(random.choice(extents)) for extents in (M, N, K))
            if done < 2 and call == "matmul":
                k += 1  # rows that are not aligned
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
    """The case with the extents that its call takes."""
    if case.type == "s8":
        return replace(case, m=max(case.m, 32), n=case.n // 8 * 8, k=case.k // 8 * 8)
    if case.call == "triton":
        return replace(case, m=max(64, case.m // 64 * 64), n=case.n // 64 * 64, k=max(64, case.k // 64 * 64))
    if case.type == "e4m3":
        return replace(case, m=case.m // 16 * 16 or 16, n=case.n // 16 * 16, k=case.k // 16 * 16)
    return case


# On the GPU.


def measure(folder: Path) -> None:
    """Run every case twice on the GPU, and write what came out and the names of the kernels."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    lines: list[dict[str, object]] = []
    outputs: dict[str, NDArray[Any]] = {}
    started = time.monotonic()
    for number, case in enumerate(cases()):
        line: dict[str, object] = {**asdict(case), "kernels": [], "error": ""}
        try:
            call = _call(torch, case)
            first = call()
            kernels, second = _profiled(torch, call)
            taken = [_taken(torch, case, result) for result in (first, second)]
            line |= {"kernels": kernels, "repeats": bool(np.array_equal(taken[0], taken[1]))}
            outputs[f"D{number}"] = taken[0]
        except Exception as error:  # noqa: BLE001 (whatever a library refuses is part of the report)
            line["error"] = f"{type(error).__name__}: {error}"[:300]
            torch.cuda.synchronize()
        lines.append(line)
        if number % 25 == 0:
            _say(f"{number} {case.name}: {line['kernels'] or line['error']} ({time.monotonic() - started:.0f} s)")
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "outputs.npz", **outputs)  # type: ignore[arg-type] # numpy's stub has a flag there
    (folder / "cases.json").write_text(json.dumps({**machine, "cases": lines}, indent=0), encoding="utf-8")
    _say(f"{len(outputs)} of {len(lines)} cases ran, {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _profiled(torch: Any, call: Callable[[], Any]) -> tuple[list[str], Any]:  # noqa: ANN401 (torch may be missing)
    """The names of the kernels that a call runs, and what it gives."""
    kind = torch.profiler.ProfilerActivity.CUDA
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[kind]) as profile:
        result = call()
        torch.cuda.synchronize()
    on_gpu = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    names = [event.name for event in sorted(on_gpu, key=lambda event: event.time_range.start)]
    return [name[:160] for name in names if not name.startswith(("Memset", "Memcpy"))], result


def _matrix(torch: Any, case: Case, rows: int, columns: int, seed: int, *, turned: bool = False) -> Any:  # noqa: ANN401
    """An operand on the GPU; turned, it lies column by column in memory."""
    r, c = (torch.arange(extent, dtype=torch.int64, device=DEVICE) for extent in (rows, columns))
    dtype = {
        "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "s8": torch.int8,
        "e4m3": torch.float8_e4m3fn,
    }[case.type]  # fmt: skip
    found = values(hashed(r, c, seed), case.type)
    found = found.to(dtype) if case.type == "s8" else found.to(torch.float32).to(dtype)
    return found.t().contiguous().t() if turned else found.contiguous()


def _call(torch: Any, case: Case) -> Callable[[], Any]:  # noqa: ANN401 (torch may be missing)
    """What computes a case."""
    turned_a, turned_b = (letter == "t" for letter in case.layout)
    a = [_matrix(torch, case, case.m, case.k, case.seed + 1000 * i, turned=turned_a) for i in range(case.batch)]
    b = [_matrix(torch, case, case.k, case.n, case.seed + 1 + 1000 * i, turned=turned_b) for i in range(case.batch)]
    A, B = a[0], b[0]
    if case.call == "bmm":
        return partial(torch.bmm, _stacked(torch, a, turned=turned_a), _stacked(torch, b, turned=turned_b))
    if case.call == "matmul":
        return partial(torch.matmul, A, B)
    if case.call == "mm to f32":
        return partial(torch.mm, A, B, out_dtype=torch.float32)
    if case.call == "int_mm":
        return partial(torch._int_mm, A, B)  # noqa: SLF001 (there is no public name)
    if case.call == "linear":
        bias = _matrix(torch, case, 1, case.n, case.seed + 2)[0]
        return partial(torch.nn.functional.linear, A, B.t(), bias)
    if case.call == "addmm":
        added = _matrix(torch, case, case.m, case.n, case.seed + 3)
        return partial(torch.addmm, added, A, B, alpha=case.alpha, beta=case.beta)
    if case.call == "triton":
        return _triton_call(torch, case, A, B)
    one = torch.ones((), device=DEVICE)
    options: dict[str, Any] = {"out_dtype": torch.bfloat16, "use_fast_accum": case.call == "scaled_mm fast"}
    if case.call == "scaled_mm bias":
        options["bias"] = _matrix(torch, replace(case, type="bf16"), 1, case.n, case.seed + 2)[0]
    return partial(torch._scaled_mm, A, B, scale_a=one, scale_b=one, **options)  # noqa: SLF001 (as above)


def _stacked(torch: Any, matrices: list[Any], *, turned: bool) -> Any:  # noqa: ANN401 (torch may be missing)
    """A batch, whose matrices lie in memory as each of them does."""
    return torch.stack([matrix.t() for matrix in matrices]).transpose(1, 2) if turned else torch.stack(matrices)


def _triton_call(torch: Any, case: Case, A: Any, B: Any) -> Callable[[], Any]:  # noqa: ANN401 (torch may be missing)
    from warpfrag.hardware.triton_matmul import compiled

    D = torch.empty((case.m, case.n), dtype=torch.float32, device=DEVICE)
    block_k = 32 if case.seed % 16 else 64

    def call() -> Any:  # noqa: ANN401 (as above)
        strides = (*A.stride(), *B.stride(), *D.stride())
        compiled()[(case.m // 64, case.n // 64)](A, B, D, case.k, *strides, BLOCK_K=block_k, num_warps=4)
        return D.clone()

    return call


def _taken(torch: Any, case: Case, result: Any) -> NDArray[Any]:  # noqa: ANN401 (as above)
    """The codes of the outputs that are kept; of a batch those of its last product."""
    found = result[-1] if case.call == "bmm" else result
    rows, columns = (
        torch.as_tensor(sample(extent, most), device=DEVICE) for extent, most in ((case.m, ROWS), (case.n, COLUMNS))
    )
    part = found[rows][:, columns].contiguous()
    codes = {2: torch.int16, 4: torch.int32}[part.element_size()]
    array: NDArray[Any] = part.view(codes).cpu().numpy()
    return array.view(f"uint{8 * part.element_size()}")


# Anywhere.


def operands(case: Case) -> dict[str, NDArray[Any]]:
    """The rows of A, the columns of B, and what of the bias and of C belongs to the outputs that are kept."""
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


Finishes = dict[str, "Finish | None"]


def finishes(case: Case, given: dict[str, NDArray[Any]]) -> Finishes:
    """What the kernel may do with its accumulators before it rounds them, by name; all in float32, to nearest."""
    one = np.float32
    narrow = DTYPES[case.result_type]
    if "bias" in given:
        bias = given["bias"].astype(one)
        return {
            "bias added to the sums": lambda sums, _rows, columns: sums + bias[columns],
            "bias added to the rounded product": lambda sums, _rows, columns: (
                sums.astype(narrow).astype(one) + bias[columns]
            ),
        }
    if "C" in given:
        C, alpha, beta = given["C"].astype(one), one(case.alpha), one(case.beta)
        return {
            "fma(alpha, sum, beta * C)": lambda sums, rows, columns: fma(alpha, sums, beta * C[rows][:, columns]),
            "fma(beta, C, alpha * sum)": lambda sums, rows, columns: fma(beta, C[rows][:, columns], alpha * sums),
            "alpha * sum + beta * C": lambda sums, rows, columns: alpha * sums + beta * C[rows][:, columns],
            "rounded product, then fma(beta, C, ...)": lambda sums, rows, columns: fma(
                beta, C[rows][:, columns], (alpha * sums).astype(narrow).astype(one)
            ),
        }
    return {"": None}


def explain_case(case: Case, observed: NDArray[Any]) -> dict[str, object]:
    """The order that gives what was observed, and what the kernel did with the accumulators."""
    from warpfrag.find_order import search
    from warpfrag.gemm import prepare
    from warpfrag.libraries import instruction_for

    started = time.monotonic()
    given = operands(case)
    A, B = given["A"], given["B"]
    instruction = instruction_for(A.dtype, B.dtype, "sm_90")
    for rounding in ("rne", None) if case.type == "tf32" else (None,):
        taken = prepare(A, B, instruction=instruction, arch="sm_90", rounding=rounding)
        for name, finish in finishes(case, given).items():
            order = search(taken.rule, taken.operands, observed[None], case.result_type, finish=finish)
            if order is not None:
                cut = "operands cut to tf32" if case.type == "tf32" and rounding is None else ""
                how = "; ".join(text for text in (name, cut) if text)
                return {"order": asdict(order), "how": how, "seconds": round(time.monotonic() - started, 2)}
    return {"order": None, "how": "", "seconds": round(time.monotonic() - started, 2)}


def explain(folder: Path) -> None:
    """Search the order of every case that ran, on all cores; what was found before is kept."""
    told = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    outputs = np.load(folder / "outputs.npz")
    store = folder / "orders.json"
    found: dict[str, Any] = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    fields = set(Case.__dataclass_fields__)
    waiting = {
        number: Case(**{name: line[name] for name in fields})
        for number, line in enumerate(told["cases"])
        if f"D{number}" in outputs and str(number) not in found
    }
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            pool.submit(explain_case, case, outputs[f"D{number}"]): number
            for number, case in sorted(waiting.items(), key=lambda item: -item[1].k)
        }
        for done, job in enumerate(as_completed(jobs), start=1):
            number = jobs[job]
            found[str(number)] = job.result()
            if found[str(number)]["order"] is None or done % 25 == 0:
                _say(f"[{done}/{len(jobs)}] {waiting[number].name}: {found[str(number)]}")
    store.write_text(json.dumps(found, indent=0), encoding="utf-8")
    explained = sum(one["order"] is not None for one in found.values())
    _say(f"{explained} of {len(found)} explained with every code equal")


def main(arguments: list[str]) -> int:
    """Run what is asked for."""
    if len(arguments) != 2 or arguments[0] not in {"measure", "explain"}:
        _say(__doc__ or "")
        return 2
    {"measure": measure, "explain": explain}[arguments[0]](Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
