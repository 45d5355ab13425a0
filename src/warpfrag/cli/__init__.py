"""The command `warpfrag`: one module per verb, loaded when the verb is called.

To add a verb, add a line to `VERB_GROUPS` and a module of that name whose `command` is made by
`cli.support.verbs.verb`.

Exit statuses are `STATUSES`. An error is one sentence on stderr and, with `--json`, an object
`{"schema": 1, "error": {...}}` on stdout.

A verb's module becomes an attribute of this one when it is loaded, so the builtin `list` must not be called here.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from warpfrag import __version__
from warpfrag.cli.support.output import (
    BROKEN_PIPE,
    DONE,
    ERROR,
    FAULT,
    INTERRUPTED,
    STATUSES,
    OutputClosed,
    OutputFailed,
    echo,
    echo_error,
    flush,
    print_error,
)
from warpfrag.cli.support.verbs import PipeSafeCommand, print_and_exit
from warpfrag.errors import IllegalInstruction, WarpfragError, quote
from warpfrag.layout.garbage import no_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

VERB_GROUPS = {
    "Instructions and layouts": {
        "list": "The instructions, filtered by target, type and shape.",
        "info": "Everything about one instruction.",
        "name": "What it is called elsewhere: CuTe, SASS, LLVM, source.",
        "at": "Which element a lane holds.",
        "where": "Which lane, register and bits hold an element.",
        "table": "A whole operand, by matrix or by lane.",
        "identify": "Which operands have a layout of CuTe or Triton.",
        "legal": "Whether a target accepts an instruction.",
        "draw": "A figure, as SVG, PNG or text.",
        "explore": "A page of every fragment, for a browser.",
    },
    "Registers and shared memory": {
        "pack": "From a matrix to hex registers.",
        "unpack": "From a hex register dump to a matrix.",
        "descriptor": "A descriptor of wgmma or tcgen05, explained or built.",
        "relayout": "What moves a matrix from one fragment to another.",
        "loads": "Plans to fill an operand from shared memory.",
        "stores": "Plans to store an operand to shared memory.",
    },
    "Arithmetic of an instruction": {
        "run": "Execute one instruction, and trace one output.",
        "rules": "What the tensor cores of an architecture compute, with references.",
        "products": "What is multiplied and added for one element of D.",
        "diagnose": "Which mistake gives this wrong result.",
        "vectors": "Test vectors that expose layout mistakes.",
        "emit": "CUDA C++ or PTX around an instruction.",
    },
    "Whole products": {
        "predict": "What torch.matmul gives on an H200.",
        "order": "Which order of additions gives an observed product.",
        "explain": "Why two results of one product differ.",
        "error": "How far a product is from the exact one.",
        "survey": "Ask the cuBLAS of this machine which kernels it chooses for layers.",
        "sweep": "A study of many products, which can be resumed.",
    },
    "Kernels": {
        "ptx": "What a PTX file holds, and run its kernels.",
        "test": "Run the kernels of a TOML file and compare their results.",
    },
    "This installation": {
        "samples": "Example files for trying the other verbs.",
        "check": "Compare this installation with captured results of real GPUs.",
        "verify": "Compare with the GPU of this machine.",
        "cache": "Where compiled code is stored, its size, and how to remove it.",
    },
}
VERBS = {verb: text for group in VERB_GROUPS.values() for verb, text in group.items()}
EXAMPLE = """\
  warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3     # which lane holds A[9, 3]
  warpfrag --help                                       # every verb; each has its own --help"""

SPELLINGS = {  # of Python, as patterns, and of the command line
    'rounding="rne"': "--rounding rne",
    r"\btiled\(\) puts": ":row=N,col=N puts",
    r"(?<=\.tiled\(row=)(\d+), ": r"\1,",
    r"\bsource\.tiled\((.*?)\)": r"SRC:\1",
    r"\btarget\.tiled\((.*?)\)": r"DST:\1",
}

COMPLETE = "_WARPFRAG_COMPLETE"  # set by a shell that asks what to complete a word with
TRACEBACK = "WARPFRAG_TRACEBACK"


class VerbGroup(PipeSafeCommand, click.Group):
    """The verbs of `VERBS`. Listing them imports none; calling one imports that one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The verbs, in the order in which one would meet them."""
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a verb."""
        if cmd_name not in VERBS:
            return None
        with no_garbage_collection():
            command: click.Command = import_module(f"warpfrag.cli.{cmd_name}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that begin so, without importing them, and the options."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name; an unknown verb is refused with the nearest one."""
        verb = args[0]
        if verb not in VERBS and not verb.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(verb.lower()[:20], VERBS, n=1)
            hint = f"the nearest is {near[0]!r}" if near else f"the verbs are {', '.join(VERBS)}"
            msg = f"there is no verb {quote(verb)}: {hint}"
            raise click.UsageError(msg)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The tables of verbs, without importing them."""
        width = max(map(len, VERBS))
        for heading, group in VERB_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in group.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """A first example, and what the exit status means."""
        with formatter.section("Example"):
            formatter.write(EXAMPLE + "\n")
        with formatter.section("Exit status"):
            formatter.write_dl([(str(status), meaning) for status, meaning in STATUSES.items()])


@click.command(cls=VerbGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    help="Print the version.",
    callback=print_and_exit(lambda context: f"{context.command_path} {__version__}"),
)
@click.pass_context
def commands(context: click.Context) -> None:
    """NVIDIA's matrix instructions without a GPU: layouts, arithmetic bit for bit, whole products, kernels of PTX."""
    if context.invoked_subcommand is None:
        echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    if COMPLETE in os.environ:
        import_module("warpfrag.cli.support.bash_completion")
    as_json = "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words)
    try:
        return _status(words, as_json=as_json)
    except (OutputClosed, BrokenPipeError):
        return BROKEN_PIPE
    except OutputFailed as error:
        echo_error(f"warpfrag: cannot write the answer: {error}")
        return ERROR
    finally:
        _forget_unwritten()


def _status(words: list[str], *, as_json: bool) -> int:
    """Answer, or say why there is no answer; the exit status."""
    try:
        status = _answer(words, as_json=as_json)
        flush()
    except (OutputClosed, BrokenPipeError, OutputFailed):
        raise
    except OSError as error:  # whatever the machine refuses, not warpfrag
        where = f": {quote(error.filename)}" if error.filename else ""
        print_error(error, f"{error.strerror or error}{where}", as_json=as_json)
        return ERROR
    except (click.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__  # click takes an EOFError for a user who has gone, but no verb asks anybody anything
        return _fault(cause, as_json=as_json) if isinstance(cause, EOFError) else INTERRUPTED
    except MemoryError as error:
        print_error(error, "there is not enough memory", as_json=as_json)
        return ERROR
    except Exception as error:  # noqa: BLE001 (whatever gets here was not foreseen)
        return _fault(error, as_json=as_json)
    return status


def _answer(words: list[str], *, as_json: bool) -> int:
    """Run the verb that the words name; the exit status. An error is printed in one sentence."""
    if sys.stdout is None:
        msg = "stdout is closed"
        raise OutputFailed(msg)
    try:
        status: object = commands.main(words, prog_name="warpfrag", standalone_mode=False)
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        print_error(error, error.format_message().rstrip(".") + where, as_json=as_json)
        return ERROR
    except (click.ClickException, WarpfragError) as error:
        print_error(error, _as_typed(str(error)) + _suggestion(words, error), as_json=as_json)
        return ERROR
    return status if isinstance(status, int) else DONE


def _as_typed(message: str) -> str:
    """A message with what it says in Python as the command line spells it."""
    for python, typed in SPELLINGS.items():
        message = re.sub(python, typed, message)
    return message


def _suggestion(words: list[str], error: Exception) -> str:
    """The command with the nearest instruction in place of one that was refused, or with the verb for a file of PTX."""
    if not isinstance(error, IllegalInstruction) or words.count(error.name) != 1:
        return ""
    import shlex

    if error.name.endswith((".ptx", ".cu")):
        return f"; of a whole kernel: warpfrag ptx {'run' if words[0] == 'run' else 'info'} {shlex.quote(error.name)}"
    if not error.nearest:
        return ""
    return f"; try: warpfrag {shlex.join(error.nearest[0] if word == error.name else word for word in words)}"


def _fault(error: Exception, *, as_json: bool) -> int:
    """Report an internal error, in one line, or with the traceback if that is asked for."""
    if os.environ.get(TRACEBACK):
        import traceback

        echo_error("".join(traceback.format_exception(error)).rstrip())
    print_error(
        error,
        f"internal error of warpfrag: {type(error).__name__}: {quote(str(error))}; please report"
        f" it to its maintainers with the command and what it prints after `export {TRACEBACK}=1`",
        as_json=as_json,
    )
    return FAULT


def _forget_unwritten() -> None:
    """Let what cannot be written go nowhere: Python would complain once more when it flushes at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
