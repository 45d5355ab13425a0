"""`warpfrag diagnose`: which mistake gives this wrong D, or these wrong registers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from warpfrag.cli.descriptor import read_word
from warpfrag.cli.support.matrix_files import codes_of, read_source
from warpfrag.cli.support.options import (
    Function,
    arch_option,
    choice_options,
    file_argument,
    file_option,
    instruction_argument,
    integer,
    json_option,
)
from warpfrag.cli.support.output import DONE, NO, echo, print_json, wrapped
from warpfrag.cli.support.register_dumps import dump_of, parse_warps, single_warp, warps_of_group
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand
from warpfrag.isa.immediates import SELECTED_BY
from warpfrag.isa.legality import arithmetic_arch
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.diagnosis.diagnose import Diagnosis, Finding
    from warpfrag.formats.number_formats import Rounding
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Registers

MAX_FINDINGS = 12  # findings in text; JSON has all
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.m64n64k16.f32.f16.f16"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


class Dump(NamedTuple):
    """A file with what came out, and how to read it."""

    file: str
    by: str | None
    warp: int | None


def _expect_options(function: Function) -> Function:
    """For each operand an option with the matrix that its registers should hold."""
    texts = {
        "a": "The dump is of A's registers; this is the matrix they should hold (sparse: as stored).",
        **{role: f"The same for {role.upper()}." for role in "bcd"},
        "metadata": "The same for the metadata: its codes, a row of 4-bit fields for each row of A.",
        **{f"scale_{side}": f"The same for the scale factors of {side.upper()}." for side in "ab"},
    }
    for role, text in reversed(texts.items()):
        function = file_option(f"--expect-{role.replace('_', '-')}", help_text=text)(function)
    return function


def _pair(name: str, text: str) -> Callable[[Function], Function]:
    """An option with a number for A and one for B."""
    return click.option(name, nargs=2, type=integer(0), metavar="A B", default=(0, 0), help=f"{text} 0 0 if left out.")


@verb(
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy dump.txt      # D's registers",
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --a A.npy --b B.npy --c C.txt D.npy   # D as a matrix",
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --expect-a A.npy a.txt             # A's registers",
    "warpfrag diagnose mma.m16n8k16.f32.f16.f16.f32 --tile 128x128x32 --a A.npy --b B.npy D.npy   # of a kernel",
    f"warpfrag diagnose {SPARSE} --a full.txt --b wide.txt --metadata e.txt --selector 1 dump.txt",
    f"warpfrag diagnose {SCALED} --expect-scale-a scales.txt --byte-id 2 0 words.txt",
    f"warpfrag diagnose {WGMMA} --a A64.npy --b B64.npy --descriptor-b 0xc000001000000000 D64.npy",
)
@instruction_argument
@file_argument
@file_option("--a", help_text="A as it should have been: a matrix as text or .npy (sparse: full and pruned).")
@file_option("--b", help_text="B, likewise.")
@file_option("--c", help_text="C, likewise; default: zero.")
@file_option("--metadata", help_text="Metadata words of all lanes, as a dump or .npy, uint32 (32,); else made from A.")
@file_option("--scale-a", help_text="Scale factors of A: a matrix, or the words of all lanes as .npy, uint32 (32,).")
@file_option("--scale-b", help_text="Scale factors of B, likewise.")
@_expect_options
@click.option(
    "--tile",
    metavar="MxN[xK]",
    help="The files are those of a whole kernel, whose blocks compute tiles of D of this size, in steps of this K.",
)
@click.option("--descriptor-a", metavar="WORD", help="wgmma: A is in shared memory, read with this descriptor.")
@click.option("--descriptor-b", metavar="WORD", help="wgmma: the descriptor of B; default: a tile without gaps.")
@click.option("--trans", type=click.Choice(["a", "b"]), multiple=True, help="wgmma: it is MN-major in shared memory.")
@click.option("--negate", type=click.Choice(["a", "b"]), multiple=True, help="wgmma: its sign should be changed.")
@click.option("--scale-d", type=integer(0, 1), default=1, metavar="0|1", help="wgmma: 0 if C should not be read.")
@click.option(
    "--rounding", type=click.Choice(["rne"]), help="Round values that are not exact: to nearest, ties to even."
)
@click.option("--by", type=click.Choice(["lane", "register"]), help="What a line of the dump is, if it names no lanes.")
@click.option("--warp", type=integer(low=0), metavar="N", help="Which warp of a dump of several.")
@choice_options("selector")
@_pair("--byte-id", "The byte ids of the scale factors that should be used.")
@_pair("--thread-id", "Their thread ids.")
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
    byte_id: tuple[int, int],
    thread_id: tuple[int, int],
    arch: str,
    trans: tuple[str, ...],
    negate: tuple[str, ...],
    scale_d: int,
    tile: str | None,
    as_json: bool,
    **files: str | None,
) -> int:
    """Find the mistakes that explain a wrong result: those that reproduce it exactly are listed, the likeliest first.

    FILE is the result: D's registers as printf or a debugger shows them (as for `warpfrag unpack`), or .npy with the
    registers, uint32 (32, words), or with D as a matrix; of wgmma the registers of all four warps, uint32 (4, 32,
    words). With --expect-a it is the registers of A, and so on. If no mistake explains it, pairs are tried,
    and the answer says which rows, columns, blocks, lanes and registers are right and what the wrong elements equal.
    With --tile, FILE and the inputs are the matrices of a whole kernel, as .npy. Exit status 1 if nothing is found.
    """
    from warpfrag.diagnosis.diagnose import diagnose
    from warpfrag.tensorcore.instruction_types import instruction_of

    instruction = get(name)
    if instruction.arch:  # wmma: the fragments of the GPU that runs it
        instruction = instruction_of(instruction.form, arithmetic_arch(instruction.form, arch))
    tiles = {role: files.pop(f"descriptor_{role}") for role in "ab"}
    paths = {role: path for role, path in files.items() if path is not None}
    expected = [role for role in paths if role.startswith("expect_")]
    if len(expected) > 1 or (expected and (len(paths) > 1 or any(tiles.values()))):
        msg = "one operand is expected, and then no inputs are needed: give one --expect-... alone, or --a and --b"
        raise click.UsageError(msg)
    may_stage = any(isinstance(operand, Operand) and operand.staged for operand in instruction.operands.values())
    if not may_stage and (trans or any(tiles.values())):
        msg = f"--descriptor-a, --descriptor-b and --trans are for wgmma, not for {instruction.name}"
        raise click.UsageError(msg)
    dump = Dump(file, by, warp)
    ask = partial(diagnose, selector=selector or 0, byte_id=byte_id, thread_id=thread_id)
    if expected:
        role = expected[0].removeprefix("expect_")
        registers = _registers(instruction, role)
        matrix = _matrix(registers, registers.shape, paths[expected[0]], rounding)
        diagnosis = ask(registers, _observed(registers, dump), matrix)
    else:
        role = "d"
        read = _whole_matrix if tile else partial(_input, instruction, dump=dump, rounding=rounding)
        inputs: dict[str, Any] = {role: read(role, path) for role, path in paths.items()}
        for needed in ("a", "b"):
            if needed not in inputs:
                msg = f"--{needed} is missing: the intended input (or use --expect-a and the like, for one operand)"
                raise click.UsageError(msg)
        _stage(instruction, inputs, tiles, trans, selector or 0)
        diagnosis = ask(
            instruction,
            _whole_matrix("d", file) if tile else _observed(instruction.d, dump),
            inputs["a"],
            inputs["b"],
            inputs.get("c"),
            metadata=inputs.get("metadata"),
            scale_a=inputs.get("scale_a"),
            scale_b=inputs.get("scale_b"),
            arch=arch,
            negate=("a" in negate, "b" in negate),
            scale_d=bool(scale_d),
            tile=_extents(tile),
            rounding=rounding,
        )
    if as_json:
        asked = {"instruction": instruction.name, "operand": role, "arch": None if expected else arch}
        print_json("diagnose", {**asked, **_answer(diagnosis)})
    else:
        _print(diagnosis)
    return DONE if diagnosis or diagnosis.correct else NO


def _registers(instruction: Instruction, role: str) -> Registers:
    registers = instruction.operands.get(role)
    if registers is None:
        msg = f"{instruction.name} has no operand {role}: it has {', '.join(instruction.operands)}"
        raise InvalidOperand(msg)
    return registers


def _answer(diagnosis: Diagnosis) -> dict[str, object]:
    """A diagnosis as JSON has it."""
    return {
        "correct": diagnosis.correct,
        "findings": [_facts(finding) for finding in diagnosis],
        "tried": diagnosis.tried,
        "pairs": diagnosis.pairs,
        "agreement": None if diagnosis.agreement is None else diagnosis.agreement.to_dict(),
    }


def _print(diagnosis: Diagnosis) -> None:
    """A diagnosis as text: what is right only where nothing explains all of it."""
    echo(wrapped(diagnosis.summary + (":" if diagnosis else ""), indent=2))
    for finding in diagnosis[:MAX_FINDINGS]:
        echo(wrapped(f"  {finding.kind}: {finding}", indent=4))
    if len(diagnosis) > MAX_FINDINGS:
        echo(f"  and {len(diagnosis) - MAX_FINDINGS} more (--json shows all)")
    if diagnosis.agreement is not None and not diagnosis:
        for line in str(diagnosis.agreement).splitlines():
            echo(wrapped(line, indent=2))


def _extents(tile: str | None) -> tuple[int, ...] | None:
    """A tile as the command line has it: 128x64, or 128x64x32."""
    if tile is None:
        return None
    extents = tile.lower().split("x")
    if not 2 <= len(extents) <= 3 or not all(extent.isdecimal() and int(extent) for extent in extents):
        msg = f"expected rows and columns of D, as 128x64, or with k, as 128x64x32; got {tile!r}"
        raise click.BadParameter(msg, param_hint="--tile")
    return tuple(map(int, extents))


def _whole_matrix(role: str, path: str) -> NDArray[Any]:
    """A matrix of a kernel, of any extents."""
    source = read_source(path)
    if not source.is_array:
        msg = f"{path}: with --tile, {role.upper()} is a matrix of any extents: expected .npy"
        raise InvalidOperand(msg)
    return source.array()


def _input(instruction: Instruction, role: str, path: str, *, dump: Dump, rounding: Rounding) -> NDArray[Any]:
    """What should have gone in: a matrix (of a sparse instruction the full A), or the words of all lanes."""
    registers = instruction.operands.get(role)
    if registers is None:
        msg = f"{instruction.name} takes no {role}"
        raise click.BadParameter(msg, param_hint=f"--{role.replace('_', '-')}")
    if role == "metadata" or (role in SELECTED_BY and _is_words(path)):
        return _observed(registers, dump._replace(file=path))
    is_sparse = role == "a" and instruction.pattern is not None
    shape = (instruction.shape.m, instruction.shape.k) if is_sparse else registers.shape
    return _matrix(registers, shape, path, rounding)


def _stage(
    instruction: Instruction,
    inputs: dict[str, Any],
    words: dict[str, str | None],
    trans: tuple[str, ...],
    selector: int,
) -> None:
    """Put the operands that are read through a descriptor into shared memory."""
    from warpfrag.diagnosis.diagnosis_inputs import left_words
    from warpfrag.isa.immediates import Immediates

    for operand in (instruction.a, instruction.b):
        role, is_turned = operand.role, operand.role in trans
        word = words[role]
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


def _matrix(registers: Registers, shape: tuple[int, ...], path: str, rounding: Rounding) -> NDArray[Any]:
    from warpfrag.formats.codes import from_codes

    codes = codes_of(read_source(path), registers.format, shape, rounding=rounding)
    return codes if registers.role == "metadata" else from_codes(registers.format, codes)


def _observed(registers: Registers, dump: Dump) -> NDArray[Any]:
    """What came out: an array, or a dump. Metadata and scale factors are one word a lane."""
    import numpy as np

    source = read_source(dump.file)
    if source.is_array:
        return source.array()
    warps = parse_warps(source.text(), dump_of(registers, dump.by))
    if len(registers.threads) > 1:
        words = np.array(warps_of_group(warps, dump.warp, registers.threads[0], registers.described), np.uint32)
    else:
        words = np.array(single_warp(warps, dump.warp), np.uint32)
    return words[..., 0] if registers.role in SELECTED_BY else words


def _facts(finding: Finding) -> dict[str, object]:
    """A finding as JSON has it."""
    second = None if finding.second is None else _facts(finding.second)
    return {"kind": finding.kind, "operand": finding.operand, "text": finding.text, "second": second}
