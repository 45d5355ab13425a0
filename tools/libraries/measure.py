"""Run the gemms on a GPU with PyTorch and Triton."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.libraries.cases import COLUMNS, ROWS, Case, cases, hashed, sample, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

DEVICE = "cuda"


def measure(folder: Path) -> None:
    """Run every case twice on the GPU, and write the outputs and kernel names."""
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
            call = make_call(torch, case)
            first = call()
            kernels, second = _profiled(torch, call)
            taken = [take(torch, case, result) for result in (first, second)]
            line |= {"kernels": kernels, "repeats": bool(np.array_equal(taken[0], taken[1]))}
            outputs[f"D{number}"] = taken[0]
        except Exception as error:  # noqa: BLE001 (the errors of a library are part of the report)
            line["error"] = f"{type(error).__name__}: {error}"[:300]
            torch.cuda.synchronize()
        lines.append(line)
        if number % 25 == 0:
            say(f"{number} {case.name}: {line['kernels'] or line['error']} ({time.monotonic() - started:.0f} s)")
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "outputs.npz", **outputs)  # type: ignore[arg-type] # numpy's stub has a flag there
    (folder / "cases.json").write_text(json.dumps({**machine, "cases": lines}, indent=0), encoding="utf-8")
    say(f"{len(outputs)} of {len(lines)} cases ran, {time.monotonic() - started:.0f} s")


def say(text: str) -> None:
    """Print the progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _profiled(torch: Any, call: Callable[[], Any]) -> tuple[list[str], Any]:  # noqa: ANN401 (torch may be missing)
    """Return the names of the kernels that a call runs, and its result."""
    kind = torch.profiler.ProfilerActivity.CUDA
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[kind]) as profile:
        result = call()
        torch.cuda.synchronize()
    on_gpu = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    names = [event.name for event in sorted(on_gpu, key=lambda event: event.time_range.start)]
    return [name[:160] for name in names if not name.startswith(("Memset", "Memcpy"))], result


def _matrix(torch: Any, case: Case, rows: int, columns: int, seed: int, *, turned: bool = False) -> Any:  # noqa: ANN401
    """Return an operand on the GPU, in column-major order if `turned`."""
    r, c = (torch.arange(extent, dtype=torch.int64, device=DEVICE) for extent in (rows, columns))
    dtype = {
        "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "s8": torch.int8,
        "e4m3": torch.float8_e4m3fn,
    }[case.type]  # fmt: skip
    found = values(hashed(r, c, seed), case.type)
    found = found.to(dtype) if case.type == "s8" else found.to(torch.float32).to(dtype)
    return found.t().contiguous().t() if turned else found.contiguous()


def make_call(torch: Any, case: Case) -> Callable[[], Any]:  # noqa: ANN401 (torch may be missing)
    """Return the function that computes a case."""
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
    """Return a batch whose matrices keep their memory order."""
    return torch.stack([matrix.t() for matrix in matrices]).transpose(1, 2) if turned else torch.stack(matrices)


def _triton_call(torch: Any, case: Case, A: Any, B: Any) -> Callable[[], Any]:  # noqa: ANN401 (torch may be missing)
    from tools.libraries.triton_matmul import compiled

    D = torch.empty((case.m, case.n), dtype=torch.float32, device=DEVICE)
    block_k = 32 if case.seed % 16 else 64

    def call() -> Any:  # noqa: ANN401 (as above)
        strides = (*A.stride(), *B.stride(), *D.stride())
        compiled()[(case.m // 64, case.n // 64)](A, B, D, case.k, *strides, BLOCK_K=block_k, num_warps=4)
        return D.clone()

    return call


def take(torch: Any, case: Case, result: Any, rows: int = ROWS, columns: int = COLUMNS) -> NDArray[Any]:  # noqa: ANN401
    """Return the codes of the outputs to store; for a batch, those of its last matrix."""
    found = result[-1] if case.call == "bmm" else result
    down, across = (
        torch.as_tensor(sample(extent, most), device=DEVICE) for extent, most in ((case.m, rows), (case.n, columns))
    )
    part = found[down][:, across].contiguous()
    codes = {2: torch.int16, 4: torch.int32}[part.element_size()]
    array: NDArray[Any] = part.view(codes).cpu().numpy()
    return array.view(f"uint{8 * part.element_size()}")
