"""`warpfrag run`: execute one instruction, and show how one output came about."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from warpfrag.cli.support.matrix_files import code_text, codes_of, read_source, short_text, value_text
from warpfrag.cli.support.options import (
    choice_options,
    complete_target,
    file_option,
    instruction_argument,
    integer,
    json_option,
    read_order,
    target,
)
from warpfrag.cli.support.output import echo, print_heading, print_json, print_table, shape_text, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.tensorcore.operand import Scale
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.blas.order import Order
    from warpfrag.formats.number_formats import Format, Rounding
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.tracing import TraceStep

Source = Literal["file", "random", "zero"]
Codes = dict[str, "NDArray[Any]"]

MAX_UNLIKE = 16  # elements that are listed side by side
ROUNDINGS = {
    "RZ-FP32": "cut toward zero to f32",
    "RZ-E8M13": "cut toward zero to 13 fraction bits",
    "RNE-FP16": "rounded to nearest f16",
}


@verb(
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32                     # random operands; the seed is shown",
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32 --seed 7 --trace 3 5   # why D[3, 5] is what it is",
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy --registers 0,5-7",
    "warpfrag run mma.m16n8k32.f32.e4m3.e4m3.f32 --arch sm_89",
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32 --arch sm_80 sm_90 --seed 1     # side by side",
    "warpfrag run mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy --order split_k=3,unit=64 --trace 3 5   # any M N K",
)
@instruction_argument
@click.argument("more", nargs=-1, metavar="[SM]...", type=target, shell_complete=complete_target)
@file_option(
    "--a",
    help_text="A: a matrix (sparse: full and pruned) as text or .npy, or registers as .npy, uint32 (32, words).",
)
@file_option("--b", help_text="B, likewise.")
@file_option("--c", help_text="C, likewise; zero if only other files are given.")
@file_option("--scale-a", help_text="Scale factors of A, likewise.")
@file_option("--scale-b", help_text="Scale factors of B, likewise.")
@click.option(
    "--rounding", type=click.Choice(["rne"]), help="Round values that are not exact: to nearest, ties to even."
)
@click.option(
    "--arch", "archs", multiple=True, metavar="SM...", type=target, shell_complete=complete_target,
    help="The architecture whose arithmetic is used; default: sm_90. Results of several are printed side by side.",
)  # fmt: skip
@click.option("--seed", type=integer(low=0), help="Seed of the random operands.")
@click.option("--registers", metavar="LANES", help="Show the register words of lanes, such as 0,5-7 or all.")
@click.option("--trace", nargs=2, type=integer(), metavar="ROW COL", help="Show each step of one output.")
@click.option(
    "--order",
    metavar="FIELDS",
    type=read_order,
    help="Order of additions of a product larger than the instruction, such as split_k=3,unit=64.",
)
@choice_options("mma")
@json_option
def command(
    *,
    name: str,
    more: tuple[str, ...],
    order: Order | None,
    rounding: Rounding,
    archs: tuple[str, ...],
    seed: int | None,
    registers: str | None,
    trace: tuple[int, int] | None,
    mma: int | None,
    as_json: bool,
    **files: str | None,
) -> None:
    """Execute one instruction bit for bit on an architecture: random operands, unless files are given.

    A file of text has numbers separated by spaces or commas, a line per row. Values must be exact in the format of the
    operand, unless --rounding. If A and B have other extents, the product of a kernel built from the
    instruction is computed, and --trace prints a line for each instruction of an output.
    """
    from warpfrag.isa.legality import arithmetic_arch
    from warpfrag.tensorcore.instruction_types import instruction_of

    arch, *others = dict.fromkeys((*archs, *more) or ("sm_90",))
    instruction = get(name)
    if instruction.arch:  # wmma: the fragments of the GPU that runs it
        instruction = instruction_of(instruction.form, arithmetic_arch(instruction.form, arch))
    if mma is not None and not (trace and len(instruction.d.shape) > 2):
        msg = "--mma goes with --trace, and with m8n8k4 of f16, which computes four products"
        raise click.UsageError(msg)
    lanes = _lanes(registers) if registers else []
    if (whole := _whole_product(instruction, files)) is not None:
        if others:
            msg = (
                f"a product larger than the instruction takes one --arch, got {', '.join((arch, *others))}: see explain"
            )
            raise click.UsageError(msg)
        _run_product(instruction, *whole, order, trace, arch=arch, rounding=rounding, as_json=as_json)
        return
    if order is not None:
        msg = "--order goes with --a and --b of a product that is larger than the instruction"
        raise click.UsageError(msg)
    operands = _operands(instruction, files, seed, arch, rounding=rounding)
    codes = operands.codes
    scale_a, scale_b = codes.get("scale_a"), codes.get("scale_b")
    for other in others:
        arithmetic_arch(instruction.form, other)  # refuse what cannot run there
    results = {
        each: instruction(codes["a"], codes["b"], codes["c"], scale_a=scale_a, scale_b=scale_b, arch=each, raw=True)
        for each in (arch, *others)
    }
    words = _words(instruction, codes, results[arch]) if lanes else {}
    registers_of_lanes = {role: {lane: array[lane] for lane in lanes} for role, array in words.items()}
    steps = {each: _trace(instruction, each, codes, trace, mma or 0) if trace else [] for each in results}
    (_print_as_json if as_json else _print_as_text)(instruction, operands, results, registers_of_lanes, steps)


Steps = dict[str, list["TraceStep"]]
Registers = dict[str, dict[int, "NDArray[Any]"]]


def _print_as_json(
    instruction: Instruction, operands: RunOperands, results: Codes, registers: Registers, steps: Steps
) -> None:
    """The answer; further architectures are `others`."""
    parts = [
        {
            "arch": arch,
            "evidence": asdict(instruction.evidence(arch)),
            "d": result.tolist(),
            "trace": [_step_json(step) for step in steps[arch]],
        }
        for arch, result in results.items()
    ]
    answer = {
        "instruction": instruction.name,
        "seed": operands.seed,
        "sources": operands.sources,
        "operands": {role: matrix.tolist() for role, matrix in operands.codes.items()},
        "registers": {role: {lane: w.tolist() for lane, w in lanes.items()} for role, lanes in registers.items()},
        **parts[0],
    }
    print_json("run", answer | ({"others": parts[1:]} if len(parts) > 1 else {}))


def _print_as_text(
    instruction: Instruction, operands: RunOperands, results: Codes, registers: Registers, steps: Steps
) -> None:
    """The result, or the results of several architectures side by side; then registers and steps."""
    is_several = len(results) > 1
    print_heading(f"{instruction.name} on {', '.join(results)}")
    echo(f"operands: {operands.described}")
    for arch in results:
        known = instruction.evidence(arch)
        of = f" of {arch}" if is_several else ""
        echo(wrapped(f"evidence{of}: {known.level} ({known.detail}); {known.machine}", indent=10))
    if is_several:
        _print_side_by_side(instruction, results)
    else:
        _print_result(instruction, *results.values())
    for role, lanes in registers.items():
        echo(f"\nregisters of {role}")
        header = ["lane", *(f"word {number}" for number in range(len(next(iter(lanes.values())))))]
        print_table(header, [[lane, *(f"{word:08x}" for word in words)] for lane, words in lanes.items()])
    for arch, traced in steps.items():
        if is_several and traced:
            echo(f"\n{arch}")
        for number, step in enumerate(traced):
            _print_step(number, len(traced), step)


def _whole_product(
    instruction: Instruction, files: Mapping[str, str | None]
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """A and B where they are matrices of a product with other extents than the instruction's."""
    a, b = files["a"], files["b"]
    if a is None or b is None or any(files[role] is not None for role in ("c", "scale_a", "scale_b")):
        return None
    sources = [read_source(path) for path in (a, b)]
    if not all(source.is_array for source in sources):
        return None
    A, B = (source.array() for source in sources)
    shape = instruction.shape
    is_product = A.ndim == B.ndim == 2 and A.shape[1] == B.shape[0]
    return (A, B) if is_product and (*A.shape, B.shape[1]) != (shape.m, shape.k, shape.n) else None


def _run_product(
    instruction: Instruction,
    A: NDArray[Any],
    B: NDArray[Any],
    order: Order | None,
    output: tuple[int, int] | None,
    *,
    arch: str,
    rounding: Rounding,
    as_json: bool,
) -> None:
    """A whole product, and every instruction of one of its outputs."""
    from warpfrag.blas.gemm import ASCENDING, gemm
    from warpfrag.blas.gemm_trace import trace_output

    order = order or ASCENDING
    D = gemm(A, B, instruction=instruction.name, arch=arch, order=order, rounding=rounding)
    steps = []
    if output is not None:
        steps = trace_output(A, B, *output, instruction=instruction.name, arch=arch, order=order, rounding=rounding)
    shape = [A.shape[0], B.shape[1], A.shape[1]]
    if as_json:
        listed = [{**asdict(step), "value": step.value, "text": step.text} for step in steps]
        facts = {"instruction": instruction.name, "arch": arch, "shape": shape, "order": asdict(order)}
        print_json("run", {**facts, "d": D.tolist(), "trace": listed})
        return
    print_heading(f"{instruction.name} on {arch}: {shape_text(shape)}")
    echo(wrapped(order.describe(A.shape[1])))
    if output is None:
        echo(f"D is {D.dtype} of {shape_text(D.shape)}; --trace ROW COL shows an output")
        return
    echo(f"D[{output[0]}, {output[1]}] in {len(steps)} steps")
    print_table(
        ["step", "what", "code", "sum"],
        [[number, step.text, f"0x{step.code:x}", f"{step.value:.9g}"] for number, step in enumerate(steps, start=1)],
    )


@frozen_dataclass
class RunOperands:
    """Codes of every matrix the instruction takes, where each comes from, and the seed; None if nothing is random."""

    codes: Codes
    sources: dict[str, Source]
    seed: int | None

    @property
    def described(self) -> str:
        """Where the operands come from, such as `a from files; b random, seed 7; c zero`."""
        words = {"file": "from files", "random": f"random, seed {self.seed}", "zero": "zero"}
        roles = {source: [role for role, origin in self.sources.items() if origin == source] for source in words}
        return "; ".join(f"{', '.join(roles[source])} {text}" for source, text in words.items() if roles[source])


def _operands(
    instruction: Instruction, files: Mapping[str, str | None], seed: int | None, arch: str, *, rounding: Rounding
) -> RunOperands:
    """Operands from files. What no file gives is random, but a C beside files is zero, as in `execute`."""
    import numpy as np

    from warpfrag.formats.codes import code_dtype
    from warpfrag.isa.legality import arithmetic_arch
    from warpfrag.tensorcore.random_operands import random_matrix

    arithmetic_arch(instruction.form, arch)  # refuse what cannot run before operands are made
    roles = [role for role in ("a", "b", "c", "scale_a", "scale_b") if getattr(instruction, role) is not None]
    paths = {role: path for role, path in files.items() if path is not None}
    for role in paths:
        if role not in roles:
            msg = f"{instruction.name} takes no {role}"
            raise click.BadParameter(msg, param_hint=f"--{role.replace('_', '-')}")
    sources: dict[str, Source] = {
        role: "file" if role in paths else "zero" if paths and role == "c" else "random" for role in roles
    }
    if "random" not in sources.values():
        seed = None
    elif seed is None:
        seed = int(np.random.default_rng().integers(1 << 31))
    random = np.random.default_rng(seed)
    codes = {role: random_matrix(instruction, role, random) for role in roles}  # all: a file changes no other operand
    codes |= {role: _read(instruction, role, path, rounding) for role, path in paths.items()}
    if sources["c"] == "zero":
        codes["c"] = np.zeros(instruction.c.shape, code_dtype(instruction.c.format))
    return RunOperands(codes, sources, seed)


def _read(instruction: Instruction, role: str, path: str, rounding: Rounding) -> NDArray[Any]:
    """Codes of a matrix, or of registers in a .npy."""
    operand = getattr(instruction, role)
    is_sparse = role == "a" and instruction.pattern is not None
    shape = (instruction.shape.m, instruction.shape.k) if is_sparse else operand.shape
    source = read_source(path)
    array = source.array() if source.is_array else None
    if array is None or array.shape == shape:
        codes = codes_of(source, operand.format, shape, rounding=rounding)
        if is_sparse:
            instruction.compress(codes, raw=True)  # refuses an A that is not sparse
        return codes
    registers = (32, operand.words)
    if array.shape == registers and is_sparse:
        full = f"{instruction.shape.m} x {instruction.shape.k}"
        msg = f"{source.name}: registers of a sparse A mean nothing without their metadata: give the full A, {full}"
        raise InvalidOperand(msg)
    if array.shape != registers or array.dtype != "uint32":
        accepted = f"a matrix of shape {shape}" + ("" if is_sparse else f" or registers, uint32 of shape {registers}")
        msg = f"{source.name}: expected {accepted}, got {array.dtype} of shape {array.shape}"
        raise InvalidOperand(msg)
    unpacked: NDArray[Any] = operand.unpack(array[:, 0] if isinstance(operand, Scale) else array, raw=True)
    return unpacked


def _lanes(text: str) -> list[int]:
    """Lanes named as 0,5-7 or all."""
    if text == "all":
        return list(range(32))
    lanes: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip(), re.ASCII)
        if ends is None or not int(ends[1]) <= int(ends[2] or ends[1]) <= 31:
            msg = f"lanes are numbers 0..31, such as 0,5-7, or all; got {quote(text)}"
            raise click.BadParameter(msg, param_hint="--registers")
        lanes += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return lanes


def _words(instruction: Instruction, codes: Codes, result: NDArray[Any]) -> dict[str, NDArray[np.uint32]]:
    """The registers of every operand and of D."""
    matrices = {**{role: codes[role] for role in "abc"}, "d": result}
    words: dict[str, NDArray[np.uint32]] = {}
    if instruction.pattern is not None:
        matrices["a"], fields = instruction.compress(codes["a"], raw=True)
        words["metadata"] = instruction.metadata.pack(fields, selector=0)[:, None]
    words |= {role: getattr(instruction, role).pack(matrix, raw=True) for role, matrix in matrices.items()}
    return words | {
        role: getattr(instruction, role).pack(codes[role], raw=True)[:, None]
        for role in ("scale_a", "scale_b")
        if role in codes
    }


def _print_result(instruction: Instruction, result: NDArray[Any]) -> None:
    """D as values, one line per row."""
    write = _writer(instruction.d.format)
    tiles = result if result.ndim > 2 else result[None]
    for number, tile in enumerate(tiles):
        echo("\nD" if len(tiles) == 1 else f"\nD of product {number}")
        cells = [[write(int(code)) for code in row] for row in tile]
        width = max(len(cell) for row in cells for cell in row)
        for row in cells:
            echo("  " + " ".join(cell.rjust(width) for cell in row))


def _print_side_by_side(instruction: Instruction, results: Mapping[str, NDArray[Any]]) -> None:
    """The elements of D in which architectures differ, a column for each of them."""
    import numpy as np

    write = _writer(instruction.d.format)
    first, *rest = results.values()
    unlike = np.argwhere(np.any([codes != first for codes in rest], axis=0))
    echo(f"\n{len(unlike)} of {first.size} elements of D differ" + (":" if len(unlike) else ""))
    if not len(unlike):
        _print_result(instruction, first)
        return
    rows = [
        [f"D[{', '.join(map(str, place))}]", *(write(int(codes[tuple(place)])) for codes in results.values())]
        for place in unlike[:MAX_UNLIKE].tolist()
    ]
    print_table(["", *results], rows)
    if len(unlike) > MAX_UNLIKE:
        echo(f"and {len(unlike) - MAX_UNLIKE} more (--json has all)")


def _writer(number_format: Format) -> Callable[[int], str]:
    """A writer of codes as values, with the fewest digits that tell the values of the format apart."""
    import numpy as np

    from warpfrag.formats.codes import natural_dtype

    shortest = short_text(natural_dtype(number_format))

    def write(code: int) -> str:
        with np.errstate(over="ignore"):  # a few digits of a large value may lie beyond the largest one
            return shortest(number_format.decode(code))

    return write


def _exact_text(value: Fraction | float) -> str:
    """An exact value with the digits of a float64, also where none holds it: a product of f64 can be that large."""
    from decimal import Decimal

    try:
        number = float(value)
    except OverflowError:
        number = 0.0
    if number or not value:
        return value_text(number)
    numerator, denominator = value.as_integer_ratio()
    return f"{Decimal(numerator) / Decimal(denominator):.17g}"


def _trace(instruction: Instruction, arch: str, codes: Codes, output: tuple[int, int], mma: int) -> list[TraceStep]:
    """The steps of one output."""
    from warpfrag.isa.legality import arithmetic_arch
    from warpfrag.layout.coordinates import check_index
    from warpfrag.tensorcore.arithmetic import plan, trace
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
    """A step of a sparse instruction, its terms named by logical column instead of stored element."""
    terms = [
        replace(term, name=f"k={columns[int(term.name[2:])]}") if term.name.startswith("k=") else term
        for term in step.terms
    ]
    return replace(step, terms=tuple(terms))


def _print_step(number: int, count: int, step: TraceStep) -> None:
    """One step: what went in, what was cut off, what came out."""
    from warpfrag.formats.number_formats import FORMATS

    echo()
    print_heading(f"step {number + 1} of {count}: {step.rule}")
    aligned = step.common_exponent is not None
    header = ["term", "value", *(["exponent", "kept", "cut off"] if aligned else [])]
    rows: list[list[object]] = []
    for term in step.terms:
        exponent = "-" if term.exponent is None else str(term.exponent)
        cut = [exponent, term.kept, _exact_text(term.lost)] if aligned else []
        rows.append([term.name, _exact_text(term.value), *cut])
    if rows:
        print_table(header, rows)
    if step.common_exponent is not None and step.fraction_bits is not None:
        echo(f"common exponent {step.common_exponent}; kept in units of 2^{step.common_exponent - step.fraction_bits}")
        echo(f"sum {step.total}")
    row = FORMATS[step.result_format]
    how = step.special or ROUNDINGS.get(step.rounding, step.rounding)
    echo(f"{how} -> {row} {code_text(step.result, row)} = {_writer(row)(step.result)}")
    if step.exact_sum is not None and step.nearest is not None:
        distance, result, nearest = step.ulps_above_nearest or 0, row.decode(step.result), row.decode(step.nearest)
        shares_sign = result * nearest > 0  # across zero, ulps count every exponent down to it
        side = f"{abs(distance)} ulp" if shares_sign else _exact_text(abs(result - nearest))
        verdict = f"this is {side} {'above' if distance > 0 else 'below'} it" if distance else "the same"
        about = (
            "" if float(step.exact_sum) == step.exact_sum else "about "
        )  # it may need more digits than a float64 has
        echo(f"exact sum {about}{_exact_text(step.exact_sum)}; nearest {row} {code_text(step.nearest, row)}: {verdict}")


def _step_json(step: TraceStep) -> dict[str, object]:
    """A step with its fractions as text."""
    terms = [
        {
            "name": term.name, "value": str(term.value), "exponent": term.exponent, "kept": term.kept,
            "lost": str(term.lost),
        }
        for term in step.terms
    ]  # fmt: skip
    names = (
        "rule", "common_exponent", "fraction_bits", "total", "rounding", "result_format", "result", "nearest",
        "special",
    )  # fmt: skip
    exact_sum = None if step.exact_sum is None else str(step.exact_sum)
    return {"terms": terms, **{name: getattr(step, name) for name in names}, "exact_sum": exact_sum}
