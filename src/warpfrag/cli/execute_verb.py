"""`warpfrag execute`: execute one instruction, and trace one output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from warpfrag.cli.io.arguments import Arch, File, InstructionName, RoundingName, Seed
from warpfrag.cli.io.matrix_files import code_text, matrix_lines, read_operand, short_text, value_text
from warpfrag.cli.io.output import echo, print_heading, print_table, wrapped
from warpfrag.cli.io.verbs import Answer, facts_of, verb
from warpfrag.errors import check_index
from warpfrag.formats.number_formats import FORMATS, Format, Rounding
from warpfrag.isa.instruction_table import running_target
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch, plan
from warpfrag.tensorcore.evidence import Evidence
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get, instruction_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.tensorcore.reference import TraceStep

Codes = dict[str, "NDArray[Any]"]

MAX_DIFFERENT = 16  # maximum number of elements listed side by side
ROUNDINGS = {
    "RZ-FP32": "truncated to f32",
    "RZ-E8M13": "truncated to 13 fraction bits",
    "RNE-FP16": "rounded to nearest f16",
}


class OperandFiles(NamedTuple):
    """The files of the operands.

    Options:
        a: A: a matrix as text or .npy; for a sparse instruction the full, pruned A.
        b: B, as text or .npy.
        c: C, as text or .npy; default: zero if another file is given, otherwise random.
        scale_a: Scale factors of A, as text or .npy.
        scale_b: Scale factors of B, as text or .npy.
    """

    a: File | None = None
    b: File | None = None
    c: File | None = None
    scale_a: File | None = None
    scale_b: File | None = None


class TraceFacts(NamedTuple):
    """One step of a trace. Fractions are strings, such as 3/8.

    rule: the arithmetic rule of the step
    terms: name, value, exponent, kept part in units of the last bit, and lost part
    common_exponent: exponent of the aligned terms
    fraction_bits: fraction bits kept at that exponent
    total: sum of the kept parts
    rounding: rounding of the sum
    result_format: format of the result
    result: code of the result
    nearest: the code nearest to the exact sum; null if nothing was aligned
    special: infinite or NaN terms; null if there are none
    exact_sum: sum of the terms before truncation; null if nothing was aligned
    """

    rule: str
    terms: list[dict[str, Any]]
    common_exponent: int | None
    fraction_bits: int | None
    total: int | None
    rounding: str
    result_format: str
    result: int
    nearest: int | None
    special: str | None
    exact_sum: str | None


class ArchResult(NamedTuple):
    """The result on one architecture.

    d: codes of D
    trace: with --trace: the steps of the output
    """

    arch: str
    evidence: Evidence
    d: list[Any]
    trace: list[TraceFacts]


class Execution(NamedTuple):
    """The execution of one instruction.

    instruction: canonical name
    seed: seed of random operands; null if none is random
    sources: by role: file, random or zero
    operands: codes by role
    results: by architecture
    """

    instruction: str
    seed: int | None
    sources: dict[str, str]
    operands: dict[str, list[Any]]
    results: list[ArchResult]


@verb
def execute(
    instruction: InstructionName,
    more: tuple[Arch, ...] = (),
    *,
    files: OperandFiles = OperandFiles(),  # noqa: B008 (immutable)
    rounding: RoundingName | None = None,
    arch: tuple[Arch, ...] = (),
    seed: Seed | None = None,
    trace: tuple[int, int] | None = None,
    mma: int | None = None,
) -> Answer[Execution]:
    """Execute one instruction bit for bit as an architecture does, on random operands unless files are given.

    A text file has one line per row, with numbers separated by spaces or commas. Values must be exact in the operand's
    format, unless --rounding is given. For matrices of other sizes, see `warpfrag gemm`.

    Options:
        arch (ARCH...): The architecture whose arithmetic is used; default: sm_90. Several are compared side by side.
        trace (ROW COL): Show each step of one output.
        mma: The index of one of the four matrix multiplications of m8n8k4 with f16.

    For example:
        warpfrag execute mma.m16n8k16.f32.f16.f16.f32                     # random operands; the seed is shown
        warpfrag execute mma.m16n8k16.f32.f16.f16.f32 --seed 7 --trace 3 5   # the steps of D[3, 5]
        warpfrag execute mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy
        warpfrag execute mma.m16n8k32.f32.e4m3.e4m3.f32 --arch sm_89
        warpfrag execute mma.m16n8k16.f32.f16.f16.f32 --arch sm_80 sm_90 --seed 1     # side by side
    """
    from warpfrag.tensorcore.array_types import Scaled

    archs = tuple(dict.fromkeys((*arch, *more) or ("sm_90",)))
    resolved = get(instruction)
    if resolved.arch:  # wmma fragments depend on the GPU
        resolved = instruction_of(resolved.form, arithmetic_arch(resolved.form, archs[0]))
    if mma is not None and not (trace and len(resolved.d.shape) > 2):
        raise click.UsageError("--mma needs --trace and m8n8k4 with f16, which computes four matrix multiplications")
    for each in archs:
        arithmetic_arch(resolved.form, each)  # raises an error if an architecture cannot run it
    operands = _operands(resolved, files._asdict(), seed, rounding=rounding)
    codes = operands.codes
    a, b = (Scaled(codes[role], codes[f"scale_{role}"]) if f"scale_{role}" in codes else codes[role] for role in "ab")
    results = {each: resolved(a, b, codes["c"], arch=each, raw=True) for each in archs}
    steps = {each: _trace(resolved, each, codes, trace, mma or 0) if trace else [] for each in archs}
    rows = [
        ArchResult(each, resolved.evidence(each), result.tolist(), [facts_of(TraceFacts, step) for step in steps[each]])
        for each, result in results.items()
    ]
    lists = {role: matrix.tolist() for role, matrix in codes.items()}
    facts = Execution(resolved.name, operands.seed, operands.sources, lists, rows)
    return Answer(facts, lambda: _print(resolved, operands, facts, results, steps))


class RandomOperands(NamedTuple):
    """The codes of every matrix, the source of each, and the seed (None if nothing is random)."""

    codes: Codes
    sources: dict[str, str]
    seed: int | None

    @property
    def description(self) -> str:
        """Return the sources as text, such as `a from files; b random, seed 7; c zero`."""
        words = {"file": "from files", "random": f"random, seed {self.seed}", "zero": "zero"}
        roles = {source: [role for role, origin in self.sources.items() if origin == source] for source in words}
        return "; ".join(f"{', '.join(roles[source])} {text}" for source, text in words.items() if roles[source])


def _operands(
    instruction: Instruction, files: Mapping[str, str | None], seed: int | None, *, rounding: Rounding
) -> RandomOperands:
    """Return the operands; those without a file are random, except C, which is zero if another operand has a file."""
    import numpy as np

    from warpfrag.formats.codes import code_dtype
    from warpfrag.tensorcore.random_operands import random_matrix

    roles = [role for role in files if getattr(instruction, role) is not None]
    paths = {role: path for role, path in files.items() if path is not None}
    sources = {role: "file" if role in paths else "zero" if paths and role == "c" else "random" for role in roles}
    if "random" not in sources.values():
        seed = None
    elif seed is None:
        seed = int(np.random.default_rng().integers(1 << 31))
    random = np.random.default_rng(seed)
    # Operands from files are drawn too, so that a file does not change the other random operands.
    codes = {role: random_matrix(instruction, role, random) for role in roles}
    codes |= {role: read_operand(instruction, role, path, rounding) for role, path in paths.items()}
    if "a" in paths and instruction.pattern is not None:
        instruction.compress(codes["a"], raw=True)  # raises an error if A is not pruned
    if sources["c"] == "zero":
        codes["c"] = np.zeros(instruction.c.shape, code_dtype(instruction.c.format))
    return RandomOperands(codes, sources, seed)


def _trace(instruction: Instruction, arch: str, codes: Codes, output: tuple[int, int], mma: int) -> list[TraceStep]:
    """Return the steps of one output."""
    from warpfrag.tensorcore.reference import trace
    from warpfrag.tensorcore.sparsity import logical_columns

    row, col = output
    check_index("ROW", row, instruction.shape.m)
    check_index("COL", col, instruction.shape.n)
    a, b, c = codes["a"], codes["b"], codes["c"]
    if c.ndim > 2:
        check_index("mma", mma, len(a))
        a, b, c = a[mma], b[mma], c[mma]
    columns: list[int] | None = None
    scales: dict[str, list[int]] = {}
    if instruction.pattern is not None:
        a, fields = instruction.compress(a, raw=True)
        columns = logical_columns(instruction.pattern, fields)[row].tolist()
    if "scale_a" in codes:
        scales = {"scale_a": codes["scale_a"][row].tolist(), "scale_b": codes["scale_b"][:, col].tolist()}
    rule = plan(instruction.form, arithmetic_arch(instruction.form, arch)).rule
    steps = trace(rule, a[row].tolist(), b[:, col].tolist(), int(c[row, col]), columns=columns, **scales)
    return steps if columns is None else [_by_column(step, columns) for step in steps]


def _by_column(step: TraceStep, columns: list[int]) -> TraceStep:
    """Return a step of a sparse instruction with terms labelled by logical column."""
    terms = [
        replace(term, name=f"k={columns[int(term.name[2:])]}") if term.name.startswith("k=") else term
        for term in step.terms
    ]
    return replace(step, terms=tuple(terms))


def _print(
    instruction: Instruction,
    operands: RandomOperands,
    facts: Execution,
    results: Codes,
    steps: dict[str, list[TraceStep]],
) -> None:
    is_several = len(results) > 1
    print_heading(f"{instruction.name} on {', '.join(running_target(instruction.form, each) for each in results)}")
    echo(f"operands: {operands.description}")
    for result in facts.results:
        known = result.evidence
        of = f" of {result.arch}" if is_several else ""
        echo(wrapped(f"evidence{of}: {known.level} ({known.detail}); {known.machine}", indent=10))
    if is_several:
        _print_side_by_side(instruction, results)
    else:
        _print_result(instruction, *results.values())
    for arch, traced in steps.items():
        if is_several and traced:
            echo(f"\n{arch}")
        for number, step in enumerate(traced):
            _print_step(number, len(traced), step)


def _print_result(instruction: Instruction, result: NDArray[Any]) -> None:
    """Print D as values, one line per row."""
    write = _writer(instruction.d.format)
    tiles = result if result.ndim > 2 else result[None]
    for number, tile in enumerate(tiles):
        echo("\nD" if len(tiles) == 1 else f"\nD of multiplication {number}")
        for line in matrix_lines(tile, write):
            echo(f"  {line}")


def _print_side_by_side(instruction: Instruction, results: Codes) -> None:
    """Print the elements of D that differ, with a column for each architecture."""
    import numpy as np

    write = _writer(instruction.d.format)
    first, *rest = results.values()
    different = np.argwhere(np.any([codes != first for codes in rest], axis=0))
    echo(f"\n{len(different)} of {first.size} elements of D differ" + (":" if len(different) else ""))
    if not len(different):
        _print_result(instruction, first)
        return
    rows = [
        [f"D[{', '.join(map(str, index))}]", *(write(int(codes[tuple(index)])) for codes in results.values())]
        for index in different[:MAX_DIFFERENT].tolist()
    ]
    print_table(["", *results], rows)
    if len(different) > MAX_DIFFERENT:
        echo(f"and {len(different) - MAX_DIFFERENT} more (--json has all)")


def _writer(number_format: Format) -> Callable[[int], str]:
    """Return a function that formats codes as values with the fewest digits that identify them."""
    import numpy as np

    from warpfrag.formats.codes import natural_dtype

    shortest = short_text(natural_dtype(number_format))

    def write(code: int) -> str:
        with np.errstate(over="ignore"):  # after rounding to a few digits, a large value may overflow
            return shortest(number_format.decode(code))

    return write


def _exact_text(value: Fraction | float) -> str:
    """Return an exact value as text with float64 precision, even if it exceeds the float64 range."""
    from decimal import Decimal

    try:
        number = float(value)
    except OverflowError:
        number = 0.0
    if number or not value:
        return value_text(number)
    numerator, denominator = value.as_integer_ratio()
    return f"{Decimal(numerator) / Decimal(denominator):.17g}"


def _print_step(number: int, count: int, step: TraceStep) -> None:
    """Print the terms, the lost parts and the result of one step."""
    echo()
    print_heading(f"step {number + 1} of {count}: {step.rule}")
    aligned = step.common_exponent is not None
    rows: list[list[object]] = []
    for term in step.terms:
        exponent = "-" if term.exponent is None else str(term.exponent)
        cut = [exponent, term.kept, _exact_text(term.lost)] if aligned else []
        rows.append([term.name, _exact_text(term.value), *cut])
    if rows:
        print_table(["term", "value", *["exponent", "kept", "cut off"] * aligned], rows)
    if step.common_exponent is not None and step.fraction_bits is not None:
        echo(f"common exponent {step.common_exponent}; kept in units of 2^{step.common_exponent - step.fraction_bits}")
        echo(f"sum {step.total}")
    result_format = FORMATS[step.result_format]
    rounded = step.special or ROUNDINGS.get(step.rounding, step.rounding)
    value = _writer(result_format)(step.result)
    echo(f"{rounded} -> {result_format} {code_text(step.result, result_format)} = {value}")
    if step.exact_sum is not None and step.nearest is not None:
        result, nearest = result_format.decode(step.result), result_format.decode(step.nearest)
        distance = step.ulps_above_nearest or 0
        shares_sign = result * nearest > 0  # across zero, the distance in ulps would be huge
        side = f"{abs(distance)} ulp" if shares_sign else _exact_text(abs(result - nearest))
        verdict = f"this is {side} {'above' if distance > 0 else 'below'} it" if distance else "the same"
        about = "" if float(step.exact_sum) == step.exact_sum else "about "  # float64 may not have enough digits
        code = code_text(step.nearest, result_format)
        echo(f"exact sum {about}{_exact_text(step.exact_sum)}; nearest {result_format} {code}: {verdict}")
