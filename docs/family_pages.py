"""Pages for every operation and shape, generated from the tables: operands, formulas, a figure, targets, evidence.

The shapes of wgmma with the same k share a page, which shows a narrow, a common and the widest n.

docs/build.py writes these pages next to the others; they are not in the repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from generated_tables import code, markdown_table

import warpfrag as wf
from warpfrag.isa.targets import targets
from warpfrag.layout.index_expressions import element_formulas, place_formulas

if TYPE_CHECKING:
    from pathlib import Path

    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import OperandBase

HEAD = "<!-- Written by docs/family_pages.py from the package's tables. Change the tables, not this page. -->\n"
WIDTHS = (8, 64, 256)  # of wgmma


def groups() -> dict[str, list[Instruction]]:
    """Group the instructions by operation and shape; wmma's loads and stores belong to their mma."""
    found: dict[str, list[Instruction]] = {}
    for instruction in wf.find():
        m, _, k = instruction.shape
        op = "wmma" if instruction.form.is_wmma else instruction.op.removesuffix("::ordered_metadata")
        shape = f"m{m}k{k}" if instruction.form.is_warpgroup else str(instruction.shape)
        found.setdefault(f"{op}.{shape}", []).append(instruction)
    return found


def of_some_widths(members: list[Instruction]) -> list[Instruction]:
    """Return the instructions whose operands and formulas are shown: all, except most wgmma widths."""
    return [one for one in members if not one.form.is_warpgroup or one.shape.n in WIDTHS]


def page(title: str, members: list[Instruction], folder: Path) -> str:
    """Return the page of a group, and write its figure into the folder."""
    shown = members[0]
    figure = f"{title}.svg"
    wf.draw(shown).save(folder / figure)
    parts = [
        f"# `{title}`\n\n{HEAD}",
        f"{len(members)} instructions. The figure shows the first. To draw any of them:",
        f"```console\n$ warpfrag draw {shown.name} -o figure.svg\n```",
        f"![The elements of {shown.name}]({figure})",
        f'<p class="live"><a href="../live/index.html#i={shown.name}">Open it in the live explorer</a></p>',
        "## Operands\n\n" + _operands(of_some_widths(members)),
        "## Formulas\n\n`i` is PTX's element number, `slots * reg + slot`. For the bases, see "
        "{doc}`../explanation/linear-map`.\n\n" + _formulas(of_some_widths(members)),
    ]
    parts.append("## Spellings, targets and evidence\n\n" + _spellings(members))
    sources = dict.fromkeys(source for member in members for source in member.sources)
    parts.append("## Sources\n\n" + "\n".join(f"- {source}" for source in sources))
    return "\n\n".join(parts) + "\n"


def _operands(members: list[Instruction]) -> str:
    """Return a table of the distinct operands of the group."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for member in members:
        for role, operand in member.operands.items():
            extents = " x ".join(map(str, operand.shape))
            held = ("shared memory", "") if operand.storage == "shared" else _held(operand)
            seen.setdefault((role, extents, *held), set()).add(str(operand.format))
    rows = [
        [f"`{role}`", code(sorted(formats)), extents, *held]
        for (role, extents, *held), formats in sorted(seen.items(), key=lambda kind: kind[0][0])
    ]
    return markdown_table(["operand", "formats", "matrix", "registers per lane", "elements per register"], rows)


def _held(operand: OperandBase) -> tuple[str, str]:
    return f"{operand.regs} x `{operand.ptx_type}`", str(operand.slots)


def _formulas(members: list[Instruction]) -> str:
    """Return every distinct layout of the group, with its operands."""
    users: dict[Layout, dict[str, set[str]]] = {}
    unknown = set()
    for member in members:
        for role, operand in member.operands.items():
            if operand.storage == "shared":
                continue
            if operand.spec.unknown:
                unknown.add(f"`{role}` of `{member.name}`: {operand.spec.unknown}")
            else:
                users.setdefault(operand.layout, {}).setdefault(role, set()).add(str(operand.format))
    parts = []
    for layout, roles in users.items():
        who = ", ".join(f"`{role}` of {code(sorted(formats), '`, `')}" for role, formats in roles.items())
        forth = [f"{name} = {text}" for name, text in element_formulas(layout).items()]
        back = [f"{name} = {text}" for name, text in place_formulas(layout).items()]
        lines = "\n".join([*forth, "", *back, "", str(layout)])
        parts.append(f"{who}\n\n```text\n{lines}\n```")
    return "\n\n".join([*parts, *(f"Not modelled: {reason}" for reason in sorted(unknown))])


def _spellings(members: list[Instruction]) -> str:
    """Group instructions that have the same targets and evidence."""
    alike: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[str]] = {}
    for member in members:
        able = dict.fromkeys(targets()[target].arch for target in member.targets)
        known: tuple[tuple[str, str], ...] = tuple((arch, member.evidence(arch).level) for arch in able)
        alike.setdefault((member.targets, known), []).append(member.name)
    parts = []
    for (legal, known), names in alike.items():
        levels: dict[str, list[str]] = {}
        for arch, level in known:
            levels.setdefault(level, []).append(arch)
        spelled = "\n".join(names)
        evidence = "; ".join(f"{level} on {code(archs)}" for level, archs in levels.items())
        parts.append(f"```text\n{spelled}\n```\n\nLegal on {code(legal)}. Evidence: {evidence}.")
    return "\n\n".join(parts)


def write_pages(folder: Path) -> list[Path]:
    """Write every page and their index; return the files."""
    folder.mkdir(exist_ok=True)
    written = []
    for title, members in groups().items():
        path = folder / f"{title}.md"
        path.write_text(page(title, members, folder), encoding="utf-8", newline="\n")
        written.append(path)
    rows = [[f"{{doc}}`{title} <{title}>`", len(members)] for title, members in groups().items()]
    table = markdown_table(["family", "instructions"], rows)
    names = "\n".join(groups())
    index = f"# Instruction families\n\n{HEAD}\n{table}\n\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{names}\n```\n"
    (folder / "index.md").write_text(index, encoding="utf-8", newline="\n")
    return written
