"""What the verbs share: how a verb is declared, and the arguments and options that several of them take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warpfrag.errors import IllegalInstruction
from warpfrag.isa import targets

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")

NEGATIVE = re.compile(r"-\d+")

# The coordinates that choose among several matrices or parts of a word, and what each option says.
CHOICES = {
    "mma": "Which of the four products of m8n8k4 with f16.",
    "matrix": "Which matrix of ldmatrix or stmatrix.",
    "selector": "The sparsity selector.",
    "thread_id": "Which lanes supply the scale factors.",
    "byte_id": "The first byte of the scale word that is used.",
}


class Verb(click.Command):
    """A command with examples at the end of its help, and for which -1 is a number rather than an option."""

    def __init__(self, *arguments: Any, examples: tuple[str, ...] = (), **settings: Any) -> None:  # noqa: ANN401 (click's)
        """Keep the examples."""
        super().__init__(*arguments, **settings)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line; with a negative number, arguments refuse what options would."""
        ctx.ignore_unknown_options = any(NEGATIVE.fullmatch(word) for word in args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        """The examples, as they are."""
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))


def verb(*examples: str) -> Callable[[Callable[..., int | None]], Verb]:
    """Declare the command of a verb; what the function returns is the exit code."""

    def declare(function: Callable[..., int | None]) -> Verb:
        settings = {"help_option_names": ["-h", "--help"]}
        return click.command(cls=Verb, examples=examples, context_settings=settings)(function)

    return declare


def read_target(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """A target as the tables call it: sm_90a may also be written SM90a or 90a."""
    if text is None:
        return None
    try:
        return targets.read_target(text, "").name
    except IllegalInstruction as error:
        near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
        raise click.BadParameter(error.reason + near) from None


def instruction_argument(function: Function) -> Function:
    """The argument INSTRUCTION."""
    return click.argument("name", metavar="INSTRUCTION")(function)


def operand_argument(function: Function) -> Function:
    """The argument OPERAND."""
    return click.argument("operand", metavar="OPERAND")(function)


def target_option(function: Function) -> Function:
    """The option --target where it is optional."""
    text = "Refuse what this target does not accept; for wmma, take its fragments."
    return click.option("--target", metavar="SM", callback=read_target, help=text)(function)


def json_option(function: Function) -> Function:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def choice_options(*names: str) -> Callable[[Function], Function]:
    """The options for coordinates of CHOICES, each None unless given."""

    def add(function: Function) -> Function:
        for name in reversed(names):
            option = click.option(f"--{name.replace('_', '-')}", name, type=int, metavar="N", help=CHOICES[name])
            function = option(function)
        return function

    return add
