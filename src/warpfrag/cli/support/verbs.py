"""How a verb is declared: a command whose help ends in examples and is printed as every answer is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.output import echo

if TYPE_CHECKING:
    from collections.abc import Callable

NEGATIVE = re.compile(r"-\d+")


class PipeSafeCommand(click.Command):
    """A command whose help is printed as answers are: click alone hides a pipe that breaks."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option --help."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = print_and_exit(lambda context: context.get_help())
        return option


def print_and_exit(text: Callable[[click.Context], str]) -> Callable[[click.Context, click.Parameter, bool], None]:
    """What an option does that prints a text instead of running the command."""

    def callback(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:  # noqa: FBT001 (click's)
        if asked and not context.resilient_parsing:
            echo(text(context))
            context.exit()

    return callback


class VerbCommand(PipeSafeCommand):
    """A command with examples at the end of its help, and for which -1 is a number rather than an option."""

    examples: tuple[str, ...] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line; with a negative number, arguments refuse what options would."""
        ctx.ignore_unknown_options = any(NEGATIVE.fullmatch(word) for word in args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        """The examples, as they are."""
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))


def verb(*examples: str) -> Callable[[Callable[..., int | None]], VerbCommand]:
    """Declare the command of a verb; what the function returns is the exit status."""

    def declare(function: Callable[..., int | None]) -> VerbCommand:
        command = click.command(cls=VerbCommand, context_settings={"help_option_names": ["-h", "--help"]})(function)
        command.examples = examples
        return command

    return declare
