"""`warpfrag diagnose`: which mistake gives this wrong D, or these wrong registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.command import (
    arch_option,
    choice_options,
    file_argument,
    file_option,
    instruction_argument,
    integer,
    json_option,
    verb,
)
from warpfrag.cli.dumps import dump_of, one_warp, parse_warps
from warpfrag.cli.matrices import codes_of, read_source
from warpfrag.cli.output import DONE, NO, say, say_json, wrapped
from warpfrag.errors import InvalidOperand
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.operand import Operand
from warpfrag.registry import get

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.diagnose import Diagnosis, Finding
    from warpfrag.formats import Rounding
    from warpfrag.instruction import Instruction

SHOWN = 12  # findings in text; JSON has all
ROLES = ("a", "b", "c", "d")


@verb(
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy dump.txt      # D's registers",
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy --c C.txt D.npy   # D as a matrix",
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --expect-a A.npy a.txt             # A's registers",
)
@instruction_argument
@file_argument
@file_option("--a", saying="A as it should have been: a matrix as text or .npy (sparse: full and pruned).")
@file_option("--b", saying="B, likewise.")
@file_option("--c", saying="C, likewise; zero without it.")
@file_option("--scale-a", saying="Scale factors of A, likewise.")
@file_option("--scale-b", saying="Scale factors of B, likewise.")
@file_option(
    "--expect-a", saying="The dump is of A's registers; this is the matrix they should hold (sparse: as stored)."
)
@file_option("--expect-b", saying="The same for B.")
@file_option("--expect-c", saying="The same for C.")
@file_option("--expect-d", saying="The same for D.")
@click.option(
    "--rounding", type=click.Choice(["rne"]), help="Round values that are not exact: to nearest, ties to even."
)
@click.option("--by", type=click.Choice(["lane", "register"]), help="What a line is, where the dump names no lanes.")
@click.option("--warp", type=integer(least=0), metavar="N", help="Which warp of a dump of several.")
@choice_options("selector")
@arch_option
@json_option
def command(
    *,
    name: str,
    file: str,
    rounding: Rounding,
    by: str | None,
    warp: int | None,
    selector: int | None,
    arch: str,
    as_json: bool,
    **files: str | None,
) -> int:
    """Search the mistakes that explain a wrong result, and name those that reproduce it exactly, the likeliest first.

    FILE is what came out: D's registers as printf or a debugger shows them (as for `warpfrag unpack`), or .npy with the
    registers, uint32 (32, words), or with D as a matrix. With --expect-a it is the registers of A, and so on. Where no
    mistake explains it, pairs of two are tried. Exit status 1 if nothing is found.
    """
    from warpfrag.instruction import instruction_of

    instruction = get(name)
    if instruction.arch:  # wmma: the fragments of the GPU that runs it
        instruction = instruction_of(instruction.form, arithmetic_arch(instruction.form, arch))
    given = {role: path for role, path in files.items() if path is not None}
    expected = [role for role in given if role.startswith("expect_")]
    if len(expected) > 1 or (expected and len(given) > 1):
        msg = "one operand is expected, and then no inputs are needed: give one --expect-... alone, or --a and --b"
        raise click.UsageError(msg)
    if expected:
        role = expected[0][-1]
        found = _of_operand(instruction, role, given[expected[0]], file, rounding=rounding, by=by, warp=warp)
    else:
        role = "d"
        matrices = {role: _matrix(instruction, role, path, rounding) for role, path in given.items()}
        for needed in ("a", "b"):
            if needed not in matrices:
                msg = f"--{needed} is missing: what should have gone in (or --expect-a and the like, for one operand)"
                raise click.UsageError(msg)
        found = _of_product(instruction, matrices, _observed(instruction, "d", file, by, warp), selector, arch)
    if as_json:
        asked = {"instruction": instruction.name, "operand": role, "arch": None if expected else arch}
        answer = {"correct": found.correct, "findings": [_facts(finding) for finding in found]}
        say_json("diagnose", {**asked, **answer, "tried": found.tried, "pairs": found.pairs})
    else:
        say(wrapped(found.summary + (":" if found else ""), indent=2))
        for finding in found[:SHOWN]:
            say(wrapped(f"  {finding.kind}: {finding}", indent=4))
        if len(found) > SHOWN:
            say(f"  and {len(found) - SHOWN} more (--json shows all)")
    return DONE if found or found.correct else NO


def _of_operand(
    instruction: Instruction,
    role: str,
    matrix: str,
    file: str,
    *,
    rounding: Rounding,
    by: str | None,
    warp: int | None,
) -> Diagnosis:
    from warpfrag.codes import from_codes
    from warpfrag.diagnose import diagnose

    operand = _operand(instruction, role)
    codes = codes_of(read_source(matrix), operand.format, operand.shape, rounding=rounding)
    return diagnose(operand, _observed(instruction, role, file, by, warp), from_codes(operand.format, codes))


def _of_product(
    instruction: Instruction, matrices: dict[str, NDArray[Any]], observed: NDArray[Any], selector: int | None, arch: str
) -> Diagnosis:
    from warpfrag.diagnose import diagnose

    scales = {role: matrices[role] for role in ("scale_a", "scale_b") if role in matrices}
    return diagnose(
        instruction,
        observed,
        matrices["a"],
        matrices["b"],
        matrices.get("c"),
        selector=selector or 0,
        scale_a=scales.get("scale_a"),
        scale_b=scales.get("scale_b"),
        arch=arch,
    )


def _operand(instruction: Instruction, role: str) -> Operand:
    operand = instruction.operands.get(role)
    if not isinstance(operand, Operand):
        msg = f"{instruction.name} has no operand {role}: it has {', '.join(instruction.operands)}"
        raise InvalidOperand(msg)
    return operand


def _matrix(instruction: Instruction, role: str, path: str, rounding: Rounding) -> NDArray[Any]:
    """A matrix that should have gone in; of a sparse instruction the full A."""
    from warpfrag.codes import from_codes

    operand = instruction.operands.get(role)
    if operand is None:
        msg = f"{instruction.name} takes no {role}"
        raise click.BadParameter(msg, param_hint=f"--{role.replace('_', '-')}")
    is_sparse = role == "a" and instruction.pattern is not None
    shape = (instruction.shape.m, instruction.shape.k) if is_sparse else operand.shape
    codes = codes_of(read_source(path), operand.format, shape, rounding=rounding)
    return from_codes(operand.format, codes)


def _observed(instruction: Instruction, role: str, file: str, by: str | None, warp: int | None) -> NDArray[Any]:
    """What came out: an array, or a dump."""
    import numpy as np

    source = read_source(file)
    if source.is_array:
        return source.array()
    return np.array(one_warp(parse_warps(source.text(), dump_of(_operand(instruction, role), by)), warp), np.uint32)


def _facts(finding: Finding) -> dict[str, object]:
    """A finding as JSON has it."""
    second = None if finding.second is None else _facts(finding.second)
    return {"kind": finding.kind, "operand": finding.operand, "text": finding.text, "second": second}
