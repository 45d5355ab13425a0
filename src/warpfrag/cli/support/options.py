"""Arguments and options that several verbs take, the types of their values, and what a shell completes them with."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warpfrag.errors import IllegalInstruction, WarpfragError, quote
from warpfrag.isa.targets import gpus, read_target, targets
from warpfrag.layout.notations import NOTATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from warpfrag.blas.order import Order

Function = TypeVar("Function", bound="Callable[..., object]")

INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
LARGEST = 10**18 - 1
LAYOUTS = re.compile(r"\.(?:row|col)\.(?:row|col)\b")

# The coordinates that choose among several matrices or parts of a word, and the help of each option.
CHOICES = {
    "mma": "Which of the four products of m8n8k4 with f16.",
    "matrix": "Which matrix of ldmatrix or stmatrix.",
    "selector": "The sparsity selector.",
    "thread_id": "Which lanes supply the scale factors.",
    "byte_id": "The first byte of the scale word that is used.",
}


def read_order(text: str) -> Order:
    """The type of --order: an order of additions, written as its fields, such as split_k=3,unit=64,in_place=1."""
    from warpfrag.blas.order import Order

    fields: dict[str, Any] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        known = Order.__dataclass_fields__
        if name not in known or not (value.isascii() and value.isdigit() and len(value) < 10):
            msg = f"expected {', '.join(f'{field}=N' for field in known)}, separated by commas; got {quote(part)}"
            raise click.BadParameter(msg)
        fields[name] = value != "0" if name == "in_place" else int(value)
    return Order(**fields)


def integer(low: int = -LARGEST, high: int = LARGEST) -> Callable[[object], int]:
    """The type of an argument: an integer in this range, of so few digits that every message can repeat it."""

    def integer(value: object) -> int:
        if not INTEGER.fullmatch(text := str(value).strip()):
            msg = f"{quote(value)} is not a valid integer"
            raise click.BadParameter(msg)
        if len(text) > len(str(-LARGEST)) or not low <= int(text) <= high:
            msg = f"{quote(value)} is not in the range {low}..{high}"
            raise click.BadParameter(msg)
        return int(text)

    return integer


def target(text: str) -> str:
    """The type of an argument: a target as the tables call it; sm_90a may also be SM90a, 90a or a GPU such as H100."""
    try:
        return read_target(text, "").name
    except IllegalInstruction as error:
        near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
        raise click.BadParameter(error.reason + near) from None


def complete_instruction(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """The names that begin so, in full, or as people shorten them: what a shell offers."""
    from warpfrag.isa.instruction_names import spell
    from warpfrag.isa.ops import OPS
    from warpfrag.isa.rows import forms

    operations = dict.fromkeys(op.partition(".")[0] for op in OPS)
    names = [spell(form) for first in _beginning(operations, start.partition(".")[0]) for form in forms(first)]
    short = [name.replace(".sync.aligned", "") for name in names]
    count = Counter(LAYOUTS.sub("", name) for name in short)
    shortest = (bare if count[bare := LAYOUTS.sub("", name)] == 1 else name for name in short)  # the only layout
    return _beginning(names, start) or _beginning(shortest, start) or _beginning(short, start)


def complete_operand(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """The operands that begin so, of the instruction that stands before."""
    from warpfrag.tensorcore.registry import get

    try:
        return _beginning(get(context.params.get("name") or "").operands, start)
    except WarpfragError:
        return _beginning(("a", "b", "c", "d", "metadata", "scale_a", "scale_b"), start)


def complete_target(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """The targets that begin so, and the GPUs, in one word."""
    return _beginning((*targets(), *(name.lower().replace(" ", "-") for name in gpus())), start)


def complete_type(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """The element types that begin so, and their nicknames."""
    from warpfrag.isa.nicknames import nicknames

    return _beginning((*(name for row in nicknames().values() for name in row.types), *nicknames()), start)


def complete_file(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Samples, or names of files, which the shell completes itself."""
    from click.shell_completion import CompletionItem

    from warpfrag.tables.samples import PREFIX, SAMPLES

    samples = [PREFIX + name for name in SAMPLES] if start.startswith(PREFIX[:-1]) else []
    offered = [CompletionItem(sample) for sample in samples if sample.startswith(start)]
    return offered or [CompletionItem(start, type="file")]


def _beginning(words: Iterable[str], start: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(start.lower())]


def instruction_argument(function: Function) -> Function:
    """The argument INSTRUCTION."""
    return click.argument("name", metavar="INSTRUCTION", shell_complete=complete_instruction)(function)


def product_instruction_option(function: Function) -> Function:
    """Add --instruction, of a product whose instruction the operands may say."""
    return click.option(
        "--instruction", metavar="NAME", shell_complete=complete_instruction,
        help="Default: the instruction that cuBLAS uses for these operands.",
    )(function)  # fmt: skip


def operand_argument(function: Function) -> Function:
    """The argument OPERAND."""
    return click.argument("operand", metavar="OPERAND", shell_complete=complete_operand)(function)


def target_option_with_help(text: str) -> Callable[[Function], Function]:
    """The option --target, with what it does."""
    return click.option("--target", metavar="SM", type=target, shell_complete=complete_target, help=text)


def type_option(*names: str, help_text: str) -> Callable[[Function], Function]:
    """An option that names an element type."""
    return click.option(*names, metavar="TYPE", shell_complete=complete_type, help=help_text)


def target_option(function: Function) -> Function:
    """The option --target of most verbs."""
    return target_option_with_help("Refuse what this target does not accept; for wmma, use its fragments.")(function)


def backend_option(function: Function) -> Function:
    """The option --backend."""
    option = click.option(
        "--backend",
        metavar="cpu|cuda|native|auto",
        default="cpu",
        show_default=True,
        help="What computes: the CPU, a GPU by emulation (cuda), its tensor cores (native), the fastest (auto).",
    )
    return option(function)


def arch_option(function: Function) -> Function:
    """The option --arch."""
    option = click.option(
        "--arch",
        metavar="SM",
        default="sm_90",
        show_default=True,
        type=target,
        shell_complete=complete_target,
        help="The architecture whose arithmetic is used.",
    )
    return option(function)


def file_argument(function: Function) -> Function:
    """The argument FILE, stdin without it."""
    return click.argument("file", default="-", metavar="[FILE|-]", shell_complete=complete_file)(function)


def file_option(*names: str, help_text: str) -> Callable[[Function], Function]:
    """An option that names a file. It stays text: opening the file reports what is wrong with it."""
    return click.option(*names, metavar="FILE", shell_complete=complete_file, help=help_text)


def to_option(function: Function) -> Function:
    """The option --to, which names a notation."""
    names = [name for name, notation in NOTATIONS.items() if notation.is_text]
    option = click.option("--to", "notation", type=click.Choice(names), help="Write layouts in this notation instead.")
    return option(function)


def warp_option(function: Function) -> Function:
    """The option --warp of verbs that show places."""
    return click.option("--warp", type=integer(), metavar="N", help="Which warp of a warpgroup (wgmma, tcgen05.ld).")(
        function
    )


def load_options(function: Function) -> Function:
    """The options --through, --column and --base-lane: an operand of tensor memory as a load brings it to registers."""
    for option in (
        click.option("--base-lane", type=integer(), metavar="N", help="Of the load's address: 0, or 16 of shapes 16x."),
        click.option("--column", type=integer(), metavar="N", help="The first column of the operand that it loads."),
        click.option("--through", metavar="LOAD", help="Show the registers after this tcgen05.ld, not tensor memory."),
    ):
        function = option(function)
    return function


def json_option(function: Function) -> Function:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def choice_options(*names: str) -> Callable[[Function], Function]:
    """The options for coordinates of CHOICES, each None unless given."""

    def add(function: Function) -> Function:
        for name in reversed(names):
            option = click.option(f"--{name.replace('_', '-')}", name, type=integer(), metavar="N", help=CHOICES[name])
            function = option(function)
        return function

    return add
