"""`warpfrag loads` and `warpfrag stores`: every plan of accesses between shared memory and an operand.

One command in two directions, which differ in their help and in --packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, Unpack

import click

from warpfrag.cli.support.fragment_argument import fragment_json, fragment_text, read_operand
from warpfrag.cli.support.options import (
    complete_operand,
    file_option,
    instruction_argument,
    integer,
    json_option,
    target_option,
)
from warpfrag.cli.support.output import DONE, NO, echo, print_heading, print_json, print_notes, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.files import write_atomically
from warpfrag.plans.access_plan import address_sum, sum_expression, swizzle_expression, thread_name
from warpfrag.plans.loads import loads, search, stores
from warpfrag.plans.tile_search import CHUNK, search_tiles
from warpfrag.smem.shared_memory import MAX_BYTES, SWIZZLES, Memory
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.plans.access_plan import Access, AccessPlan, Direction
    from warpfrag.tensorcore.operand import Operand

SWIZZLE_WORDS = [str(swizzle) for swizzle in SWIZZLES]
IN_LINE = 8  # addresses
MAX_TILES = 12  # in text; JSON has all


class AccessOptions(TypedDict):
    """The arguments and options of `warpfrag loads` and `warpfrag stores`."""

    name: str
    operand: str
    order: Literal["row", "col"]
    pitch: int | None
    swizzle: str | None
    start: int | None
    packed: NotRequired[bool]  # of loads alone
    searches: bool
    width: int | None
    plan_number: int | None
    lanes: bool
    lang: str | None
    output: str | None
    target: str | None
    as_json: bool


SIZE = integer(1, MAX_BYTES - 1)
OPTIONS = (  # in the order of help
    instruction_argument,
    click.argument("operand", metavar="OPERAND", shell_complete=complete_operand),
    click.option(
        "--order",
        type=click.Choice(["row", "col"]),
        default="row",
        help="What is contiguous; default: row.",
    ),
    click.option(
        "--pitch",
        type=SIZE,
        metavar="BYTES",
        help="Bytes from row to row, or in col order from column to column.",
    ),
    click.option("--swizzle", type=click.Choice(SWIZZLE_WORDS), help="Swizzle width in bytes; default: 0."),
    click.option("--start", type=integer(0, MAX_BYTES - 1), metavar="BYTES", help="Where the matrix starts."),
    click.option("--search", "searches", is_flag=True, help="Find pitches and swizzles without bank conflicts."),
    click.option(
        "--width",
        type=SIZE,
        metavar="BYTES",
        help="With --search: width of a tile that is written and read, in bytes per line; --pitch fixes the pitch.",
    ),
    click.option(
        "--way",
        "plan_number",
        type=integer(1),
        metavar="N",
        help="Only plan N; code and figures: default 1.",
    ),
    click.option("--lanes", is_flag=True, help="The address of every lane, in bytes."),
    click.option("--emit", "lang", type=click.Choice(["cuda", "ptx"]), help="Print the code of a plan."),
    file_option("-o", "--output", help_text="With --emit the code; else a figure, .svg, .png or .txt."),
    target_option,
    json_option,
)
PACKED = click.option("--packed", is_flag=True, help="16 elements of 4 or 6 bits lie at the start of each 16 bytes.")
ABOUT = """Every plan to {what}, the cheapest first: addresses, passes and bank conflicts.

OPERAND is a, b, c or d; b:col=2 is two tiles side by side, row=2 two below each other. Without --pitch the matrix has
no gaps. All sizes are in bytes. The cost is the number of instructions and of passes of shared memory.
"""


def access_plans_command(direction: Direction, what: str, *examples: str) -> click.Command:
    """The verb of a direction."""

    def command(**options: Unpack[AccessOptions]) -> int:
        return answer(direction, options)

    command.__doc__ = ABOUT.format(what=what)
    declared = (*OPTIONS[:6], *([PACKED] if direction == "load" else []), *OPTIONS[6:])
    for add in reversed(declared):
        command = add(command)
    return verb(*examples)(command)


def answer(direction: Direction, options: AccessOptions) -> int:
    """Print every plan, or the one that is asked for; the exit status."""
    operand = read_operand(get(options["name"], options["target"]), options["operand"])
    if options["width"] is not None:
        return _answer_tiles(direction, operand, options)
    plans = _access_plans(direction, operand, options)
    if options["target"]:
        plans = [plan for plan in plans if options["target"] in plan.targets]
    if options["plan_number"] is not None and options["plan_number"] > len(plans):
        msg = f"--way is a number from 1 to {len(plans)}, the number of plans" if plans else "--way: there is none"
        raise click.UsageError(msg)
    first = (options["plan_number"] or 1) - 1
    chosen = plans if options["plan_number"] is None else plans[first : first + 1]
    code = plans[first].emit(options["lang"]) if options["lang"] and plans else None
    if options["output"] and plans and not code:
        from warpfrag.viz.draw import draw

        draw(plans[first]).save(options["output"])
    if options["as_json"]:
        emitted = {"lang": options["lang"], "code": code, "file": options["output"]}
        query = {"operand": fragment_json(operand), "order": options["order"]}
        print_json(f"{direction}s", {**query, "ways": [*map(access_plan_json, chosen)], **emitted})
    if not write_or_echo(code, options["output"], quiet=options["as_json"]) and not options["as_json"]:
        _print_access_plans(direction, operand, chosen, options)
    return DONE if plans else NO


def _answer_tiles(direction: Direction, operand: Operand, options: AccessOptions) -> int:
    """Tiles of a width, written and read: pitches and swizzles, those with the fewest conflicts first."""
    width = options["width"] or 0
    extent = operand.layout.outs["col" if options["order"] == "row" else "row"] * operand.row.container // 8
    if not options["searches"] or direction != "load":
        msg = "--width goes with loads --search: which tile is written and read without bank conflicts"
        raise click.UsageError(msg)
    if extent > width or extent % CHUNK:
        lines = f"a {options['order']} of {operand.described} has {extent} bytes"
        msg = f"--width {width}: {lines}, which must be a multiple of 16 and at most the width"
        raise click.UsageError(msg)
    tiles = search_tiles(width, options["pitch"])
    if options["as_json"]:
        query = {"operand": fragment_json(operand), "order": options["order"]}
        none: dict[str, object] = {"ways": [], "lang": None, "code": None, "file": None}
        print_json("loads", {**query, **none, "width": width, "tiles": [tile.to_dict() for tile in tiles]})
        return DONE
    print_heading(fragment_text(operand))
    print_heading(f"tiles with lines of {width} bytes, {options['order']} order: extra passes for 64 lines")
    rows = [
        [tile.pitch, tile.read, tile.copied, tile.stored, "-" if tile.tma is None else tile.tma, tile.formula]
        for tile in tiles[:MAX_TILES]
    ]
    print_table(
        ["pitch", "ldmatrix", "cp.async", "st.shared.b32", "TMA swizzle", "byte offset of a 16-byte chunk"], rows
    )
    print_notes(
        [
            "ldmatrix reads 8 lines of 16 bytes at once; cp.async and 16-byte stores write whole lines in order",
            "TMA swizzle: the mode with which TMA writes this tile, in bytes; - where it cannot",
        ]
    )
    return DONE


def _access_plans(direction: Direction, operand: Operand, options: AccessOptions) -> list[AccessPlan]:
    if options["searches"]:
        named = {"--pitch": options["pitch"], "--swizzle": options["swizzle"], "--start": options["start"]}
        named |= {"--packed": options.get("packed") or None}
        if superfluous := ", ".join(name for name, value in named.items() if value is not None):
            msg = f"--search finds pitches and swizzles itself: leave out {superfluous}"
            raise click.UsageError(msg)
        return search(operand, options["order"], direction)
    memory = Memory(options["order"], options["pitch"], int(options["swizzle"] or 0), options["start"] or 0)
    return (
        loads(operand, memory, packed=options.get("packed", False)) if direction == "load" else stores(operand, memory)
    )


def write_or_echo(code: str | None, output: str | None, *, quiet: bool) -> bool:
    """Write code to a file or print it; whether there was any."""
    if code and output:
        write_atomically(output, code)
        if not quiet:
            echo(f"{output}: {code.count(chr(10))} lines")
    elif code and not quiet:
        echo(code.rstrip("\n"))
    return bool(code)


def _print_access_plans(
    direction: Direction, operand: Operand, plans: list[AccessPlan], options: AccessOptions
) -> None:
    toward = "from" if direction == "load" else "to"
    where = f"{options['order']} order" if options["searches"] or not plans else plans[0].memory.described
    print_heading(fragment_text(operand))
    print_heading(f"{toward} shared memory: {where}")
    if not plans:
        echo("no plan" + (" without bank conflicts" if options["searches"] else _unaligned(operand, options)))
        return
    first = options["plan_number"] or 1
    header = ["plan", "instructions", "passes", "conflicts", "cost", "what"]
    rows = [
        [number, plan.instructions, plan.passes, plan.conflicts, plan.cost, _short(plan.name)]
        for number, plan in enumerate(plans, first)
    ]
    if options["searches"]:
        header = ["plan", "pitch", "swizzle", *header[1:]]
        rows = [
            [row[0], plan.memory.pitch or 0, plan.memory.swizzle, *row[1:]]
            for row, plan in zip(rows, plans, strict=True)
        ]
    print_table(header, rows)
    for number, plan in enumerate(plans, first):
        echo(f"\nplan {number}")
        for access in plan.accesses:
            for line in _access_lines(plan, access, lanes=options["lanes"]):
                echo(line)
        if plan.shift:
            echo(f"  then each word << {plan.shift}: where its elements belong")
    print_notes(_notes(operand, plans))


def _unaligned(operand: Operand, options: AccessOptions) -> str:
    """Why there is none, where no element is aligned."""
    size = operand.row.container // 8
    offsets = {
        name: offset
        for name, offset in (("pitch", options["pitch"]), ("start", options["start"]))
        if offset and size > 1
    }
    misaligned = [f"{name} {offset}" for name, offset in offsets.items() if offset % size]
    return f": elements of {size} bytes are not aligned at {' and '.join(misaligned)}" if misaligned else ""


def _short(name: str) -> str:
    """A name as people shorten it."""
    return name.replace(".sync.aligned", "")


def _access_lines(plan: AccessPlan, access: Access, *, lanes: bool) -> Iterator[str]:
    words = ", ".join(map(str, access.words))
    part = "" if access.slot is None else f", element {access.slot}"
    yield f"  {_short(access.instruction)}, word{'s' if len(access.words) > 1 else ''} {words}{part}"
    total = sum_expression(address_sum(access.addresses, plan.memory))
    yield f"    {f'swizzle({total})' if plan.memory.swizzle else total}"
    if lanes:
        pairs = [(thread, address) for thread, address in enumerate(access.addresses) if address is not None]
        name, wide = thread_name(len(access.addresses)), len(str(len(access.addresses) - 1))
        for first in range(0, len(pairs), IN_LINE):
            numbers = " ".join(f"{address:6}" for _, address in pairs[first : first + IN_LINE])
            yield f"    {name} {pairs[first][0]:{wide}}: {numbers}"


def _notes(operand: Operand, plans: list[AccessPlan]) -> list[str]:
    notes = ["base is the start of the memory in shared memory, as a 32-bit address, in bytes"]
    if len(operand.threads) > 1:
        notes.append("thread is threadIdx.x % 128, the number of a thread in its warpgroup; all four warps take part")
    for memory in {plan.memory.swizzle: plan.memory for plan in plans if plan.memory.swizzle}.values():
        formula = f"swizzle(a) = {swizzle_expression(memory, 'a')}"
        notes.append(f"{formula} for {memory.swizzle} bytes; align the memory to {8 * memory.swizzle}")
    memory = plans[0].memory
    extent = operand.layout.outs["col" if memory.order == "row" else "row"] * operand.row.container // 8
    if memory.pitch is not None and memory.pitch < extent:
        notes.append(f"the pitch of {memory.pitch} bytes is less than the {extent} of a {memory.order}: they overlap")
    return notes


def access_plan_json(plan: AccessPlan) -> dict[str, object]:
    """An access plan as JSON has it."""
    return {
        "name": plan.name,
        "memory": {
            "order": plan.memory.order,
            "pitch": plan.memory.pitch,
            "swizzle": plan.memory.swizzle,
            "start": plan.memory.start,
        },
        "instructions": plan.instructions,
        "passes": plan.passes,
        "conflicts": plan.conflicts,
        "cost": plan.cost,
        "shift": plan.shift,
        "targets": plan.targets,
        "accesses": [
            {
                "instruction": access.instruction,
                "words": access.words,
                "slot": access.slot,
                "width": access.width,
                "addresses": access.addresses,
                "expression": plan.expression(access),
                "passes": access.passes,
                "conflicts": access.conflicts,
            }
            for access in plan.accesses
        ],
    }
