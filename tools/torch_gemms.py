"""Make PyTorch call cuBLAS in many ways on fixed operands; store digests of the results, or compare with stored ones.

    python -m tools.torch_gemms --write results.json                            # on a GPU
    python -m tools.torch_gemms --write results.json --samples samples.npz      # with parts of the results
    warpfrag gpu --fast -- python -m tools.torch_gemms --compare results.json   # without a GPU

Operands are made from integers on the host, so they are the same on every machine. A failed call is reported, and the
next one is tried. On a GPU, the names and grids of the kernels are stored too.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from tools.torch_operations import bf16, digest_of, e4m3, f16, f32, floats, integers

Shape = tuple[int, int, int]
Call = Callable[[int, int, int], torch.Tensor]
SHAPES: tuple[Shape, ...] = (
    (1, 256, 512), (4, 512, 512), (17, 128, 512), (16, 512, 3072), (68, 512, 3072),
    (64, 256, 128), (40, 104, 72), (128, 128, 1024), (200, 520, 264), (33, 1000, 768),
)  # fmt: skip
ALIGNED: tuple[Shape, ...] = (
    (32, 64, 64), (32, 512, 512), (64, 128, 512), (48, 512, 3072), (80, 512, 3072),
    (64, 256, 128), (160, 96, 2048), (128, 128, 1024), (208, 512, 256), (64, 1024, 768),
)  # fmt: skip
ODD: tuple[Shape, ...] = (
    (512, 512, 17), (128, 512, 17), (3072, 512, 17), (512, 1024, 17), (64, 64, 5),
    (256, 128, 33), (512, 512, 68), (16, 256, 63), (2048, 512, 1), (768, 768, 250),
)  # fmt: skip
BATCH = 6
ROWS, COLUMNS = 8, 32


def operand(rows: int, columns: int, dtype: torch.dtype, *, transposed: bool, seed: int) -> torch.Tensor:
    """Return a matrix; a transposed one is a view of a row-major matrix."""
    if transposed:
        return floats(columns, rows, dtype=dtype, seed=seed).t()
    return floats(rows, columns, dtype=dtype, seed=seed)


def pair(m: int, n: int, k: int, dtype: torch.dtype, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B; `layout` has a t for each transposed operand."""
    a = operand(m, k, dtype, transposed=layout[0] == "t", seed=1)
    return a, operand(k, n, dtype, transposed=layout[1] == "t", seed=2)


def batches(m: int, n: int, k: int, dtype: torch.dtype, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return batches of A and B."""
    a = floats(BATCH, k, m, dtype=dtype, seed=1).mT if layout[0] == "t" else floats(BATCH, m, k, dtype=dtype, seed=1)
    b = floats(BATCH, n, k, dtype=dtype, seed=2).mT if layout[1] == "t" else floats(BATCH, k, n, dtype=dtype, seed=2)
    return a, b


def mm(dtype: torch.dtype, layout: str) -> Call:
    """Return a plain matmul."""
    return lambda m, n, k: torch.mm(*pair(m, n, k, dtype, layout))


def bmm(dtype: torch.dtype, layout: str) -> Call:
    """Return a batched matmul."""
    return lambda m, n, k: torch.bmm(*batches(m, n, k, dtype, layout))


def linear(dtype: torch.dtype) -> Call:
    """Return a linear layer with a bias."""
    return lambda m, n, k: F.linear(
        floats(m, k, dtype=dtype, seed=1), floats(n, k, dtype=dtype, seed=2), floats(n, dtype=dtype, seed=3)
    )


def addmm(dtype: torch.dtype, alpha: float, beta: float, layout: str = "nt") -> Call:
    """Return alpha A B + beta C."""

    def call(m: int, n: int, k: int) -> torch.Tensor:
        return torch.addmm(floats(m, n, dtype=dtype, seed=3), *pair(m, n, k, dtype, layout), alpha=alpha, beta=beta)

    return call


def baddbmm(dtype: torch.dtype, alpha: float, beta: float) -> Call:
    """Return a batched alpha A B + beta C."""

    def call(m: int, n: int, k: int) -> torch.Tensor:
        c = floats(BATCH, m, n, dtype=dtype, seed=3)
        return torch.baddbmm(c, *batches(m, n, k, dtype, "nt"), alpha=alpha, beta=beta)

    return call


def activation(dtype: torch.dtype, *, gelu: bool, shift: int = 0) -> Call:
    """Return a matmul whose epilogue adds a bias and applies an activation; B is divided by 2^shift."""

    def call(m: int, n: int, k: int) -> torch.Tensor:
        a, b = pair(m, n, k, dtype, "nt")
        return torch._addmm_activation(  # noqa: SLF001 (no public function)
            floats(n, dtype=dtype, seed=3), a, (b.t() / 2**shift).t(), use_gelu=gelu
        )

    return call


def scaled(*, fast: bool, bias: bool = False) -> Call:
    """Return a matmul of e4m3 numbers with a scale per tensor."""

    def call(m: int, n: int, k: int) -> torch.Tensor:
        a, b = pair(m, n, k, f32, "nt")
        scales = torch.tensor(0.75, device="cuda"), torch.tensor(1.5, device="cuda")
        return torch._scaled_mm(  # noqa: SLF001 (no public function)
            a.to(e4m3), b.to(e4m3), *scales, floats(n, dtype=bf16, seed=3) if bias else None, out_dtype=bf16,
            use_fast_accum=fast,
        )  # fmt: skip

    return call


def int_mm(m: int, n: int, k: int) -> torch.Tensor:
    """Return the product of two int8 matrices."""
    a, b = integers(256, m, k, seed=1) - 128, integers(256, n, k, seed=2) - 128
    return torch._int_mm(a.to(torch.int8), b.to(torch.int8).t())  # noqa: SLF001 (no public function)


def wide_result(dtype: torch.dtype) -> Call:
    """Return a matmul with a float32 result."""
    return lambda m, n, k: torch.mm(*pair(m, n, k, dtype, "nt"), out_dtype=f32)


def attention_scores(m: int, n: int, k: int) -> torch.Tensor:
    """Return batched attention scores of strided views: heads of an array [batch, row, head, k]."""
    q = floats(2, m, 3, k, dtype=bf16, seed=1).transpose(1, 2)
    return q @ floats(2, n, 3, k, dtype=bf16, seed=2).transpose(1, 2).mT


def with_tf32(call: Call) -> Call:
    """Return the call with TF32 allowed."""

    def allowed(m: int, n: int, k: int) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return call(m, n, k)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return allowed


SORTS: dict[str, tuple[Call, tuple[Shape, ...]]] = {
    "mm f16 nn": (mm(f16, "nn"), SHAPES),
    "mm bf16 nt": (mm(bf16, "nt"), SHAPES),
    "mm bf16 tn": (mm(bf16, "tn"), ALIGNED),
    "mm f16 tt": (mm(f16, "tt"), ALIGNED),
    "mm tf32 nn": (with_tf32(mm(f32, "nn")), SHAPES),
    "mm tf32 nt": (with_tf32(mm(f32, "nt")), SHAPES),
    "mm tf32 tn": (with_tf32(mm(f32, "tn")), ALIGNED),
    "mm f32 nn": (mm(f32, "nn"), SHAPES),
    "mm f32 nt": (mm(f32, "nt"), SHAPES),
    "mm f32 tn": (mm(f32, "tn"), ALIGNED),
    "mm bf16 to f32": (wide_result(bf16), ALIGNED),
    "linear bf16": (linear(bf16), SHAPES),
    "linear f16": (linear(f16), ALIGNED),
    "linear tf32": (with_tf32(linear(f32)), ALIGNED),
    "linear f32": (linear(f32), ALIGNED),
    "addmm bf16": (addmm(bf16, 1, 1), ALIGNED),
    "addmm f16 alpha beta": (addmm(f16, 0.5, 2), ALIGNED),
    "addmm tf32 alpha beta": (with_tf32(addmm(f32, 0.75, 1.5)), ALIGNED),
    "bmm f16 nn": (bmm(f16, "nn"), ALIGNED),
    "bmm bf16 nt": (bmm(bf16, "nt"), SHAPES),
    "bmm bf16 tn": (bmm(bf16, "tn"), ALIGNED),
    "bmm tf32 nn": (with_tf32(bmm(f32, "nn")), ALIGNED),
    "bmm f32 nt": (bmm(f32, "nt"), ALIGNED),
    "matmul bf16 strided heads": (attention_scores, ALIGNED),
    "baddbmm bf16 alpha beta": (baddbmm(bf16, 0.5, 2), ALIGNED),
    "relu epilogue bf16": (activation(bf16, gelu=False), ALIGNED),
    "gelu epilogue bf16": (activation(bf16, gelu=True), ALIGNED),
    "gelu epilogue f16": (activation(f16, gelu=True), ALIGNED),
    "scaled e4m3": (scaled(fast=False), ALIGNED),
    "scaled e4m3 fast": (scaled(fast=True), ALIGNED),
    "scaled e4m3 bias": (scaled(fast=True, bias=True), ALIGNED),
    "int8": (int_mm, ALIGNED),
    "mm bf16 tn, any k": (mm(bf16, "tn"), ODD),
    "mm f16 tn, any k": (mm(f16, "tn"), ODD),
    "mm bf16 tt": (mm(bf16, "tt"), ALIGNED),
    "addmm f16": (addmm(f16, 1, 1), ALIGNED),
    "addmm f16 nn": (addmm(f16, 1, 1, "nn"), ALIGNED),
    "addmm bf16 alpha": (addmm(bf16, 0.7, 1), ALIGNED),
    "addmm bf16 rounded alpha beta": (addmm(bf16, 0.7, 1.3), ALIGNED),
    "addmm f16 nn rounded alpha beta": (addmm(f16, 0.7, 1.3, "nn"), ALIGNED),
    "addmm tf32": (with_tf32(addmm(f32, 1, 1)), ALIGNED),
    "addmm tf32 rounded alpha beta": (with_tf32(addmm(f32, 0.7, 1.3)), ALIGNED),
    "baddbmm bf16": (baddbmm(bf16, 1, 1), ALIGNED),
    "baddbmm f16 rounded alpha beta": (baddbmm(f16, 0.7, 1.3), ALIGNED),
    "small gelu epilogue f16": (activation(f16, gelu=True, shift=6), ALIGNED),
    "small gelu epilogue bf16": (activation(bf16, gelu=True, shift=6), ALIGNED),
    "gelu epilogue tf32": (with_tf32(activation(f32, gelu=True, shift=6)), ALIGNED),
    "relu epilogue f16": (activation(f16, gelu=False), ALIGNED),
    "relu epilogue tf32": (with_tf32(activation(f32, gelu=False)), ALIGNED),
    "scaled e4m3 bias, slow": (scaled(fast=False, bias=True), ALIGNED),
}


def library_kernels(call: Call, shapes: tuple[Shape, ...]) -> list[list[Any]]:
    """Return the library kernels of a call, without PyTorch's own, which copy and convert operands."""
    from tools.torch_models import kernels_of

    def run() -> None:
        for shape in shapes:
            try:
                call(*shape)
            except RuntimeError:
                continue

    return [entry for entry in kernels_of(run) if "at::native" not in entry[1]]


def main() -> int:
    """Make the calls; the exit status is 1 if a result differs from the stored one or a call fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="store the digests")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="store the first rows and columns of each result")
    parser.add_argument("--rows", type=int, default=ROWS, help="the number of rows in a sample")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with stored digests")
    parser.add_argument("--kernels", action="store_true", help="store the kernels, on a GPU")
    parser.add_argument("--only", type=re.compile, default=re.compile(".*"), metavar="REGEX", help="only these calls")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_tf32 = False
    stored = json.loads(options.compare.read_text(encoding="utf-8"))["calls"] if options.compare else {}
    calls: dict[str, dict[str, str]] = {}
    samples: dict[str, Any] = {}
    kernels: dict[str, Any] = {}
    count = wrong = 0
    for name, (call, shapes) in SORTS.items():
        if not options.only.fullmatch(name):
            continue
        start, verdicts, calls[name] = time.perf_counter(), "", {}
        for shape in shapes:
            key = " ".join(map(str, shape))
            try:
                result = call(*shape)
                calls[name][key] = digest_of(result)
                part = result.detach().flatten(0, -2)[: options.rows, :COLUMNS].cpu().contiguous()
                samples[f"{name} {shape}"] = part.view(torch.uint8).numpy()
            except (RuntimeError, TypeError, ValueError) as error:
                calls[name][key] = f"error: {str(error).strip().splitlines()[-1][:200]}"
            known = stored.get(name, {}).get(key, calls[name][key])
            verdicts += "e" if calls[name][key].startswith("error") else ".X"[known != calls[name][key]]
        if options.kernels:
            kernels[name] = library_kernels(call, shapes)
        count, wrong = count + len(verdicts), wrong + len(verdicts) - verdicts.count(".")
        print(f"{name:32}{verdicts}  {time.perf_counter() - start:.1f} s", flush=True)
        if options.write:
            record = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "calls": calls}
            record |= {"kernels": kernels} if kernels else {}
            options.write.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")
    if options.samples:
        np.savez_compressed(options.samples, **samples)
    print(f"{count} calls of {len(calls)} types, {wrong} failed or different")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
