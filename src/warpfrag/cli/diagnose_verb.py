"""`warpfrag diagnose`: find the mistake that explains a wrong D, or wrong registers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import click
import numpy as np

from warpfrag.cli.descriptor_verb import read_word
from warpfrag.cli.io.arguments import File, InstructionName, NamedArch, Natural, RoundingName
from warpfrag.cli.io.kernel_arguments import Arrays, read_argument
from warpfrag.cli.io.matrix_files import MAX_ARRAY_BYTES, read_codes, read_source, read_text_matrix
from warpfrag.cli.io.output import DONE, INCOMPLETE, NO, echo, echo_wrapped, wrapped
from warpfrag.cli.io.register_dumps import read_registers
from warpfrag.cli.io.result_files import Arrangement, read_input, read_result
from warpfrag.cli.io.verbs import Answer, Param, facts_of, integer, verb
from warpfrag.cli.ptx_verb import Extent, chosen_kernel, read_module
from warpfrag.diagnosis.diagnose import Agreement, DiagnoseOptions, Diagnosis, Finding, left_words
from warpfrag.diagnosis.diagnose import diagnose as find_mistakes
from warpfrag.diagnosis.kernel_operands import ExecutedMma, MmaOperand, OperandComparison, is_mma
from warpfrag.diagnosis.observation import Printed, observe, read_decimals
from warpfrag.errors import FileError, InvalidOperand
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import from_codes, natural_dtype
from warpfrag.formats.number_formats import Rounding
from warpfrag.isa.immediates import SELECTED_BY, Immediates
from warpfrag.machine.interpreter.kernel_findings import KernelFinding
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand, OperandBase
from warpfrag.tensorcore.registry import get, instruction_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx import Kernel

DATA = (".npy", ".npz", ".txt", ".csv")
EXAMPLE = "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 A.npy B.npy dump.txt"
MAX_MMAS = 4  # number of mma instructions printed as text
MAX_LINES = 2  # number of source lines of loads or stores that are named
MAX_EXPLANATIONS = 3  # number of explanations of a kernel's D
MAX_FINDINGS = 12  # number of findings printed as text; JSON has all

Pair = tuple[Natural, Natural]


class DiagnosisFacts(NamedTuple):
    """The mistakes that explain a result.

    instruction: canonical name
    operand: the operand in the registers: d, or that of --expect
    arch: the architecture whose arithmetic is used; null if nothing was computed
    correct: true if nothing is wrong and all bits are right
    findings: most likely first
    tried: number of mistakes tried, by category
    agreement: the correct elements; null with --expect, or if all are correct
    notes: hints: the precision of the comparison, the architecture, how to tell findings apart
    """

    instruction: str
    operand: str
    arch: str | None
    correct: bool
    findings: list[Finding]
    tried: dict[str, int]
    agreement: Agreement | None
    notes: list[str]


class Inputs(NamedTuple):
    """The intended inputs.

    Options:
        a: The A you intended: a matrix as text or .npy (sparse: full and pruned).
        b: The B you intended.
        c: The C you intended; default: zero.
        metadata: Metadata words of all lanes, as a dump or .npy, uint32 (32,); default: made from A.
        scale_a: Scale factors of A: a matrix, or the words of all lanes as .npy, uint32 (32,).
        scale_b: Scale factors of B, in the same form.
    """

    a: File | None = None
    b: File | None = None
    c: File | None = None
    metadata: File | None = None
    scale_a: File | None = None
    scale_b: File | None = None


class Warpgroup(NamedTuple):
    """The operands of wgmma.

    Options:
        descriptor_a (WORD): wgmma: A is in shared memory, read with this descriptor.
        descriptor_b (WORD): wgmma: the descriptor of B; default: a tile without gaps.
        trans: wgmma: an operand that is MN-major in shared memory.
        negate: wgmma: an operand that should be negated.
        scale_d (0|1): wgmma: 0 if C should not be read.
    """

    descriptor_a: str | None = None
    descriptor_b: str | None = None
    trans: tuple[Literal["a", "b"], ...] = ()
    negate: tuple[Literal["a", "b"], ...] = ()
    scale_d: Annotated[int, Param("0|1", integer(0, 1))] = 1


class IntendedImmediates(NamedTuple):
    """The intended immediates.

    Options:
        selector: The intended sparsity selector.
        byte_id (A B): The intended byte ids of the scale factors.
        thread_id (A B): The intended thread ids of the scale factors.
    """

    selector: int = 0
    byte_id: Pair = (0, 0)
    thread_id: Pair = (0, 0)


class DiagnosedLaunch(NamedTuple):
    """The launch of a kernel whose mma instructions are diagnosed.

    Options:
        entry (NAME): kernel: its name; needed only if the file has several kernels.
        grid: kernel: number of blocks; default: 1.
        block: kernel: threads per block; default: the kernel's .reqntid, or 32.
        arg (ARG): kernel: an argument, as for `warpfrag ptx run`; default: A, B and a D of zeros.
        shared (BYTES): kernel: dynamic shared memory.
    """

    entry: str | None = None
    grid: Extent | None = None
    block: Extent | None = None
    arg: tuple[str, ...] = ()
    shared: Annotated[int, Param("BYTES", integer(0))] = 0


class KernelDiagnosis(NamedTuple):
    """The mma instructions that a kernel executes, compared with A and B, the arguments and earlier results.

    entry: the kernel
    correct: true if every A and B and the stored D were compared and no mistake was found
    executed: number of executed mma instructions that were compared, counted once per warp
    complete: false if the kernel executes more than were compared
    not_compared: number of A and B operands that the kernel computes and that could not be compared
    c_compared: number of C operands that were compared: zeros, tiles of arguments, or earlier results
    mmas: mma instructions with a mistake, or all if none has one; only the first per source line and mistake
    unused: A or B, if no mma reads a tile of it
    d: the argument that the kernel stored as D, compared with A B + C or with the results of the mma instructions
    races: unordered accesses by different threads, as `warpfrag ptx run --check races` reports them
    unjudged: reasons why the race check is incomplete
    notes: how A and B are stored
    """

    entry: str
    correct: bool
    executed: int
    complete: bool
    not_compared: int
    c_compared: int
    mmas: list[ExecutedMma]
    unused: list[str]
    d: MmaOperand
    races: list[KernelFinding]
    unjudged: tuple[str, ...]
    notes: list[str]


@verb
def diagnose(
    instruction: InstructionName,
    files: tuple[File, ...] = (),
    *,
    inputs: Inputs = Inputs(),  # noqa: B008 (immutable)
    expect: tuple[str, File] | None = None,
    tile: str | None = None,
    warpgroup: Warpgroup = Warpgroup(),  # noqa: B008 (immutable)
    rounding: RoundingName | None = None,
    warp: Natural | None = None,
    as_: Arrangement | None = None,
    immediates: IntendedImmediates = IntendedImmediates(),  # noqa: B008 (immutable)
    launch: DiagnosedLaunch = DiagnosedLaunch(),  # noqa: B008 (immutable)
    arch: NamedArch = "sm_90",
) -> Answer[DiagnosisFacts] | Answer[KernelDiagnosis]:
    """Find the mistakes that reproduce a wrong result exactly, and list them, most likely first.

    FILES are A, B, optionally C, and the result; or pass A, B and C as --a, --b and --c. The result is either D's
    registers, as printf or a debugger prints them (see `warpfrag unpack`), or the matrix D as text or .npy. For wgmma,
    pass the registers of all four warps, uint32 (4, 32, words). Decimals are compared at the precision of the file,
    and lines that are not data are skipped. FILE.npz:NAME is an array in an archive, such as one that
    `warpfrag ptx run -o` writes.

    Each finding has a fix. If no mistake explains the result, the answer lists the correct rows, columns, blocks, lanes
    and registers, and the wrong elements that equal known values.

    If INSTRUCTION is a kernel, FILE.cu or FILE.ptx, it is compiled and run, and each mma is diagnosed with its source
    line: its operands should be tiles of A and B, tiles of the arguments, or the results of earlier mma instructions.
    The D that the kernel stores is compared with the product of A and B. A is M x K. B is K x N or, if it is
    column-major in memory, N x K; if N equals K, save a column-major B with np.save(file, np.asfortranarray(B)).

    The exit status is 0 if the result is correct or differs only by rounding, 1 if it is wrong or a mistake is found,
    and 3 if no mistake is found but not everything can be judged.

    Options:
        expect (OPERAND MATRIX): Diagnose one operand: the result contains the registers of OPERAND, which should hold
            the matrix in the file MATRIX. Give a sparse A as it is stored, and metadata as 4-bit codes, one row for
            each row of A.
        warp: The warp to read from a dump of several warps.
        as_: Read the numbers in a text file as a matrix, row by row, or as registers, lane by lane; default: inferred
            from its lines.
        tile (MxN[xK]): The files are the matrices of a whole kernel, whose blocks compute tiles of D of this size.

    For example:
        warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 A.npy B.npy dump.txt              # D's registers
        warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 A.npy B.npy C.txt D.npy           # D as a matrix
        warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --expect a A.npy a.txt             # A's registers
        warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --tile 128x128x32 A.npy B.npy D.npy   # a whole kernel
        warpfrag diagnose kernel.cu A.npy B.npy --entry tile                              # each mma of a kernel
        warpfrag diagnose kernel.cu A.npy B.npy --arg A.npy --arg Bt.npy --arg D:f32:16x8   # other arguments
        warpfrag diagnose kernel.cu --arg q.npy --arg k.npy --arg v.npy --arg o:f32:64x64   # chained mma instructions
        warpfrag diagnose mma.sp.m16n8k32.f32.f16.f16.f32 --a full.txt --b wide.txt --metadata e.txt --selector 1
            dump.txt
        warpfrag diagnose mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 --expect scale_a scales.txt
            --byte-id 2 0 words.txt
        warpfrag diagnose wgmma.mma_async.m64n64k16.f32.f16.f16 --a A64.npy --b B64.npy --descriptor-b
            0xc000001000000000 D64.npy
    """
    if instruction.endswith((".cu", ".ptx")):
        return _diagnose_kernel(instruction, files, inputs, launch, arch)
    if launch != DiagnosedLaunch():
        raise click.UsageError(
            "--entry, --grid, --block, --arg and --shared apply only to a kernel (FILE.cu or FILE.ptx)"
        )
    if instruction.endswith(DATA):
        raise click.UsageError(f"{instruction} is a file: expected an instruction or a kernel first, as in {EXAMPLE}")
    resolved = get(instruction)
    if resolved.arch:  # wmma fragments depend on the GPU
        resolved = instruction_of(resolved.form, arithmetic_arch(resolved.form, arch))
    paths = {role: path for role, path in inputs._asdict().items() if path is not None}
    *matrices, file = files or ("-",)
    if file.endswith(".npz") and not matrices and expect is None:  # it may have A and B too
        paths = {"a": file, "b": file} | paths
    paths |= _positional(matrices, paths, is_one_operand=expect is not None)
    _check_options(resolved, paths, warpgroup, is_one_operand=expect is not None)
    chosen = Immediates(
        **immediates._asdict(),
        negate=("a" in warpgroup.negate, "b" in warpgroup.negate),
        scale_d=bool(warpgroup.scale_d),
    )
    options = DiagnoseOptions(chosen, rounding)
    dump = Dump(file, warp, as_)
    skipped: dict[int, str] = {}
    notes: list[str] = []
    if expect is not None:
        role, path = expect[0].lower(), expect[1]
        registers = _registers(resolved, role)
        codes = read_codes(path, registers.format, registers.shape, rounding=rounding)
        matrix = codes if role == "metadata" else from_codes(registers.format, codes)
        diagnosis = find_mistakes(registers, _observed(registers, dump, skipped), matrix, options=options)
    else:
        role = "d"
        errors: dict[str, float] = {}
        is_whole = bool(tile) or _are_whole(resolved, paths)
        read = _whole_matrix if is_whole else partial(_input, resolved, dump=dump, rounding=rounding, errors=errors)
        arrays: dict[str, Any] = {name: read(name, path) for name, path in paths.items()}
        if len(arrays["b"].shape) == 2:
            notes += _turn_b(arrays)
        observed = _whole_matrix("d", file) if is_whole else _observed(resolved.d, dump, skipped)
        if errors:
            notes.append(f"{' and '.join(map(str.upper, errors))}: the decimals are read as the nearest values")
            observed = _with_input_errors(resolved, observed, arrays, errors)
        _stage(resolved, arrays, warpgroup, immediates.selector)
        diagnosis = find_mistakes(
            resolved,
            observed,
            *(arrays.pop(name, None) for name in "abc"),
            metadata=arrays.get("metadata"),
            scales=(arrays.get("scale_a"), arrays.get("scale_b")),
            options=options,
            arch=arch,
            tile=_extents(tile) or (resolved.d.shape if is_whole else None),
        )
    if skipped:
        count = f"{len(skipped)} line{'s' * (len(skipped) > 1)}"
        notes.append(f"skipped {count} of {file} that are not data; the first is line {min(skipped)}")
    notes = [*diagnosis.notes, *notes]
    facts = facts_of(
        DiagnosisFacts,
        diagnosis,
        instruction=resolved.name,
        operand=role,
        arch=None if expect else arch,
        findings=list(diagnosis),
        notes=notes,
    )
    status = NO if not (diagnosis.correct or diagnosis.is_rounding) else DONE if diagnosis.is_certain else INCOMPLETE
    return Answer(facts, lambda: _print(diagnosis, notes), status)


def _diagnose_kernel(
    file: str, files: tuple[str, ...], inputs: Inputs, launch: DiagnosedLaunch, arch: str
) -> Answer[KernelDiagnosis]:
    """Run a kernel, and compare the operands of each mma with tiles of A and B, arguments, and earlier results."""
    paths = [path for path in (inputs.a, inputs.b) if path is not None] or list(files)
    kernel = chosen_kernel(read_module([file], arch, launch.entry), launch.entry)
    if len(paths) != (2 if paths or not launch.arg else 0) or (files and inputs.a is not None):
        given = "the result is not an input, because the kernel is run; " if len(paths) > 2 else ""
        raise click.UsageError(f"{given}expected the intended A and B, or every argument; {_usage(file, kernel)}")
    matrices = {role: _whole_matrix(role, path) for role, path in zip("ab", paths, strict=False)}
    notes = _turn_b(matrices, _usage(file, kernel)) if matrices else []
    arrays: Arrays = {}
    arguments: list[Any] = [read_argument(text, arrays) for text in launch.arg]
    if not arguments:
        if len(kernel.parameters) != 3:
            raise click.UsageError(_usage(file, kernel))
        matrices = _as_operands(kernel, matrices)
        arrays = {"D": np.zeros((len(matrices["a"]), matrices["b"].shape[1]), np.float32)}
        arguments = [*(matrix.flatten("K") for matrix in matrices.values()), arrays["D"]]
    intended = {role: _as_argument(matrix, arrays) for role, matrix in matrices.items()}
    block = launch.block or tuple(kernel.program.directives.get("reqntid", (32,)))
    grid = launch.grid or (1,)
    with kernel.debug(grid, block, arguments, shared=launch.shared, arch=arch) as debugger:
        comparison = OperandComparison(debugger, intended, arrays)
        executed = [*comparison.executed()]
    stored = comparison.stored(executed)
    for array, old in comparison.given.values():
        array[...] = old
    checked: dict[str, Any] = {"checks": "races", "engine": "reference", "level": "ptx"}
    run = kernel.launch(grid, block, arguments, shared=launch.shared, arch=arch, **checked)
    shown: dict[tuple[object, ...], ExecutedMma] = {}
    wrong = [mma for mma in executed if not mma.is_correct]
    for mma in wrong or executed:
        shown.setdefault((mma.source, *(operand.findings[:1] or operand.matrix for operand in mma.operands)), mma)
    held = {operand.matrix for mma in executed for operand in mma.operands}
    unused = [role.upper() for role in intended if role.upper() not in held]
    uncompared = sum(bool(operand.uncompared) for mma in executed for operand in mma.operands[:2])
    c_compared = sum(not mma.operands[2].uncompared for mma in executed)
    is_open = bool(uncompared or unused or stored.uncompared or (not intended and c_compared < len(executed)))
    is_open |= bool(run.unjudged)
    is_wrong = bool(wrong or run.findings) or not stored.is_correct
    counts = len(executed), comparison.is_complete, uncompared, c_compared
    status = NO if is_wrong else INCOMPLETE if is_open else DONE
    facts = KernelDiagnosis(
        kernel.name, status == DONE, *counts, [*shown.values()], unused, stored, run.findings, run.unjudged, notes
    )
    return Answer(facts, lambda: _print_kernel(kernel.readable_name, facts), status)


def _turn_b(matrices: dict[str, NDArray[Any]], usage: str = "") -> list[str]:
    """Transpose B if it is N x K (column-major); return a note on each column-major matrix."""
    a, b = (matrices[role].shape for role in "ab")
    if len(a) != 2 or len(b) != 2 or a[1] not in b:
        wanted = "A as M x K, and B as K x N or, if it is column-major, as N x K"
        raise InvalidOperand(f"expected {wanted}; got {a} and {b}{usage and f'; {usage}'}")
    if b[0] != a[1]:
        matrices["b"] = matrices["b"].T
    turned = {role.upper(): matrix for role, matrix in matrices.items() if not matrix.flags.c_contiguous}
    return [f"{name} is column-major: {len(matrix.T)} x {len(matrix)} in memory" for name, matrix in turned.items()]


def _usage(file: str, kernel: Kernel) -> str:
    """Return the parameters of a kernel, and a command that passes each of them."""
    types = [parameter.type for parameter in kernel.parameters]
    texts = ["FILE.npy" if name.endswith("64") else f"{name.replace('b', 'i')}:NUMBER" for name in types]
    passed = " ".join(f"--arg {text}" for text in texts)
    short = f"warpfrag diagnose {file} A.npy B.npy, or " if len(texts) == 3 else ""  # A, B and D
    return (
        f"{kernel.readable_name} has {len(texts)} parameters: {short}warpfrag diagnose {file} {passed} "
        "(an array of zeros is NAME:f32:ROWSxCOLUMNS)"
    )


def _as_operands(kernel: Kernel, matrices: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Convert matrices that were read from text to the operand types of the first mma; arrays keep their type."""
    mma = next((get(inst.name) for inst in kernel.program.instructions if is_mma(inst)), None)
    if mma is None:
        return matrices
    return {
        role: matrix.astype(natural_dtype(mma.operands[role].format)) if matrix.dtype == "float64" else matrix
        for role, matrix in matrices.items()
    }


def _as_argument(matrix: NDArray[Any], arrays: Arrays) -> NDArray[Any]:
    """Return the argument whose printed values a text matrix contains; if there is none, return the matrix."""
    if matrix.dtype != "float64":
        return matrix
    error = read_decimals([repr(value) for value in matrix.ravel().tolist()], matrix.shape).error
    printed = (array for array in arrays.values() if array.shape == matrix.shape)
    return next((array.copy() for array in printed if (np.abs(array - matrix) <= 2 * error).all()), matrix)


def _print_kernel(name: str, facts: KernelDiagnosis) -> None:
    count = f"{'' if facts.complete else 'the first '}{facts.executed} executed mma"
    count += f" instruction{'s' * (facts.executed != 1)}"
    if all(mma.is_correct for mma in facts.mmas):
        compared = f"A and B: {2 * facts.executed - facts.not_compared} of {2 * facts.executed}"
        compared += f", C: {facts.c_compared} of {facts.executed}"
        judged = "was not compared" if facts.d.uncompared else "is correct" if facts.d.is_correct else "is wrong"
        found = "no mistake found in the operands of {}" if judged != "is wrong" else "all operands of {} are tiles"
        echo(wrapped(f"{name}: D {judged}; {found.format(count)} (compared: {compared})", indent=2))
    if facts.not_compared:
        echo(f"  not compared: {facts.not_compared} A and B operands that the kernel computes")
    for matrix in facts.unused:
        echo(f"  no mma reads a tile of the intended {matrix}")
    for mma in facts.mmas[:MAX_MMAS]:
        echo(wrapped(f"{mma.source}: {mma.instruction}, block {mma.block}, warp {mma.warp}", indent=2) + mma.code)
        for operand in mma.operands:
            _print_operand(operand)
        if mma.differs_in_k:
            a, b = mma.operands[:2]
            echo(f"  k differs: A starts at column {a.col}, B at row {b.row}")
    if len(facts.mmas) > MAX_MMAS:
        echo(f"and {len(facts.mmas) - MAX_MMAS} more mma instructions (--json shows all)")
    _print_operand(facts.d)
    for race in facts.races:
        echo(str(race))
    echo_wrapped((*(f"not judged: {reason}" for reason in facts.unjudged), *facts.notes), indent=2)


def _print_operand(operand: MmaOperand) -> None:
    echo(wrapped(f"  {operand}", indent=4))
    lines = [f"fix: {finding.fix}" for finding in operand.findings[:1] if finding.fix] + [*operand.unexplained[1:]]
    if operand.role == "d":  # the findings for A, B and C are equivalent, so one is enough
        lines += [f"or {finding}; fix: {finding.fix}" for finding in operand.findings[1:MAX_EXPLANATIONS]]
    if operand.loaded_at and not operand.is_correct:
        is_stored = operand.role == "d" and not (operand.findings and operand.findings[0].operand in "ab")
        filled = f", from shared memory filled at {_first_lines(operand.filled_at)}" if operand.filled_at else ""
        lines.append(f"{'stored' if is_stored else 'loaded'} at {_first_lines(operand.loaded_at)}{filled}")
    echo_wrapped((f"     {line}" for line in lines), indent=7)


def _first_lines(lines: tuple[str, ...]) -> str:
    more = f" and {len(lines) - MAX_LINES} more" if len(lines) > MAX_LINES else ""
    return ", ".join(lines[:MAX_LINES]) + more


class Dump(NamedTuple):
    """A file with the observed result, the warp it belongs to, and the arrangement of its numbers."""

    file: str
    warp: int | None
    arranged: Arrangement | None


def _positional(matrices: list[str], paths: dict[str, str], *, is_one_operand: bool) -> dict[str, str]:
    """Return, by role, the input files that precede RESULT on the command line."""
    if not matrices:
        return {}
    if is_one_operand or len(matrices) not in (2, 3):
        wanted = "one file, the result" if is_one_operand else "the result alone, A B RESULT, or A B C RESULT"
        missing = ": the third, RESULT, is missing" if len(matrices) == 1 and not is_one_operand else ""
        raise click.UsageError(f"expected {wanted}; got {len(matrices) + 1} files{missing}")
    given = dict(zip("abc", matrices, strict=False))
    for role in given.keys() & paths.keys():
        raise click.UsageError(f"{role.upper()} is given twice: as --{role} {paths[role]} and as {given[role]}")
    return given


def _check_options(
    instruction: Instruction, paths: dict[str, str], warpgroup: Warpgroup, *, is_one_operand: bool
) -> None:
    """Raise an error for mutually exclusive options and for missing inputs."""
    has_descriptor = warpgroup.descriptor_a is not None or warpgroup.descriptor_b is not None
    is_staged = any(isinstance(operand, Operand) and operand.staged for operand in instruction.operands.values())
    missing = [role for role in "ab" if role not in paths]
    if is_one_operand and (paths or has_descriptor):
        raise click.UsageError("expected --a and --b, or --expect alone")
    if (warpgroup.trans or has_descriptor) and not is_staged:
        raise click.UsageError(f"--descriptor-a, --descriptor-b and --trans apply to wgmma, not to {instruction.name}")
    if missing and not is_one_operand:
        raise click.UsageError(
            f"the intended {missing[0].upper()} is missing: pass A B RESULT, or --{missing[0]} FILE "
            "(or use --expect to diagnose a single operand)"
        )


def _registers(instruction: Instruction, role: str) -> OperandBase:
    registers = instruction.operands.get(role)
    if registers is None:
        raise InvalidOperand(f"{instruction.name} has no operand {role}, only {', '.join(instruction.operands)}")
    return registers


def _print(diagnosis: Diagnosis, notes: list[str]) -> None:
    """Print a diagnosis; the correct elements are printed only if no mistake explains the result."""
    echo(wrapped(diagnosis.summary + (":" if diagnosis else ""), indent=2))
    for rank, finding in enumerate(diagnosis[:MAX_FINDINGS], start=1):
        number = f"{rank}. " if len(diagnosis) > 1 else ""
        echo(wrapped(f"  {number}{finding.kind}: {finding}", indent=4))
        if finding.fix:
            echo(wrapped(f"     fix: {finding.fix}", indent=7))
    if len(diagnosis) > MAX_FINDINGS:
        echo(f"  and {len(diagnosis) - MAX_FINDINGS} more (--json shows all)")
    if diagnosis.agreement is not None and not diagnosis:
        echo_wrapped(str(diagnosis.agreement).splitlines(), indent=2)
    echo_wrapped(notes, indent=2)


def _extents(tile: str | None) -> tuple[int, ...] | None:
    """Parse the extents of a tile, such as 128x64 or 128x64x32."""
    if tile is None:
        return None
    extents = tile.lower().split("x")
    if not 2 <= len(extents) <= 3 or not all(extent.isdecimal() and int(extent) for extent in extents):
        raise click.BadParameter(
            f"expected rows and columns of D, such as 128x64, or with k, 128x64x32; got {tile!r}", param_hint="--tile"
        )
    return tuple(map(int, extents))


def _are_whole(instruction: Instruction, paths: dict[str, str]) -> bool:
    """Return True if A and B are matrices that can be multiplied, and not the tiles of one instruction."""
    if not paths.keys() <= instruction.operands.keys() & {*"abc"} or instruction.pattern is not None:
        return False
    try:
        a, b = (_whole_matrix(role, paths[role]).shape for role in "ab")
    except (FileError, InvalidOperand):
        return False
    own = instruction.a.shape, instruction.b.shape
    is_tile = a == own[0] and b in (own[1], own[1][::-1])
    return len(a) == len(b) == 2 and not is_tile and (a[1] in b or (a != own[0] and b != own[1]))


def _whole_matrix(role: str, path: str) -> NDArray[Any]:
    """Return a whole matrix, of any extents, from a .npy, .npz or text file."""
    source = read_source(path, MAX_ARRAY_BYTES)
    return source.array(role) if source.is_array else read_text_matrix(source)


def _input(
    instruction: Instruction, role: str, path: str, *, dump: Dump, rounding: Rounding, errors: dict[str, float]
) -> NDArray[Any] | Printed:
    """Return an intended input: a matrix (for a sparse instruction the full A), or the registers of all lanes.

    Decimals that a program printed are read as the nearest values; `errors` receives their largest error.
    """
    registers = instruction.operands.get(role)
    if registers is not None and (role == "metadata" or (role in SELECTED_BY and _is_words(path))):
        return _observed(registers, dump._replace(file=path), {})
    if role == "b" and isinstance(registers, Operand) and registers.shape[0] != registers.shape[1]:
        source = read_source(path)
        if source.is_array and (array := source.array(role)).shape == registers.shape[::-1]:
            return array.T  # column-major
    values, error = read_input(instruction, role, path, rounding)
    if error is not None:
        errors[role] = error
    return values


def _with_input_errors(
    instruction: Instruction, observed: NDArray[Any] | Printed, arrays: dict[str, Any], errors: dict[str, float]
) -> NDArray[Any] | Printed:
    """Return the observed D with the error that the printed digits of A, B and C permit."""
    a, b = (np.abs(as_doubles(np.asarray(arrays[role]))) for role in "ab")
    error_a, error_b = errors.get("a", 0.0), errors.get("b", 0.0)
    error = error_b * a.sum(axis=1).max() + error_a * b.sum(axis=0).max() + error_a * error_b * len(b)
    error += errors.get("c", 0.0)
    if not error:
        return observed
    seen = observe(instruction.d, observed)
    own = f"{seen.printed.digits}; " if seen.printed else ""
    digits = f"{own}the digits of the inputs determine D to within {error:.2g}"
    return Printed(seen.values, seen.slack + error, digits)


def _stage(instruction: Instruction, inputs: dict[str, Any], warpgroup: Warpgroup, selector: int) -> None:
    """Put operands that are read through a descriptor into shared memory."""
    for operand in (instruction.a, instruction.b):
        role, is_turned = operand.role, operand.role in warpgroup.trans
        word = warpgroup.descriptor_a if role == "a" else warpgroup.descriptor_b
        if word is None and not is_turned:
            continue  # registers, or a tile without gaps
        matrix = inputs[role]
        if role == "a" and instruction.pattern is not None:
            packed = left_words(instruction, matrix, inputs.get("metadata"), Immediates(selector), None)
            matrix, inputs["metadata"] = operand.unpack(packed["a"]), packed["metadata"]
        inputs[role] = operand.store(matrix, None if word is None else read_word(word), trans=is_turned)


def _is_words(path: str) -> bool:
    source = read_source(path)
    return source.is_array and source.array().dtype == "uint32"


def _observed(registers: OperandBase, dump: Dump, skipped: dict[int, str]) -> NDArray[Any] | Printed:
    """Return the observed result; metadata and scale factors have one word per lane."""
    if registers.role not in SELECTED_BY:
        return read_result(dump.file, registers, dump.warp, dump.arranged, skipped)
    source = read_source(dump.file)
    return source.array() if source.is_array else read_registers(source.text(), registers, dump.warp)[..., 0]
