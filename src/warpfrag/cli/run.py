"""`warpfrag run`: execute one instruction, and show how one output came about."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.command import choice_options, instruction_argument, json_option, verb
from warpfrag.cli.output import heading, say, say_json, say_table, wrapped
from warpfrag.registry import get

if TYPE_CHECKING:
    from warpfrag.instruction import Instruction


@verb(
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32                     # random operands; the seed is shown",
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32 --seed 7 --trace 3 5   # why D[3, 5] is what it is",
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy --registers 0,5-7",
    "warpfrag run mma.m16n8k32.f32.e4m3.e4m3.f32 --arch sm_89",
)
@instruction_argument
@click.option(
    "--a", metavar="FILE", help="A as .npy: a matrix (sparse: full and thinned), or registers uint32 (32, words)."
)
@click.option("--b", metavar="FILE", help="B, likewise.")
@click.option("--c", metavar="FILE", help="C, likewise.")
@click.option("--scale-a", metavar="FILE", help="Scale factors of A as .npy.")
@click.option("--scale-b", metavar="FILE", help="Scale factors of B as .npy.")
@click.option("--arch", default="sm_90", show_default=True, help="Whose arithmetic.")
@click.option("--seed", type=int, help="Seed of the operands that are not given.")
@click.option("--registers", metavar="LANES", help="Show the register words of lanes, such as 0,5-7 or all.")
@click.option("--trace", nargs=2, type=int, metavar="ROW COL", help="Show each step of one output.")
@choice_options("mma")
@json_option
def command(
    name: str,
    arch: str,
    seed: int | None,
    registers: str | None,
    trace: tuple[int, int] | None,
    mma: int | None,
    *,
    as_json: bool,
    **files: str | None,
) -> None:
    """Execute one instruction bit for bit on an architecture: random operands, unless files are given."""
    from warpfrag.cli.operands import operands
    from warpfrag.execute import arithmetic_arch
    from warpfrag.instruction import instruction_of

    instruction = get(name)
    if instruction.arch:  # wmma: the fragments of the GPU that runs it
        instruction = instruction_of(instruction.form, arithmetic_arch(instruction.form, arch))
    if mma is not None and not (trace and instruction.form.is_quad):
        msg = "--mma goes with --trace, and with m8n8k4 of f16, which computes four products"
        raise click.UsageError(msg)
    seed, codes = operands(instruction, files, seed, arch)
    scales = {role: codes[role] for role in ("scale_a", "scale_b") if role in codes}
    result = instruction(codes["a"], codes["b"], codes["c"], **scales, arch=arch, raw=True)
    known = instruction.evidence(arch)
    lanes = _lanes(registers) if registers else []
    words = _words(instruction, codes, result) if lanes else {}
    steps = _trace(instruction, arch, codes, trace, mma or 0) if trace else []
    if as_json:
        answer = {
            "instruction": instruction.name, "arch": arch, "seed": seed, "evidence": asdict(known),
            "operands": {role: matrix.tolist() for role, matrix in codes.items()}, "d": result.tolist(),
            "registers": {role: {lane: array[lane].tolist() for lane in lanes} for role, array in words.items()},
            "trace": [_step_json(step) for step in steps],
        }  # fmt: skip
        say_json("run", answer)
        return
    heading(f"{instruction.name} on {arch}")
    say(f"operands: {'from files' if seed is None else f'seed {seed}'}")
    say(wrapped(f"evidence: {known.level} ({known.detail}); {known.machine}", indent=10))
    _say_result(instruction, result)
    for role, array in words.items():
        say(f"\nregisters of {role}")
        header = ["lane", *(f"word {number}" for number in range(array.shape[-1]))]
        say_table(header, [[lane, *(f"{word:08x}" for word in array[lane])] for lane in lanes])
    for number, step in enumerate(steps):
        _say_step(number, len(steps), step)


def _lanes(text: str) -> list[int]:
    """Lanes named as 0,5-7 or all."""
    if text == "all":
        return list(range(32))
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if ends is None or not int(ends[1]) <= int(ends[2] or ends[1]) <= 31:
            msg = f"lanes are numbers 0..31, such as 0,5-7, or all; got {text!r}"
            raise click.BadParameter(msg, param_hint="--registers")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return found


def _words(instruction: Instruction, codes: dict[str, Any], result: Any) -> dict[str, Any]:  # noqa: ANN401 (arrays)
    """The registers of every operand and of D."""
    matrices = {**{role: codes[role] for role in "abc"}, "d": result}
    words = {}
    if instruction.pattern is not None:
        matrices["a"], fields = instruction.compress(codes["a"], raw=True)
        words["metadata"] = instruction.metadata.pack(fields, selector=0)[:, None]
    words |= {role: getattr(instruction, role).pack(matrix, raw=True) for role, matrix in matrices.items()}
    return words | {
        role: getattr(instruction, role).pack(codes[role], raw=True)[:, None]
        for role in ("scale_a", "scale_b")
        if role in codes
    }


def _say_result(instruction: Instruction, result: Any) -> None:  # noqa: ANN401 (an array of codes)
    """D as values, one line per row."""
    decode = instruction.d.format.decode
    tiles = result if result.ndim > 2 else result[None]
    for number, tile in enumerate(tiles):
        say("\nD" if len(tiles) == 1 else f"\nD of product {number}")
        cells = [[_number(decode(int(code))) for code in row] for row in tile]
        width = max(len(cell) for row in cells for cell in row)
        for row in cells:
            say("  " + " ".join(cell.rjust(width) for cell in row))


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.7g}"


def _trace(instruction: Instruction, arch: str, codes: dict[str, Any], output: tuple[int, int], mma: int) -> list[Any]:
    """The steps of one output."""
    from warpfrag.arithmetic import plan, trace
    from warpfrag.execute import arithmetic_arch
    from warpfrag.layout import check_index
    from warpfrag.sparsity import logical_columns

    row, col = output
    check_index("ROW", row, instruction.shape.m)
    check_index("COL", col, instruction.shape.n)
    a, b, c = codes["a"], codes["b"], codes["c"]
    if instruction.form.is_quad:
        check_index("mma", mma, len(a))
        a, b, c = a[mma], b[mma], c[mma]
    options: dict[str, Any] = {}
    if instruction.pattern is not None:
        a, fields = instruction.compress(a, raw=True)
        options["columns"] = logical_columns(instruction.pattern, fields, ordered=True)[row]
    if "scale_a" in codes:
        options |= {"scale_a": codes["scale_a"][row], "scale_b": codes["scale_b"][:, col]}
    steps = plan(instruction.form, arithmetic_arch(instruction.form, arch))
    found = trace(steps, a[row], b[:, col], int(c[row, col]), **options)
    return [_by_column(step, options["columns"]) for step in found] if "columns" in options else found


def _by_column(step: Any, columns: Any) -> Any:  # noqa: ANN401 (a TraceStep, an array)
    """A step of a sparse instruction, its terms named by logical column instead of stored element."""
    terms = [
        replace(term, name=f"k={columns[int(term.name[2:])]}") if term.name.startswith("k=") else term
        for term in step.terms
    ]
    return replace(step, terms=tuple(terms))


def _say_step(number: int, count: int, step: Any) -> None:  # noqa: ANN401 (a TraceStep)
    """One step: what went in, what was cut off, what came out."""
    from warpfrag.formats import FORMATS

    say()
    heading(f"step {number + 1} of {count}: {step.rule}")
    aligned = step.common_exponent is not None
    header = ["term", "value", *(["exponent", "kept", "cut off"] if aligned else [])]
    rows = []
    for term in step.terms:
        value = "special" if term.value is None else _number(float(term.value))
        exponent = "-" if term.exponent is None else str(term.exponent)
        rows.append([term.name, value, *([exponent, term.kept, _number(float(term.lost))] if aligned else [])])
    say_table(header, rows)
    if aligned:
        say(f"common exponent {step.common_exponent}; kept in units of 2^{step.common_exponent - step.fraction_bits}")
        say(f"sum {step.total}")
    result = FORMATS[step.result_format].decode(step.result)
    digits = -(-FORMATS[step.result_format].bits // 4)
    say(f"{step.rounding or 'exact'} -> {step.result_format} {step.result:#0{digits + 2}x} = {_number(result)}")


def _step_json(step: Any) -> dict[str, Any]:  # noqa: ANN401 (a TraceStep)
    """A step with its fractions as text."""
    terms = [
        {
            "name": term.name, "value": None if term.value is None else str(term.value), "exponent": term.exponent,
            "kept": term.kept, "lost": str(term.lost),
        }
        for term in step.terms
    ]  # fmt: skip
    names = ("rule", "common_exponent", "fraction_bits", "total", "rounding", "result_format", "result")
    return {"terms": terms, **{name: getattr(step, name) for name in names}}
