"""The command `warpfrag`: one module per verb, loaded when the verb is called.

To add a verb, add a line to `VERBS` and a module of that name whose `command` is made by `warpfrag.cli.command.verb`.

Exit codes: 0; 1 for a question answered with no (`legal`, an empty `list`, a difference in `check` or `verify`, a
mistake that `vectors --self-check` misses); 3 for `verify` without a GPU; 2 for bad input: one sentence on stderr and,
with `--json`, an object `{"schema": 1, "error": {...}}` on stdout.

A verb's module becomes an attribute of this one when it is loaded, so the builtin `list` must not be called here.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from warpfrag import __version__
from warpfrag.cli.output import OutputClosed, refuse, say
from warpfrag.errors import WarpfragError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "list": "Which instructions there are.",
    "info": "Everything about one instruction.",
    "at": "Which element a lane holds.",
    "where": "Which lane, register and bits hold an element.",
    "table": "A whole operand, by matrix or by lane.",
    "legal": "Whether a target accepts an instruction.",
    "products": "What is multiplied and added for one element of D.",
    "pack": "From a matrix to hex registers.",
    "unpack": "From a hex register dump to a matrix.",
    "draw": "A figure, as SVG, PNG or text.",
    "explore": "A page that shows every fragment, in a browser.",
    "emit": "CUDA C++ or PTX around an instruction.",
    "vectors": "Registers in and out that show mistakes.",
    "run": "Execute one instruction, and trace one output.",
    "check": "Compare this installation with captured results of real GPUs.",
    "verify": "Compare with the GPU of this machine.",
}
EXAMPLE = """\
  warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3     # which lane holds A[9, 3]
  warpfrag --help                                       # every verb; each has its own --help"""

BAD_INPUT = 2
INTERRUPTED = 130  # as a shell reports it: 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE


class Commands(click.Group):
    """The verbs of `VERBS`. Listing them imports none; calling one imports that one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The verbs, in the order in which one would meet them."""
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"warpfrag.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name; an unknown verb is refused with the nearest one."""
        verb = args[0]
        if verb not in VERBS and not verb.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(verb.lower(), VERBS, n=1)
            hint = f"the nearest is {near[0]!r}" if near else f"the verbs are {', '.join(VERBS)}"
            msg = f"there is no verb {verb!r}: {hint}"
            raise click.UsageError(msg)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([*VERBS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """A first example."""
        with formatter.section("Example"):
            formatter.write(EXAMPLE + "\n")


@click.command(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """NVIDIA's warp-level matrix instructions: which lane, register and bit holds which matrix element."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    as_json = "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words)
    try:
        status: Any = commands.main(words, prog_name="warpfrag", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        _forget_output()
        return BROKEN_PIPE
    except OSError as error:
        _forget_output()
        refuse(error, f"cannot write the answer: {error.strerror or error}", as_json=False)
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        refuse(error, error.format_message().rstrip(".") + where, as_json=as_json)
        return BAD_INPUT
    except (click.ClickException, WarpfragError) as error:
        refuse(error, str(error), as_json=as_json)
        return BAD_INPUT
    return status if isinstance(status, int) else 0


def _forget_output() -> None:
    """Let what is still to be written go nowhere: Python would complain once more when it flushes at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
