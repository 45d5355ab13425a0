"""The command `warpfrag`: each verb is a function in a module that is imported when the verb is called.

To add a verb, add a line to `VERB_GROUPS` that names its module, and in that module a function with the verb's name,
decorated with `cli.io.verbs.verb`.

Exit statuses are `STATUSES`. An error is one sentence on stderr and, with `--json`, an object
`{"schema": 2, "error": {...}}` on stdout.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from warpfrag import __version__
from warpfrag.cli.io import output
from warpfrag.cli.io.verbs import PipeSafeCommand, VerbCommand, print_and_exit
from warpfrag.errors import IllegalInstruction, WarpfragError, quote

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VERB_GROUPS = {  # heading: verb, module, help
    "Instructions and layouts": {
        "find": ("name_verbs", "List instructions by architecture, type and shape."),
        "get": ("instruction_verbs", "Show everything about one instruction."),
        "aliases": ("name_verbs", "Translate between PTX, SASS, CuTe, LLVM and MLIR names."),
        "legal": ("name_verbs", "Check whether an architecture accepts an instruction."),
        "at": ("element_verbs", "Show which elements a lane holds."),
        "where": ("element_verbs", "Show which lane, register and bits hold an element."),
        "table": ("element_verbs", "Show a whole operand, by matrix or by lane."),
        "identify": ("identify_verb", "Find the operand that matches a CuTe or Triton layout."),
        "draw": ("figure_verbs", "Draw an instruction as SVG, PNG or text."),
        "explore": ("figure_verbs", "Write an interactive page that shows every fragment."),
    },
    "Registers and shared memory": {
        "pack": ("pack_verbs", "Convert a matrix to hex registers."),
        "unpack": ("pack_verbs", "Convert a hex register dump to a matrix."),
        "descriptor": ("descriptor_verb", "Decode or build a wgmma or tcgen05 descriptor."),
        "relayout": ("plan_verbs", "Plan the conversion of one fragment to another."),
        "loads": ("plan_verbs", "Plan loads of an operand from shared memory."),
        "stores": ("plan_verbs", "Plan stores of an operand to shared memory."),
    },
    "One instruction": {
        "execute": ("execute_verb", "Execute one instruction, and trace one output."),
        "arithmetic-table": ("code_verbs", "Show the arithmetic of an architecture's tensor cores, with references."),
        "products": ("product_verb", "List the terms of one element of D."),
        "diagnose": ("diagnose_verb", "Find the mistake that explains a wrong result."),
        "test-vectors": ("code_verbs", "Write test vectors: input registers and expected outputs."),
        "emit": ("code_verbs", "Write CUDA C++ or PTX code that executes instructions."),
    },
    "Matrix multiplications": {
        "gemm": ("gemm_verbs", "Compute a GEMM bit for bit, and trace one output."),
        "predict": ("gemm_verbs", "Predict the result of torch.matmul on an H200."),
        "batch-invariance": ("gemm_verbs", "List the batch sizes at which the bits of a layer's result change."),
        "find-order": ("gemm_verbs", "Find the order of additions that reproduces a GEMM result."),
        "explain": ("gemm_verbs", "Explain why two results of one GEMM differ."),
        "error-report": ("gemm_verbs", "Measure the error of a GEMM against the exact result."),
        "survey": ("sweep_verbs", "Record which kernels this machine's cuBLAS selects for layers."),
        "sweep": ("sweep_verbs", "Run many GEMMs from a file; resumes if interrupted."),
    },
    "Kernels and programs": {
        "ptx": ("ptx_verb", "Inspect, run, profile and compare the kernels of a PTX or CUDA file."),
        "record": ("record_verbs", "Record the kernel launches of a program on this machine's GPU."),
        "replay": ("record_verbs", "Run recorded launches without a GPU, and compare their memory."),
        "gpu": ("gpu_verb", "Run a CUDA program on a virtual GPU."),
    },
    "This installation": {
        "samples": ("installation_verbs", "List example files for the other verbs."),
        "check": ("installation_verbs", "Compare this installation with results captured from GPUs."),
        "verify": ("installation_verbs", "Compare this installation with this machine's GPU."),
        "cache": ("installation_verbs", "Show or clear the compiled code on disk."),
        "tools": ("installation_verbs", "List the CUDA tools that were found, with their versions."),
    },
}
VERBS = {verb: row for group in VERB_GROUPS.values() for verb, row in group.items()}
EXAMPLE = """\
  warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3     # which lane holds A[9, 3]
  warpfrag --help                                       # every verb; each has its own --help"""

OPTION_SPELLINGS = {  # a pattern for a Python spelling in a message: how the same thing is written on the command line
    'rounding="rne"': "--rounding rne",
    r"^\"find\((\w+)=(.*?)\)\"": r"--\1 \2",
    r"\btiled\(\) puts": ":row=N,col=N puts",
    r"pass it, as in shape=\(16, 8\)": "pass it, as in --shape 16x8",
    r"( takes [1-9]\d* arguments \(.*\), got \d+)$": r"\1: pass each with --arg: x.npy, out:f32:16x8 (zeros), i32:7",
}

COMPLETE = "_WARPFRAG_COMPLETE"  # the variable that a shell sets to request completions
TRACEBACK = "WARPFRAG_TRACEBACK"


def verb_command(verb: str) -> VerbCommand:
    """Import a verb's module and return its command."""
    command: VerbCommand = getattr(import_module(f"warpfrag.cli.{VERBS[verb][0]}"), verb.replace("-", "_"))
    return command


class VerbGroup(PipeSafeCommand, click.Group):
    """The group of all verbs; a verb's module is imported only when the verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the verbs in the order of the help text."""
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of a verb, or None if there is no such verb."""
        return verb_command(cmd_name) if cmd_name in VERBS else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options and verbs without importing their modules."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb, help=text) for verb, (_, text) in VERBS.items() if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; for an unknown verb, raise an error that suggests one."""
        verb = args[0]
        if verb not in VERBS and not verb.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(verb.lower()[:20], VERBS, n=1)
            hint = f"the nearest is {near[0]!r}" if near else "`warpfrag --help` lists the verbs"
            if verb == "run":
                hint = "use `ptx run` for a kernel, `gpu` for a program, `execute` for one mma, `gemm` for a GEMM"
            raise click.UsageError(f"unknown verb {quote(verb)}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the tables of verbs, without importing their modules."""
        width = max(map(len, VERBS))
        for heading, group in VERB_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), text) for verb, (_, text) in group.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write an example and the exit statuses."""
        with formatter.section("Example"):
            formatter.write(EXAMPLE + "\n")
        with formatter.section("Exit status"):
            formatter.write_dl([(str(status), meaning) for status, meaning in output.STATUSES.items()])


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
    """Run, debug and test NVIDIA tensor-core code without a GPU: layouts, arithmetic, GEMMs, kernels and programs."""
    if context.invoked_subcommand is None:
        output.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    try:
        return _status(words, as_json="--json" in words)
    except (output.OutputClosed, BrokenPipeError):
        return output.BROKEN_PIPE
    except output.OutputFailed as error:
        output.echo_error(f"warpfrag: cannot write the output: {error}")
        return output.ERROR
    finally:
        _discard_unwritten()


def _status(words: list[str], *, as_json: bool) -> int:
    """Run the verb, report the reason if it fails, and return the exit status."""
    try:
        status = _answer(words, as_json=as_json)
        output.flush()
    except (output.OutputClosed, BrokenPipeError, output.OutputFailed):
        raise
    except OSError as error:  # the operating system rejects the argument, not warpfrag
        where = f": {quote(error.filename)}" if error.filename else ""
        output.print_error(error, f"{error.strerror or error}{where}", as_json=as_json)
        return output.ERROR
    except (click.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__  # click treats EOFError as Ctrl-D at a prompt, but no verb prompts
        return _fault(cause, as_json=as_json) if isinstance(cause, EOFError) else output.INTERRUPTED
    except MemoryError as error:
        output.print_error(error, "not enough memory", as_json=as_json)
        return output.ERROR
    except Exception as error:  # noqa: BLE001 (anything else is a defect)
        return _fault(error, as_json=as_json)
    return status


def _answer(words: list[str], *, as_json: bool) -> int:
    """Run a verb, print its error in one sentence if it fails, and return the exit status."""
    if sys.stdout is None:
        raise output.OutputFailed("stdout is closed")
    try:
        status: object = commands.main(words, prog_name="warpfrag", standalone_mode=False)
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        if error.ctx and re.match(r"No such option '[^']*'\.?$|Got unexpected extra", error.format_message()):
            options = (each.opts[0] for each in error.ctx.command.params if isinstance(each, click.Option))
            _, *expected = error.ctx.command.collect_usage_pieces(error.ctx)
            where = f"; expected {' '.join(expected) or 'no arguments'}; options: {' '.join(options)}{where}"
        output.print_error(error, error.format_message().rstrip(".") + where, as_json=as_json)
        return output.ERROR
    except (click.ClickException, WarpfragError) as error:
        output.print_error(error, _as_typed(str(error)) + _suggestion(words, error), as_json=as_json)
        return output.ERROR
    return status if isinstance(status, int) else output.DONE


def _as_typed(message: str) -> str:
    """Return a message in which Python spellings are replaced by those of the command line."""
    for python, typed in OPTION_SPELLINGS.items():
        message = re.sub(python, typed, message)
    return message


def _suggestion(words: list[str], error: Exception) -> str:
    """Return a suggestion (the nearest instruction, or the verb for a PTX file), or an empty string."""
    if not isinstance(error, IllegalInstruction) or words.count(error.name) != 1:
        return ""
    import shlex

    if error.name.endswith((".ptx", ".cu")):
        action = "run" if words[0] == "execute" else "info"
        return f"; for a whole kernel: warpfrag ptx {action} {shlex.quote(error.name)}"
    if not error.nearest:
        return ""
    return f"; try: warpfrag {shlex.join(error.nearest[0] if word == error.name else word for word in words)}"


def _fault(error: Exception, *, as_json: bool) -> int:
    """Report an internal error in one line; with WARPFRAG_TRACEBACK, print the traceback first."""
    if os.environ.get(TRACEBACK):
        import traceback

        output.echo_error("".join(traceback.format_exception(error)).rstrip())
    msg = f"internal error ({type(error).__name__}: {quote(str(error))}); please report it with the output of"
    output.print_error(error, f"{msg} {TRACEBACK}=1 and the same command", as_json=as_json)
    return output.FAULT


def _discard_unwritten() -> None:
    """Redirect unwritable output to /dev/null, because Python would report the error again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
