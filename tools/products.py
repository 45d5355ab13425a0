"""Compare whole gemms on a GPU with the CPU, for every rule, and with the real instruction, and measure their speed.

    python -m tools.products [REPORT.md] [--only TEXT]

The tool tests every rule, or those whose text contains TEXT. Operands are numbers near 1, numbers with a wide range of
exponents or with small exponents, and arbitrary codes; every code of backend "cuda" is compared with the CPU's. Then
large gemms are measured. Some of their rows are compared with the CPU, and all rows with backend "native" if it has
the instruction.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.arguments import report_parser
from warpfrag.blas.gemm import gemm
from warpfrag.errors import NotModelled, WarpfragError
from warpfrag.files import write_atomically
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.targets import targets
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends.cuda_backend import Cuda
from warpfrag.tensorcore.backends.device_kernel import cupy
from warpfrag.tensorcore.matmul import matmul
from warpfrag.tensorcore.registry import find, get

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.tensorcore.rules import Rule

WIDTH = 64  # of wgmma; it does not affect the rule
SPANS = {"near 1": (None, 3), "wide": (None, 12), "small": (3, 4)}
"""Ranges of random exponents: the centre (of the field, or of 1) and the distance from it."""
EXTENTS = ((1, 16, 8, 7), (5, 70, 67, 1))
"""The extents of a gemm: instructions along K, rows, columns and tiles."""
ZEROS = 0.1
ANY = 0.1
SPECIAL = 1e-3
ROWS = 64  # rows of a large gemm that are compared with the CPU
REPEATS = 4


class Speed(NamedTuple):
    """A gemm to measure."""

    instruction: str
    arch: str
    size: int
    special: bool = False


SPEEDS = (
    *(Speed("mma.m16n8k16.f32.f16.f16.f32", "sm_90", size) for size in (1024, 2048, 4096, 8192)),
    Speed("mma.m16n8k16.f32.f16.f16.f32", "sm_90", 4096, special=True),
    Speed("mma.m16n8k16.f32.f16.f16.f32", "sm_80", 4096),
    Speed("mma.m16n8k16.f32.f16.f16.f32", "sm_80", 4096, special=True),
    Speed("mma.m16n8k16.f32.bf16.bf16.f32", "sm_90", 4096),
    Speed("mma.m16n8k16.f16.f16.f16.f16", "sm_90", 4096),
    Speed("mma.m16n8k32.f32.e4m3.e4m3.f32", "sm_89", 4096),
    Speed("mma.m16n8k32.f32.e4m3.e4m3.f32", "sm_100", 4096),
    Speed("mma.m16n8k32.f32.e4m3.e4m3.f32", "sm_120", 4096),
    Speed("mma.m16n8k8.f32.tf32.tf32.f32", "sm_80", 4096),
    Speed("mma.m16n8k8.f32.tf32.tf32.f32", "sm_90", 4096),
    Speed("mma.m16n8k32.s32.s8.s8.s32", "sm_90", 4096),
    Speed("mma.m16n8k32.satfinite.s32.s8.s8.s32", "sm_90", 4096),
    Speed("mma.m16n8k256.xor.popc.s32.b1.b1.s32", "sm_90", 4096),
    Speed("mma.m8n8k4.f64.f64.f64.f64", "sm_90", 4096),
)


def rules() -> dict[Rule, str]:
    """Return every rule, with an instruction and an architecture that use it."""
    found: dict[Rule, str] = {}
    for instruction in find():
        if instruction.form.is_product and not (instruction.form.is_warpgroup and instruction.shape.n != WIDTH):
            for arch in dict.fromkeys(target.arch for target in targets().values()):
                try:
                    found.setdefault(plan(instruction.form, arch).rule, f"{instruction.name} on {arch}")
                except WarpfragError:
                    continue
    return found


def draw(random: np.random.Generator, name: str, shape: tuple[int, ...], span: str) -> NDArray[Any]:
    """Return random codes with exponents in a span; a tenth are zeros or arbitrary codes."""
    row = FORMATS[name]
    kind = code_dtype(row)
    any_code = random.integers(0, 1 << 32, shape, dtype=np.uint64) << np.uint64(32)
    any_code = (any_code | random.integers(0, 1 << 32, shape, dtype=np.uint64)) & np.uint64(row.codes - 1)
    if not row.is_float:
        return any_code.astype(kind)
    if span == "any":
        return np.where(random.random(shape) < ANY, any_code.astype(kind), draw(random, name, shape, "near 1"))
    middle, far = SPANS[span]
    field = random.integers(-far, far + 1, shape) + (row.bias if middle is None else middle)
    field = np.clip(field, 0, (1 << row.exponent) - 2).astype(np.uint64)
    codes = (field << np.uint64(row.fraction) | random.integers(0, 1 << row.fraction, shape, dtype=np.uint64)) << (
        np.uint64(row.unused)
    )
    codes[random.random(shape) < ZEROS] = 0
    if row.signed:
        codes |= random.integers(0, 2, shape, dtype=np.uint64) * np.uint64(row.sign_bit)
    return codes.astype(kind)


def operands(random: np.random.Generator, rule: Rule, extents: tuple[int, int, int, int], span: str) -> ProductOperands:
    """Return the operands of a gemm."""
    instructions, height, width, tiles = extents
    stored = rule.stored * instructions
    a = draw(random, rule.a, (tiles, height, stored), span)
    b = draw(random, rule.b, (tiles, rule.k * instructions, width), span)
    c = draw(random, rule.c, (tiles, height, width), span)
    columns = scale_a = scale_b = None
    if rule.is_sparse:  # keep one of two, two of four, or two pairs of four
        pair = 2 if FORMATS[rule.a].bits == 4 else 1
        kept = 1 if rule.a == "tf32" else 2
        chunks = stored // (kept * pair)
        places = np.sort(np.argsort(random.random((tiles, height, chunks, 2 * kept)), axis=-1)[..., :kept], axis=-1)
        pairs = places[..., None] * pair + np.arange(pair)
        columns = (pairs + 2 * kept * pair * np.arange(chunks)[:, None, None]).reshape(a.shape).astype(np.int32)
    if rule.scales:
        scale_a = draw(random, rule.scale_format, (tiles, height, rule.scales * instructions), span)
        scale_b = draw(random, rule.scale_format, (tiles, rule.scales * instructions, width), span)
    return ProductOperands(a, b, c, columns, scale_a, scale_b)


def compare_rules(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield an instruction for every rule, with the numbers of compared and differing outputs."""
    random = np.random.default_rng(29)
    for rule, name in rules().items():
        if text in f"{name} {rule}":
            outputs = differing = 0
            for span in (*SPANS, "any"):
                for extents in EXTENTS if rule.c == rule.d else EXTENTS[:1]:
                    given = operands(random, rule, extents, span)
                    want = matmul(
                        rule,
                        given.a,
                        given.b,
                        given.c,
                        columns=given.columns,
                        scale_a=given.scale_a,
                        scale_b=given.scale_b,
                    )
                    differing += int((Cuda().matmul(rule, given) != want).sum())
                    outputs += want.size
            yield name, outputs, differing


def measure(speed: Speed) -> tuple[float, float | None, int, int | None]:
    """Return the times of backends "cuda" and "native", and how many codes differ from the CPU's and native's."""
    cp = cupy()
    random = np.random.default_rng(31)
    rule = plan(get(speed.instruction).form, speed.arch).rule
    sides = [draw(random, name, (speed.size, speed.size), "near 1") for name in (rule.a, rule.b)]
    if speed.special:
        for side, name in zip(sides, (rule.a, rule.b), strict=True):
            row = FORMATS[name]
            top = ((1 << row.exponent) - 1) << row.fraction
            for code in (0, top, top | 1):
                side[random.random(side.shape) < SPECIAL / 3] = code
    a, b = (cp.asarray(side) for side in sides)
    seconds: dict[str, float] = {}
    results: dict[str, Any] = {}
    for backend in ("cuda", "native"):
        try:
            for _ in range(REPEATS):
                start = perf_counter()
                found = gemm(a, b, instruction=speed.instruction, arch=speed.arch, raw=True, backend=backend)
                cp.cuda.Device().synchronize()
                seconds[backend] = min(seconds.get(backend, 1e9), perf_counter() - start)
            results[backend] = found
        except NotModelled:
            continue
    rows = np.sort(random.choice(speed.size, ROWS, replace=False))
    want = gemm(sides[0][rows], sides[1], instruction=speed.instruction, arch=speed.arch, raw=True)
    unlike = int((cp.asnumpy(results["cuda"])[rows] != want).sum())
    unlike_native = int((results["cuda"] != results["native"]).sum()) if "native" in results else None
    return seconds["cuda"], seconds.get("native"), unlike, unlike_native


def main(argv: Sequence[str] | None = None) -> int:
    """Compare every rule, measure large gemms, and write the report."""
    arguments = report_parser("products", __doc__, "only rules whose text contains this").parse_args(argv)
    name = cupy().cuda.runtime.getDeviceProperties(0)["name"].decode()
    lines = ["# Whole products on a GPU", "", name, ""]

    def say(line: str) -> None:
        lines.append(line)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    counted = list(compare_rules(arguments.only))
    wrong = [f"* {name}: {differing} of {outputs} outputs differ" for name, outputs, differing in counted if differing]
    say(
        f"* {sum(differing for *_, differing in counted)} of {sum(outputs for _, outputs, _ in counted)} codes "
        f"differ from the CPU's, for {len(counted)} rules"
    )
    for line in wrong:
        say(line)
    say("")
    say(f"Best of {REPEATS} runs, with arrays in GPU memory; {ROWS} rows of each product are compared with the CPU.")
    say("")
    say(
        "| instruction | arch | size | operands | ms | T multiply-adds/s | differ from the CPU | native ms"
        " | differ from native |"
    )
    say("|---|---|---:|---|---:|---:|---:|---:|---:|")
    bad = len(wrong)
    for speed in SPEEDS:
        if arguments.only in f"{speed.instruction} {speed.arch}":
            seconds, native, unlike, unlike_native = measure(speed)
            bad += bool(unlike) + bool(unlike_native)
            kind = "1 in 1000 zero, infinite or NaN" if speed.special else "ordinary"
            own = ("", "") if native is None else (f"{1e3 * native:.2f}", str(unlike_native))
            say(
                f"| `{speed.instruction}` | {speed.arch} | {speed.size} | {kind} | {1e3 * seconds:.2f} | "
                f"{speed.size**3 / seconds / 1e12:.2f} | {unlike} | {' | '.join(own)} |"
            )
    if arguments.report:
        write_atomically(arguments.report, "\n".join(lines) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
