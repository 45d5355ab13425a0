"""`warpfrag name`: what something is called elsewhere, and what a name from elsewhere means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from warpfrag.cli.support.options import complete_instruction, json_option
from warpfrag.cli.support.output import NO, echo, print_heading, print_illegal, print_json, print_table, wrapped
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import IllegalInstruction
from warpfrag.isa.alias_source import is_plain, statements
from warpfrag.isa.aliases import Meaning, aliases_of, meaning
from warpfrag.isa.framework_names import PLAIN_LAYOUT
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import resolve
from warpfrag.isa.nicknames import nickname
from warpfrag.isa.targets import gpu_called, gpus

if TYPE_CHECKING:
    from warpfrag.isa.aliases import Aliases
    from warpfrag.isa.qualifiers import Form

MAX_DETAILED = 4  # instructions whose names are shown, as fit on a screen
MAX_LISTED = 12  # instructions of a list that is text; --json has them all


@verb(
    "warpfrag name SM80_16x8x16_F32F16F16F32_TN                  # a CuTe atom",
    "warpfrag name HMMA.16816.F32                                # machine code",
    "warpfrag name llvm.nvvm.mma.m16n8k16.row.col.bf16           # an intrinsic of LLVM",
    "warpfrag name 'asm(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0'   # a line of source",
    "warpfrag name mma.m16n8k32.s32.s8.s8.s32                    # what PTX is called elsewhere",
    "warpfrag name __hmma_m16n16k16_mma_f32f32                   # a function of CUDA C++",
    "warpfrag name hopper                                        # a generation of GPUs",
    "warpfrag name '#ttg.nvidia_mma<{versionMajor = 3, instrShape = [16, 64, 16]}>'   # a layout of Triton",
    "warpfrag name 'RTX 4090'                                    # a GPU; nvfp4: an element type",
)
@click.argument("name", metavar="NAME", shell_complete=complete_instruction)
@json_option
def command(*, name: str, as_json: bool) -> int:
    """What a name from elsewhere means, and what each instruction that it fits is called elsewhere.

    NAME is a CuTe atom, a line of SASS, an NVVM intrinsic, an MLIR operation, a function of CUDA C++, CUTLASS's Mma, a
    layout of Triton, source with inline assembly, PTX, a GPU or an element type. The exit status is 1 if it is
    unknown; then the nearest names are printed, or why it is out of scope.
    """
    if gpu := gpu_called(name):
        return _print_target(name, gpu, as_json=as_json)
    if called := nickname(name):
        return _print_type(name, called.types, called.lists, as_json=as_json)
    if layout := re.search(PLAIN_LAYOUT, name):
        return _print_layout(name, layout[1], as_json=as_json)
    try:
        meant, forms = _meant(name)
    except IllegalInstruction as refusal:
        return _print_nothing(name, refusal, as_json=as_json)
    if as_json:
        among = [spell(form) for form in meant.among] if meant else []
        facts = {"notation": meant.notation if meant else "ptx", "how": (meant.how or None) if meant else None}
        print_json("name", {"asked": name, **facts, "instructions": [_json(form) for form in forms], "among": among})
        return 0
    if meant and meant.how:
        echo(wrapped(f"{meant.name} is {meant.how}:"))
    for place, form in enumerate(forms[:MAX_LISTED]):
        if place:
            echo()
        print_heading(spell(form))
        if len(forms) <= MAX_DETAILED:
            _print_aliases(aliases_of(form))
    if len(forms) > MAX_LISTED:
        echo(f"... and {len(forms) - MAX_LISTED} more; --json lists all")
    if meant and meant.among:
        _print_among(meant)
    return 0


def _meant(text: str) -> tuple[Meaning | None, tuple[Form, ...]]:
    """The instructions that a text fits, however many; IllegalInstruction if none."""
    if not is_plain(text):
        several = statements(text)
        if several:
            return None, tuple(dict.fromkeys(resolve(name) for name in several))
        meant = meaning(text)
        if meant and meant.forms:
            return meant, meant.forms
    return None, (resolve(text),)


def _print_aliases(names: Aliases) -> None:
    by_code: dict[str, list[str]] = {}
    for target, code in names["sass"].items():
        by_code.setdefault(code, []).append(target)
    rows = [["CuTe", names["cute"] or "-"]]
    rows += [["SASS", f"{code}  ({' '.join(targets)})"] for code, targets in by_code.items()] or [["SASS", "-"]]
    rows += [["NVVM", names["nvvm"] or "-"], ["MLIR", names["mlir"] or "-"]]
    rows += [["also", name] for name in names["also"]]
    for kind, name in rows:
        echo(wrapped(f"  {kind}  {name}", indent=8))


def _print_among(meant: Meaning) -> None:
    echo()
    echo(wrapped(f"{meant.name} is also emitted for:"))
    for form in meant.among[:MAX_LISTED]:
        echo(f"  {spell(form)}")
    if len(meant.among) > MAX_LISTED:
        echo(f"  ... and {len(meant.among) - MAX_LISTED} more; --json lists all")


def _print_layout(text: str, layout: str, *, as_json: bool) -> int:
    """A layout that no instruction has to have: `identify` says which operands do."""
    hint = "of no instruction; identify --triton says which operands have it"
    if as_json:
        print_json("name", {"asked": text, "notation": "triton", "layout": layout, "hint": hint})
    else:
        echo(f"{layout} is a layout of Triton, {hint}")
    return 0


def _print_target(text: str, gpu: str, *, as_json: bool) -> int:
    target = gpus()[gpu]
    if as_json:
        print_json("name", {"asked": text, "notation": "gpu", "gpu": gpu, "target": target})
    else:
        echo(f"{gpu} is {target}")
    return 0


def _print_type(text: str, types: tuple[str, ...], lists: dict[str, list[str]], *, as_json: bool) -> int:
    if as_json:
        print_json("name", {"asked": text, "notation": "type", "types": types, "with": lists})
        return 0
    echo(f"{text} is {' or '.join(types)}")
    if lists:
        print_table(["with", "one of"], [[name, " ".join(words)] for name, words in lists.items()])
    return 0


def _print_nothing(text: str, refusal: IllegalInstruction, *, as_json: bool) -> int:
    if as_json:
        facts = {"notation": None, "reason": refusal.reason, "nearest": refusal.nearest}
        print_json("name", {"asked": text, **facts, "instructions": [], "among": []})
    else:
        print_illegal(refusal)
    return NO


def _json(form: Form) -> dict[str, Any]:
    return {"instruction": spell(form), **aliases_of(form)}
