"""Run emitted kernels on the GPU: each tile must have exactly the codes that the instruction computes.

    python -m tools.tiles [REPORT.md] [--only TEXT]

The tool emits every multiplying instruction that the GPU can run (wgmma in a few widths), or those whose name contains
TEXT. The raw kernels, which the driver assembles from PTX, are compared with `wf.execute`. If nvcc is on the path, the
CUDA C++ tile kernels run on random operands in memory with gaps between the lines, and every code is compared with
`mma(A, B, C)`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.arguments import report_parser
from warpfrag.codegen.emit import emit
from warpfrag.codegen.memory_indexing import contiguous_strides, element_bits, kernel_copies, memory_orders
from warpfrag.codegen.statement import choices, kernel_variants, raw_name, registers, shared_kernel_name, tile_name
from warpfrag.errors import InvalidOperand
from warpfrag.files import write_atomically
from warpfrag.formats.random_codes import random_codes
from warpfrag.hardware.gpu_device import WARPGROUP, Argument, open_gpu
from warpfrag.hardware.launches import wgmma_launches
from warpfrag.tensorcore.array_types import Scaled
from warpfrag.tensorcore.execute import execute_registers
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.random_operands import random_words
from warpfrag.tensorcore.registry import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.hardware.gpu_device import Gpu, LoadedModule
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.wgmma_call import Variant

WIDTHS = (8, 24, 64, 256)  # widths of wgmma
UNIT = 12  # instructions per translation unit
GAP = 5  # gap between lines in elements


@dataclass(frozen=True)
class Tile:
    """One kernel that multiplies a tile: its entry, and the memory layout of each matrix."""

    entry: str
    strides: dict[str, tuple[int, ...]]
    takes_strides: bool


def tiles(instruction: Instruction, targets: Sequence[str]) -> Iterator[Tile]:
    """Yield every tile kernel that is emitted for an instruction."""
    if instruction.form.is_warpgroup:
        for variant in kernel_variants(instruction):
            for order in ("row", "col"):
                strides = {role: _gapped(instruction, role, order, GAP) for role in registers(instruction)}
                yield Tile(tile_name(instruction, variant), strides, takes_strides=True)
        return
    if instruction.form.is_wmma:
        for order in ("row", "col"):
            orders = {"a": instruction.layouts[0], "b": instruction.layouts[1], "c": order, "d": order}
            strides = {role: _gapped(instruction, role, orders[role], 16) for role in "dabc"}
            yield Tile(tile_name(instruction, order=order), strides, takes_strides=True)
        return
    for choice in choices(instruction):
        for order in ("row", "col"):
            strides = {role: _gapped(instruction, role, order, GAP) for role in registers(instruction)}
            yield Tile(tile_name(instruction, choice), strides, takes_strides=True)
    for copies in kernel_copies(instruction, targets):
        orders = memory_orders(copies)
        strides = {role: contiguous_strides(operand, orders[role]) for role, operand in registers(instruction).items()}
        yield Tile(shared_kernel_name(instruction, orders), strides, takes_strides=False)


def _gapped(instruction: Instruction, role: str, order: str, gap: int) -> tuple[int, ...]:
    """Return the strides of a matrix with gaps between its lines."""
    *_, rows, cols = instruction.operands[role].shape
    line = (cols if order == "row" else rows) + gap
    if instruction.form.is_wmma:  # lines start at multiples of 32 bytes
        unit = max(1, 256 // element_bits(instruction.operands[role]))
        line = -(-line // unit) * unit
    strides = (line, 1) if order == "row" else (1, line)
    return (line * max(rows, cols), *strides) if instruction.form.is_quad else strides


def to_memory(codes: NDArray[Any], strides: tuple[int, ...], bits: int) -> NDArray[np.uint32]:
    """Store a matrix of codes at these strides in packed memory, low bits first; gaps are filled with ones."""
    index = _index(codes.shape, strides)
    size = -(-(int(index.max()) + 1) * bits // 1024) * 1024
    memory = np.ones(size, np.uint8)
    places = index[..., None] * bits + np.arange(bits)
    memory[places] = (codes[..., None].astype(np.uint64) >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(memory, bitorder="little").view(np.uint32)


def from_memory(
    memory: NDArray[np.uint32], shape: tuple[int, ...], strides: tuple[int, ...], bits: int
) -> NDArray[Any]:
    """Load a matrix of codes from packed memory."""
    found = np.unpackbits(memory.view(np.uint8), bitorder="little")
    places = _index(shape, strides)[..., None] * bits + np.arange(bits)
    codes: NDArray[Any] = (found[places].astype(np.uint64) << np.arange(bits, dtype=np.uint64)).sum(axis=-1)
    return codes


def _index(shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.int64]:
    return np.tensordot(np.array(strides), np.indices(shape), axes=1)


def run_tile(gpu: Gpu, module: LoadedModule, instruction: Instruction, tile: Tile, random: np.random.Generator) -> bool:
    """Return True if one kernel gives exactly the codes of `mma(A, B, C)`."""
    kind = "narrow" if instruction.a.format.is_float else "extreme"
    operands = registers(instruction)
    codes = {
        role: random_codes(operands[role].format, kind, operands[role].shape, random)
        for role in operands
        if role not in {"d", "metadata"}
    }
    full = codes["a"]
    if instruction.pattern is not None:
        codes["metadata"] = random.choice([*instruction.pattern.rising], instruction.metadata.shape).astype(np.uint64)
        full = np.asarray(instruction.expand(codes["a"], codes["metadata"].astype(np.uint8), raw=True))
    matrices = {"a": full, "b": codes["b"]}
    a, b = (Scaled(x, codes[f"scale_{role}"]) if f"scale_{role}" in codes else x for role, x in matrices.items())
    expected = instruction(a, b, codes["c"], arch=gpu.target, raw=True)
    memory = {role: to_memory(codes[role], tile.strides[role], element_bits(operands[role])) for role in codes}
    bits = element_bits(operands["d"])
    blank = to_memory(np.zeros(instruction.d.shape, np.uint64), tile.strides["d"], bits)
    order = list(operands)
    numbers = {role: (tile.strides[role] if tile.takes_strides else ()) for role in order}
    if instruction.form.is_wmma:
        numbers = {role: (max(tile.strides[role]),) for role in order}
    warps = WARPGROUP[0] if instruction.form.is_warpgroup else 1
    memory["d"] = blank
    arguments: list[Argument] = []
    for role in order:
        arguments += [memory[role], *map(np.int32, numbers[role])]
    found = gpu.run_blocks(module, tile.entry, 1, arguments, warps)
    return np.array_equal(from_memory(found, instruction.d.shape, tile.strides["d"], bits), expected)


def run_raw(gpu: Gpu, module: LoadedModule, instruction: Instruction, choice: Immediates) -> bool:
    """Return True if the raw kernel gives exactly the registers of `wf.execute`."""
    kind = "narrow" if instruction.a.format.is_float else "bits"
    words = random_words(instruction, kind, 8, np.random.default_rng(1), choice.selector)
    expected = execute_registers(instruction, words, choice, arch=gpu.target)
    return np.array_equal(gpu.run(module, raw_name(instruction, choice), words, instruction.d.words), expected)


def run_raw_warpgroup(gpu: Gpu, module: LoadedModule, instruction: Instruction, variant: Variant) -> bool:
    """Return True if the raw kernel of a wgmma gives exactly the registers of `wf.execute`."""
    for _, cases in wgmma_launches(instruction, variant, 6, 1):
        found = gpu.run_warpgroups(module, raw_name(instruction, variant), cases, instruction.d.words)
        if not np.array_equal(found, run_wgmma_cases(instruction, cases, gpu.target)):
            return False
    return True


def run_raws(gpu: Gpu, module: LoadedModule, instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """Yield every raw kernel that is emitted for an instruction, and True if its result is right."""
    if instruction.form.is_warpgroup:
        for variant in kernel_variants(instruction):
            if not any(variant.trans):
                yield str(variant), run_raw_warpgroup(gpu, module, instruction, variant)
        return
    for choice in choices(instruction):
        yield str(choice), run_raw(gpu, module, instruction, choice)


def run_tiles(gpu: Gpu, module: LoadedModule, instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """Yield every tile kernel that is emitted for an instruction, and True if its result is right."""
    random = np.random.default_rng(7)
    for tile in tiles(instruction, (gpu.target,)):
        yield f"{tile.entry} {tile.strides}", run_tile(gpu, module, instruction, tile, random)


def sample(target: str, only: str = "") -> list[Instruction]:
    """Return the instructions to run; wgmma only in a few widths."""
    return [
        found
        for found in find(arch=target)
        if found.form.is_product and only in found.name and (not found.form.is_warpgroup or found.shape.n in WIDTHS)
    ]


def compile_cuda(text: str, target: str, number: int, folder: Path) -> bytes:
    """Compile a CUDA translation unit with nvcc."""
    source, binary = folder / f"unit{number}.cu", folder / f"unit{number}.cubin"
    source.write_text(text, encoding="utf-8")
    command = [
        shutil.which("nvcc") or "nvcc",
        "-cubin",
        f"-arch={target}",
        "-std=c++17",
        "-o",
        str(binary),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (our own text)
    return binary.read_bytes()


def check_tiles(say: Callable[[str], object] = print, only: str = "") -> tuple[list[str], int]:
    """Run every emitted kernel; return the lines of a report, and the number of kernels that differ or fail."""
    gpu = open_gpu()
    instructions = sample(gpu.target, only)
    if not instructions:
        msg = f"no multiplying instruction that {gpu.target} can run contains {only!r}"
        raise InvalidOperand(msg)
    units = [instructions[first : first + UNIT] for first in range(0, len(instructions), UNIT)]
    languages = ["ptx", *(["cuda"] if shutil.which("nvcc") else [])]
    lines = [f"{gpu.name}, {gpu.target}, driver {gpu.driver}", ""]
    failures = 0
    for language in languages:
        count = 0
        texts = [emit(unit, lang=language, arch=gpu.target, kernels=True) for unit in units]
        if language == "ptx":
            modules = [gpu.load(text) for text in texts]
        else:
            with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
                jobs = [pool.submit(compile_cuda, text, gpu.target, n, Path(folder)) for n, text in enumerate(texts)]
                modules = [gpu.load_binary(job.result()) for job in jobs]
        for unit, module in zip(units, modules, strict=True):
            for instruction in unit:
                for kernel, is_right in (run_raws if language == "ptx" else run_tiles)(gpu, module, instruction):
                    count += 1
                    if not is_right:
                        failures += 1
                        lines.append(f"* DIFFERS: {language} {instruction.name} {kernel}")
        each = "raw kernels, each on eight cases" if language == "ptx" else "tile kernels, each on one tile"
        lines.append(f"* {language}: {len(instructions)} instructions ran: {count} {each}")
        say(lines[-1])
    lines.append(f"* {'every code equal' if not failures else f'{failures} kernels differ'}")
    say(lines[-1])
    return lines, failures


def main(argv: Sequence[str] | None = None) -> int:
    """Run and compare all kernels, and write a report; the exit status is 1 if anything differs."""
    arguments = report_parser("tiles", __doc__, "only instructions whose name contains this").parse_args(argv)
    lines, wrong = check_tiles(only=arguments.only)
    if arguments.report:
        write_atomically(arguments.report, "# Emitted kernels on hardware\n\n" + "\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
