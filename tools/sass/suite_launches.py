"""The captured launches of the tests: nvcc's and Triton's kernels, tensor copies, mbarriers and clusters."""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.sass.captures import LIMIT, Case, Launch, Runner, arch_of, assemble
from warpfrag.codegen.emit import raw_module
from warpfrag.codegen.ptx_kernels import WGMMA_RAW_PARAMETERS
from warpfrag.codegen.statement import SWIZZLE_PERIOD, raw_name
from warpfrag.hardware.launches import verified_variants, wgmma_launches
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.registry import find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.wgmma_call import Variant

WGMMA_CASES = 12
TESTS = Path(__file__).parents[2] / "tests"


def suite_cases() -> Iterator[Case]:
    """Yield the captured launches that the tests compare with an H200."""
    sys.path.insert(0, str(TESTS))
    yield from stored_kernels()
    yield from hopper_launches()
    yield from single_copies()


def run_text(text: str, entry: str, facts: dict[str, Any], args: list[Any], runner: Runner) -> None:
    """Assemble a module and run one of its kernels."""
    cluster = facts.get("cluster")
    options = LaunchOptions(cluster=tuple(cluster) if cluster else None, limit=LIMIT)
    kernel = assemble(text, arch_of(text))[entry]
    runner(Launch(kernel, facts["grid"], facts["block"], {"args": args}, facts["shared"]), options)


def digest(array: np.ndarray[Any, Any]) -> bytes:
    """Return the SHA-256 digest of an array in hexadecimal."""
    return hashlib.sha256(array.tobytes()).hexdigest().encode()


def stored_kernels() -> Iterator[Case]:
    """Yield the kernels of kernels.zip."""
    stored = import_module("ptx.test_stored_kernels")

    for name, facts in stored.CASES.items():

        def run(runner: Runner, facts: dict[str, Any] = facts) -> list[tuple[str, bytes, bytes]]:
            args = [stored.argument(given) for given in facts["args"]]
            run_text(stored.text(facts["file"]), facts["entry"], facts, args, runner)
            return [
                (f"argument {number}", digest(array), given["after"].encode())
                for number, (given, array) in enumerate(zip(facts["args"], args, strict=True))
                if given and "after" in given
            ]

        yield Case(name, run)


def hopper_launches() -> Iterator[Case]:
    """Yield the launches of `hopper_launches` that ended without an error."""
    kernels, launches, tests = map(import_module, ("ptx.hopper_kernels", "ptx.hopper_launches", "ptx.test_hopper"))
    for name, row in tests.H200.items():

        def run(
            runner: Runner, facts: dict[str, Any] = launches.CASES[name], row: dict[str, Any] = row
        ) -> list[tuple[str, bytes, bytes]]:
            args, outputs = tests.arguments(facts)
            run_text(kernels.module(), facts["entry"], facts, args, runner)
            return [(number, digest(data), row["sha256"][number].encode()) for number, data in outputs.items()]

        if row["status"] == "ok":
            yield Case(name, run)


def single_copies() -> Iterator[Case]:
    """Yield the tensor copies of `single_copies` that ended without an error."""
    copies, tests = map(import_module, ("ptx.single_copies", "ptx.test_single_copies"))
    for name, copy in copies.COPIES.items():
        expected = tests.H200[name].encode()

        def run(runner: Runner, copy: Any = copy, expected: bytes = expected) -> list[tuple[str, bytes, bytes]]:  # noqa: ANN401
            args, left, shared = tests.arguments(copy)
            facts = {"grid": 1, "block": 128, "shared": shared}
            run_text(copies.module(), copy.entry, facts, args, runner)
            found = hashlib.sha256(b"".join(part.tobytes() for part in left)).hexdigest()[:16]
            return [("left", found.encode(), expected)]

        if expected != b"error":
            yield Case(name, run)


def verified_wgmma() -> Iterator[Case]:
    """Yield the wgmma kernels of `warpfrag verify`, with twelve cases each.

    An H200 ran all of them, and every code was equal to the reference's (docs/evidence/h200_wgmma.md). The results of
    the reference therefore replace those of the GPU here.
    """
    for instruction in find(arch="sm_90a"):
        for variant in verified_variants(instruction) if instruction.form.is_warpgroup else ():

            def run(
                runner: Runner, instruction: Instruction = instruction, variant: Variant = variant
            ) -> list[tuple[str, bytes, bytes]]:
                text, results = raw_module([(instruction, variant)], "sm_90a"), []
                for name, cases in wgmma_launches(instruction, variant, WGMMA_CASES, 0):
                    expected = run_wgmma_cases(instruction, cases, "sm_90a")
                    given = {
                        "d": np.zeros_like(expected), "descriptor_a": np.uint64(cases.descriptors[0]),
                        "descriptor_b": np.uint64(cases.descriptors[1]), "scale_d": np.uint32(cases.scale_d),
                        "bytes": np.uint32(cases.shared.shape[1]), **cases.arrays,
                    }  # fmt: skip
                    facts = {"grid": cases.cases, "block": 128, "shared": cases.shared.shape[1] + SWIZZLE_PERIOD}
                    args = [given.get(parameter) for parameter in WGMMA_RAW_PARAMETERS]
                    run_text(text, raw_name(instruction, variant), facts, args, runner)
                    results.append((name, given["d"].tobytes(), expected.tobytes()))
                return results

            yield Case(f"{instruction.name} {variant.description}", run)
