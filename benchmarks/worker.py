"""One side of a benchmark, in its own process: it makes its operands once, and times the jobs that it receives.

It reads one JSON job per line and answers with the time that the job took, so that two sides can take turns while both
are warm.
"""

from __future__ import annotations

import copy
import json
import os
import re
import resource
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

Job = Callable[[], Any]
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))


def codes_module() -> ModuleType:
    """Return the module that handles codes, in this version or in 0.3."""
    try:
        return import_module("warpfrag.formats.codes")
    except ImportError:
        return import_module("warpfrag.numerics.codes")


def thread_limit() -> dict[str, Any]:
    """Return the option of `gemm` that limits threads, in this version or in 0.3."""
    try:
        from warpfrag.blas.gemm_backend import Cpu
    except ImportError:
        return {"threads": THREADS}
    return {"backend": Cpu(THREADS)}


def warpfrag_gemm(name: str, n: int, arch: str = "sm_90", k: int | None = None) -> Job:
    """Return a job that computes an emulated gemm, n x n x n unless `k` is given."""
    import numpy as np

    import warpfrag as wf

    mma = wf.get(name)
    A, B = np.ascontiguousarray(operands(mma.a.format.name, n, 0)[:, :k]), operands(mma.b.format.name, n, 1)[:k]
    if mma.pattern is not None:
        A = np.where(np.arange(n) % mma.pattern.chunk < mma.pattern.kept, A, A.dtype.type(0))
    limit = thread_limit()
    return lambda: wf.gemm(A, B, instruction=mma, arch=arch, **limit)


def warpfrag_stored(name: str, n: int) -> Job:
    """Return a job that computes a dense gemm with as many multiply-adds as a sparse n x n x n gemm."""
    return warpfrag_gemm(name, n, k=n // 2)


def warpfrag_compress(name: str, n: int) -> Job:
    """Return a job that compresses a sparse A."""
    import numpy as np

    import warpfrag as wf
    from warpfrag.tensorcore.sparsity import compress_to_columns

    mma = wf.get(name)
    A = operands(mma.a.format.name, n, 0)
    A = np.where(np.arange(n) % mma.pattern.chunk < mma.pattern.kept, A, A.dtype.type(0))
    return lambda: compress_to_columns(mma.pattern, A.view(f"u{A.itemsize}"))


def warpfrag_tile(name: str, n: int) -> Job:  # noqa: ARG001 (a tile has its own size)
    """Return a job that executes one instruction on registers 200 times."""
    import numpy as np

    import warpfrag as wf

    mma = wf.get(name)
    A, B = operands(mma.a.format.name, mma.shape.k, 0), operands(mma.b.format.name, mma.shape.k, 1)
    a, b, c = (
        mma.a.pack(A[: mma.a.shape[0], : mma.a.shape[1]]),
        mma.b.pack(B[:, : mma.shape.n]),
        mma.c.pack([[1.0] * mma.shape.n] * mma.shape.m),
    )
    metadata = (
        {} if mma.pattern is None else {"metadata": np.full(32, 0x44444444, np.uint32)}
    )  # keep the first two of four
    return lambda: [wf.execute(mma, a, b, c, **metadata) for _ in range(200)]


def mmasim_operation(name: str) -> Any:  # noqa: ANN401 (a class of mmasim)
    """Return mmasim's Hopper model of an instruction."""
    from mmasim.nv_ptx.sim import MMA

    return MMA("Hopper", name)


def mmasim_gemm(name: str, n: int) -> Job:
    """Return a job that computes the gemm with mmasim, 64 rows or all rows at a time, whichever is faster."""
    import torch

    torch.set_num_threads(THREADS)
    operation = mmasim_operation(name)
    A, B = torch_operands(operation.a_type, n)
    k = operation.k

    def run(rows: int) -> Any:  # noqa: ANN401
        D = torch.zeros(n, n, dtype=operation.d_type)
        for i in range(0, n, rows):
            block = D[i : i + rows]
            for j in range(0, n, k):
                block = operation(A[i : i + rows, j : j + k], B[j : j + k], block)
            D[i : i + rows] = block
        return D

    def seconds(rows: int) -> float:
        start = time.perf_counter()
        run(rows)
        return time.perf_counter() - start

    run(64)  # the first run is not measured
    return partial(run, min((64, n), key=seconds))


def mmasim_tile(name: str, n: int) -> Job:  # noqa: ARG001
    """Return a job that executes one instruction on matrices 200 times."""
    import torch

    torch.set_num_threads(THREADS)
    operation = mmasim_operation(name)
    A, B = torch_operands(operation.a_type, operation.k)
    A, B = A[: operation.m], B[:, : operation.n]
    C = torch.ones(operation.m, operation.n, dtype=operation.d_type)
    return lambda: [operation(A, B, C) for _ in range(200)]


def warpfrag_pack(name: str, n: int) -> Job:
    """Return a job that packs n tiles of A."""
    operand, tiles = tiles_of_a(name, n)
    return lambda: operand.pack(tiles)


def numpy_gather(name: str, n: int) -> Job:
    """Return a job that gathers the same tiles with NumPy indexing, without packing."""
    import numpy as np

    operand, tiles = tiles_of_a(name, n)
    layout = operand.layout
    places = [layout.at(lane=place.lane, reg=place.reg, slot=place.slot) for place in layout.places()]
    index = np.ravel_multi_index(tuple(zip(*places, strict=True)), layout.shape).reshape(layout.lanes, -1)
    flat = tiles.view(f"u{tiles.dtype.itemsize}").reshape(n, -1)
    return lambda: flat[:, index]


def tiles_of_a(name: str, n: int) -> Any:  # noqa: ANN401
    """Return operand A and n random tiles of it."""
    import numpy as np

    import warpfrag as wf

    operand = wf.get(name).a
    codes = np.random.default_rng(0).integers(0, operand.format.codes, (n, *operand.shape), dtype=np.uint64)
    return operand, codes_module().from_codes(operand.format, codes)


PTX = Path(__file__).parents[1] / "tests" / "data" / "ptx" / "kernels.zip"
LIBRARY = ("matrix", "t_mm_tf32_80", "t_pointwise_80", "t_att_90", "t_mm_fp8_90", "t_persistent_f16_90")


def ptx_library(size: int, *, renumbered: bool) -> str:
    """Return a PTX text of this size: repeated nvcc and Triton kernels, with other names or registers if requested."""
    shared = "".join(f".extern .shared .align 128 .b8 {name}[];\n" for name in ("global_smem", "memory"))
    parts = [f".version 8.7\n.target sm_90a\n.address_size 64\n{shared}"]
    with zipfile.ZipFile(PTX) as archive:
        kernels = [archive.read(f"{name}.ptx").decode() for name in LIBRARY]
    for repeat in count():
        for number, text in enumerate(kernels):
            entries = text[text.index(".visible .entry") :].partition(".section")[0]
            entries = re.sub(r"(\.entry\s+\w+)", rf"\1_{repeat}_{number}", entries)
            entries = re.sub(r"(\w+)_param_", rf"\1_{repeat}_{number}_param_", entries)
            if renumbered:
                later = repeat * 7919
                entries = re.sub(r"%(r|rd|f|p|rs|fd)(\d+)", lambda name: f"%{name[1]}{int(name[2]) + later}", entries)  # noqa: B023 (used at once)
            parts.append(entries + "\n")
            if sum(map(len, parts)) >= size:
                return "".join(parts)
    raise AssertionError


def ptx_texts(name: str, n: int) -> list[str]:
    """Return the inputs: the files of the archive, or one large file."""
    if name != "small":
        return [ptx_library(n, renumbered=name == "renumbered")]
    with zipfile.ZipFile(PTX) as archive:
        return [archive.read(file).decode() for file in archive.namelist() if file.endswith(".ptx")]


def ptx_load(name: str, n: int) -> Job:
    """Return a job that loads PTX."""
    import warpfrag as wf

    texts = ptx_texts(name, n)
    return lambda: [wf.ptx.load(text) for text in texts]


def ptx_read(name: str, n: int) -> Job:
    """Return a job that loads PTX and parses every statement, without caches."""
    load, remembered = ptx_load(name, n), import_module("warpfrag.ptx.reader.plain_lines").CONTENTS

    def read() -> list[object]:
        remembered.clear()
        remembered.operands.clear()
        return [function.body and function.body.items for module in load() for function in module.source.functions]

    return read


def ptx_case(name: str, threads: int = THREADS) -> Job:
    """Return a job that launches a captured kernel, compiled by nvcc or Triton."""
    import numpy as np

    import warpfrag as wf

    case = json.loads(PTX.with_suffix(".json").read_text(encoding="utf-8"))[name]
    sys.path.append(str(PTX.parents[2]))
    seeded = import_module("seeded").seeded
    with zipfile.ZipFile(PTX) as kernels:
        kernel = wf.ptx.load(kernels.read(f"{case['file']}.ptx").decode())[case["entry"]]

    def argument(item: dict[str, Any] | None) -> object:
        if item is None or "kind" in item:
            return item and seeded(item["kind"], item["shape"], item.get("seed"))
        return bytes.fromhex(item["bytes"]) if "bytes" in item else np.dtype(item["dtype"]).type(item["scalar"])

    args = [argument(item) for item in case["args"]]
    has_options = hasattr(wf.ptx, "LaunchOptions")  # not in 0.3
    limit = {"options": wf.ptx.LaunchOptions(threads=threads)} if has_options else {"threads": threads}

    def launch(**options: object) -> object:
        fresh = [copy.copy(item) for item in args]  # a kernel may modify its inputs
        return kernel.launch(case["grid"], case["block"], fresh, shared=case["shared"], **limit, **options)

    return launch


def ptx_launch(name: str, n: int, engine: str = "compiled") -> Job:
    """Return a job that launches a captured kernel n times."""
    launch = partial(ptx_case(name), engine=engine)
    return lambda: [launch() for _ in range(n)]


def numpy_matmul(name: str, n: int) -> Job:  # noqa: ARG001
    """Return a job that computes a float32 matmul of the same size with NumPy."""
    A, B = operands("f32", n, 0), operands("f32", n, 1)
    return lambda: A @ B


def operands(format_name: str, n: int, seed: int) -> Any:  # noqa: ANN401
    """Return random numbers near 1, or random integers, in the natural dtype of a format."""
    import numpy as np

    from warpfrag import FORMATS

    row = FORMATS[format_name]
    random = np.random.default_rng(seed)
    if not row.is_float:
        return codes_module().from_codes(row, random.integers(0, row.codes, (n, n), dtype=np.uint64))
    return random.standard_normal((n, n)).astype(codes_module().natural_dtype(row))


def torch_operands(dtype: Any, n: int) -> Any:  # noqa: ANN401
    """Return the numbers of `operands` as torch tensors."""
    import torch

    torch.manual_seed(0)
    return torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)


KINDS = {
    "warpfrag gemm": warpfrag_gemm,
    "warpfrag gemm of half the k": warpfrag_stored,
    "warpfrag gemm on sm_100": partial(warpfrag_gemm, arch="sm_100"),
    "warpfrag compress": warpfrag_compress,
    "warpfrag tile": warpfrag_tile,
    "mmasim gemm": mmasim_gemm,
    "mmasim tile": mmasim_tile,
    "numpy": numpy_matmul,
    "warpfrag pack": warpfrag_pack,
    "numpy gather": numpy_gather,
    "ptx load": ptx_load,
    "ptx read": ptx_read,
    "ptx launch": ptx_launch,
    "ptx interpret": partial(ptx_launch, engine="reference"),
}


def main() -> None:
    """Run jobs until there are no more."""
    jobs: dict[tuple[str, str, int], Job] = {}
    for line in sys.stdin:
        job = json.loads(line)
        key = (job["kind"], job["name"], job["n"])
        if key not in jobs:
            jobs.clear()  # keep the operands of one job only
            jobs[key] = KINDS[job["kind"]](job["name"], job["n"])
            jobs[key]()  # warm: compiled, cached, paged in
        start, cpu = time.perf_counter(), time.process_time()
        jobs[key]()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sys.stdout.write(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
