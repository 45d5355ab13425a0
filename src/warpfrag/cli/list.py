"""`warpfrag list`: which instructions there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.support.options import json_option, target_option_with_help, type_option
from warpfrag.cli.support.output import NO, echo, echo_error, print_json, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import WarpfragError, quote
from warpfrag.isa.nicknames import ROLES, nickname

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction


@verb(
    "warpfrag list --target sm_90a -a e4m3",
    "warpfrag list --op wmma --type bf16 --long      # with the targets that accept each",
    "warpfrag list --sparse --shape m16n8k64 --json",
    "warpfrag list -a fp8 --target 'RTX 4090'         # nicknames of types, names of GPUs",
)
@target_option_with_help("Only what this target accepts.")
@type_option(
    "--type", "any_type", help_text="Element type of any operand; nicknames such as fp8 and nvfp4 are accepted."
)
@type_option("-a", help_text="Element type of A.")
@type_option("-b", help_text="Element type of B.")
@type_option("-c", help_text="Element type of C.")
@type_option("-d", help_text="Element type of D.")
@click.option("--shape", metavar="SHAPE", help="Such as m16n8k16.")
@click.option("--kind", metavar="KIND", help="The word after kind::, such as mxf4.")
@click.option("--op", metavar="OP", help="The operation, such as mma.sp; wmma and tcgen05 match all their operations.")
@click.option("--sparse/--dense", "sparse", default=None, help="Only with, or without, a sparse A.")
@click.option("--long", "-l", "is_long", is_flag=True, help="With the targets that accept each.")
@json_option
def command(*, target: str | None, sparse: bool | None, is_long: bool, as_json: bool, **asked: str | None) -> int:
    """List instructions, one name per line; options filter them.

    tcgen05 has fifteen thousand products: they are listed only with a filter, such as --op tcgen05.

    The exit status is 1 if no instruction matches.
    """
    from warpfrag.tensorcore.registry import find

    answers = {question: answer for question, answer in asked.items() if answer is not None}
    listed = find(target=target, sparse=sparse)
    if answers and target is None and sparse is None:
        listed += find(op="tcgen05")
    matches = [
        instruction
        for instruction in listed
        if all(_answers(instruction, question, answer) for question, answer in answers.items())
    ]
    if answers and not matches:
        everything = [*find(), *find(op="tcgen05")]
        for question, answer in answers.items():
            _check(question, answer, everything)
    if as_json:
        print_json("list", {"count": len(matches), "instructions": [_json(instruction) for instruction in matches]})
    elif is_long and matches:
        print_table(["instruction", "targets"], [[entry.name, " ".join(entry.targets)] for entry in matches])
    else:
        for instruction in matches:
            echo(instruction.name)
    if not matches:
        echo_error("warpfrag: no instruction matches all of these filters")
        return NO
    return 0


def _words(instruction: Instruction, question: str) -> set[str]:
    """The words of an instruction that could answer a question."""
    form = instruction.form
    if question == "any_type":
        return {getattr(form, role) for role in (*ROLES, "memory")}
    return {str(getattr(form, question))}


def _answers(instruction: Instruction, question: str, answer: str) -> bool:
    wanted = answer.lower()
    if question in (*ROLES, "any_type") and (called := nickname(answer)):
        return any(called.fits(instruction.form, role) for role in (ROLES if question == "any_type" else question))
    words = _words(instruction, question)
    if question == "op" and wanted in ("wmma", "tcgen05"):
        return any(word.startswith(f"{wanted}.") for word in words)
    return wanted in words


def _check(question: str, answer: str, everything: list[Instruction]) -> None:
    """Refuse a word that no instruction has: it is more likely mistyped than meant."""
    if any(_answers(instruction, question, answer) for instruction in everything):
        return
    known = dict.fromkeys(word for instruction in everything for word in sorted(_words(instruction, question)) if word)
    asked = f"type of {question.upper()}" if question in ROLES else question.removeprefix("any_")
    msg = f"no instruction has the {asked} {quote(answer)}: there are {', '.join(known)}"
    raise WarpfragError(msg)


def _json(instruction: Instruction) -> dict[str, Any]:
    form = instruction.form
    return {
        "name": instruction.name,
        "op": form.op,
        "shape": str(form.shape),
        "kind": form.kind,
        **{role: getattr(form, role) for role in ROLES},
        "sparse": instruction.pattern is not None,
        "targets": instruction.targets,
    }
