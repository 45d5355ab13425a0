"""Argument and option types shared by several verbs, and their shell completion."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import click

from warpfrag.cli.io.verbs import Param, integer
from warpfrag.errors import IllegalInstruction, InvalidOperand, WarpfragError, quote
from warpfrag.isa.targets import gpu_called, gpus, read_target, targets

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from warpfrag.blas.order import Order

LAYOUTS = re.compile(r"\.(?:row|col)\.(?:row|col)\b")
OPERANDS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")


def read_arch(text: str) -> str:
    """Return the canonical name of an architecture, given as sm_90a, SM90a, 90a or a GPU such as H100."""
    try:
        return read_target(text, "").name
    except IllegalInstruction as error:
        near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
        raise click.BadParameter(error.reason + near) from None


def read_arch_name(text: str) -> str:
    """Return the name of a GPU such as A100 unchanged, or the canonical name of an architecture."""
    target = read_arch(text)
    return text.strip() if gpu_called(text) else target


def read_order(text: str) -> Order:
    """Return the order of additions with these fields, such as split_k=3,unit=64,in_place=1."""
    from warpfrag.blas.order import TENSOR_CORE_FIELDS, Order

    fields: dict[str, Any] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        if name not in TENSOR_CORE_FIELDS or not (value.isascii() and value.isdigit() and len(value) < 10):
            expected = ", ".join(f"{field}=N" for field in TENSOR_CORE_FIELDS)
            raise click.BadParameter(f"expected {expected}, separated by commas; got {quote(part)}")
        fields[name] = value != "0" if name == "in_place" else int(value)
    return Order(**fields)


def complete_instruction(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Complete full and short names of instructions."""
    from warpfrag.isa.instruction_names import spell
    from warpfrag.isa.instruction_table import forms
    from warpfrag.isa.operations import OPS

    operations = dict.fromkeys(op.partition(".")[0] for op in OPS)
    names = [spell(form) for first in _beginning(operations, start.partition(".")[0]) for form in forms(first)]
    short = [name.replace(".sync.aligned", "") for name in names]
    count = Counter(LAYOUTS.sub("", name) for name in short)
    shortest = (bare if count[bare := LAYOUTS.sub("", name)] == 1 else name for name in short)
    return _beginning(names, start) or _beginning(shortest, start) or _beginning(short, start)


def complete_operand(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Complete the operands of the preceding instruction."""
    from warpfrag.tensorcore.registry import get

    try:
        return _beginning(get(context.params.get("instruction") or "").operands, start)
    except WarpfragError:
        return _beginning(OPERANDS, start)


def complete_arch(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Complete the names of architectures and GPUs, with hyphens instead of spaces."""
    return _beginning((*targets(), *(name.lower().replace(" ", "-") for name in gpus())), start)


def complete_type(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """Complete element types and their aliases."""
    from warpfrag.formats.number_formats import format_aliases

    return _beginning((*(name for row in format_aliases().values() for name in row.types), *format_aliases()), start)


def complete_file(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Complete the names of samples; the shell itself completes file names."""
    from click.shell_completion import CompletionItem

    from warpfrag.samples import PREFIX, SAMPLES

    samples = [PREFIX + name for name in SAMPLES] if start.startswith(PREFIX[:-1]) else []
    offered = [CompletionItem(sample) for sample in samples if sample.startswith(start)]
    return offered or [CompletionItem(start, type="file")]


def _beginning(words: Iterable[str], start: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(start.lower())]


InstructionName = Annotated[str, Param("INSTRUCTION", complete=complete_instruction, help="An instruction.")]
OperandName = Annotated[str, Param("OPERAND", complete=complete_operand)]
FragmentName = Annotated[str, Param("INSTRUCTION:OPERAND", complete=complete_instruction)]
Seconds = Annotated[float, Param("SECONDS", click.FloatRange(0, min_open=True))]
Arch = Annotated[
    str,
    Param(
        "ARCH",
        read_arch,
        complete_arch,
        "Reject instructions that this architecture does not accept; for wmma, use its fragments.",
    ),
]
NamedArch = Annotated[
    str, Param("ARCH", read_arch_name, complete_arch, "The architecture, or GPU (A100), whose arithmetic is used.")
]
ElementType = Annotated[str, Param("TYPE", complete=complete_type)]
File = Annotated[str, Param("FILE", complete=complete_file)]
Matrix = Annotated[str, Param("{}.npy", complete=complete_file)]
OrderFields = Annotated[Any, Param("FIELDS", read_order)]
Count = Annotated[int, Param("N", integer(low=1))]
Natural = Annotated[int, Param("N", integer(low=0))]
Seed = Annotated[int, Param("N", integer(low=0), help="Seed of the random operands.")]
WarpIndex = Annotated[int, Param("N", integer(), help="The warp of a warpgroup (wgmma, tcgen05.ld).")]
RoundingName = Annotated[Literal["rne"], Param(help="Round values that are not exact: to nearest, ties to even.")]
Backend = Annotated[
    str,
    Param(
        "cpu|cuda|native|auto", help="Compute on the CPU, by emulation on a GPU (cuda), or on tensor cores (native)."
    ),
]
NotationName = Annotated[
    Literal["cute", "triton", "mlir", "c", "json"], Param(help="Write layouts in this notation instead.")
]


class ElementChoice(NamedTuple):
    """Coordinates that select a matrix or a part of a register.

    Options:
        mma: The index of one of the four matrix multiplications of m8n8k4 with f16.
        matrix: The index of a matrix of ldmatrix or stmatrix.
        selector: The sparsity selector.
        thread_id: The thread id, which selects the lanes that supply the scale factors.
        byte_id: The byte id: the first byte of the scale word that is used.
    """

    mma: int | None = None
    matrix: int | None = None
    selector: int | None = None
    thread_id: int | None = None
    byte_id: int | None = None


class Load(NamedTuple):
    """A tcgen05.ld that loads an operand from tensor memory, and its address.

    Options:
        through (LOAD): Show the registers after this tcgen05.ld instead of tensor memory.
        column: The first column of the operand that the load reads.
        base_lane: The lane in the load's address: 0 or, for the shapes 16x..., also 16.
    """

    through: str | None = None
    column: int | None = None
    base_lane: int | None = None

    def refuse(self, operand: str) -> None:
        """Raise InvalidOperand if one of these options is given, because it would have no effect."""
        options = [f"--{name.replace('_', '-')}" for name, choice in self._asdict().items() if choice is not None]
        if options:
            raise InvalidOperand(f"{' and '.join(options)}: expected an operand in tensor memory, got {operand}")


IN_TENSOR_MEMORY = Load()
