"""`warpfrag loads` and `warpfrag stores`: every way between shared memory and an operand.

One command in two directions: what a verb says of itself is all that differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from warpfrag.catalog.registry import get
from warpfrag.cli.command import (
    complete_operand,
    file_option,
    instruction_argument,
    integer,
    json_option,
    target_option,
    verb,
)
from warpfrag.cli.fragment_argument import fragment_json, fragment_text, read_operand
from warpfrag.cli.output import DONE, NO, heading, notes, say, say_json, say_table
from warpfrag.memory.shared_memory import MAX_BYTES, SWIZZLES, Memory
from warpfrag.motion.addresses import address_sum, sum_expression, swizzle_expression, thread_name
from warpfrag.motion.loads import loads, search, stores
from warpfrag.render.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.execution.operand import Operand
    from warpfrag.motion.access import Access, Direction
    from warpfrag.motion.access_plan import AccessPlan

SWIZZLE_WORDS = [str(swizzle) for swizzle in SWIZZLES]
IN_LINE = 8  # addresses


class Asked(NamedTuple):
    """What a user may say about loads and stores."""

    name: str
    operand: str
    order: Literal["row", "col"]
    pitch: int | None
    swizzle: str | None
    start: int | None
    packed: bool
    searches: bool
    way: int | None
    lanes: bool
    lang: str | None
    output: str | None
    target: str | None
    as_json: bool


SIZE = integer(1, MAX_BYTES - 1)
OPTIONS = (  # in the order of help
    instruction_argument,
    click.argument("operand", metavar="OPERAND", shell_complete=complete_operand),
    click.option("--order", type=click.Choice(["row", "col"]), default="row", help="What is contiguous; row."),
    click.option("--pitch", type=SIZE, metavar="BYTES", help="From row to row, in col order from col to col."),
    click.option("--swizzle", type=click.Choice(SWIZZLE_WORDS), help="Of so many bytes; 0 if left out."),
    click.option("--start", type=integer(0, MAX_BYTES - 1), metavar="BYTES", help="Where the matrix starts."),
    click.option("--search", "searches", is_flag=True, help="Find pitches and swizzles without bank conflicts."),
    click.option("--way", type=integer(1), metavar="N", help="Only this one; for code and figures, the first."),
    click.option("--lanes", is_flag=True, help="The address of every lane, in bytes."),
    click.option("--emit", "lang", type=click.Choice(["cuda", "ptx"]), help="Print the code of a way."),
    file_option("-o", "--output", saying="With --emit the code; else a figure, .svg, .png or .txt."),
    target_option,
    json_option,
)
PACKED = click.option("--packed", is_flag=True, help="16 elements of 4 or 6 bits lie at the start of each 16 bytes.")
ABOUT = """Every way to {what}, the cheapest first: addresses, passes and bank conflicts.

OPERAND is a, b, c or d; b:col=2 is two tiles side by side, row=2 two below each other. Without --pitch the matrix has
no gaps. All sizes are in bytes. The cost is the number of instructions and of passes of shared memory.
"""


def ways_command(direction: Direction, what: str, *examples: str) -> click.Command:
    """The verb of a direction."""

    def command(*, packed: bool = False, **asked: Any) -> int:  # noqa: ANN401 (the fields of Asked)
        return answer(direction, Asked(packed=packed, **asked))

    command.__doc__ = ABOUT.format(what=what)
    options = (*OPTIONS[:6], *([PACKED] if direction == "load" else []), *OPTIONS[6:])
    for add in reversed(options):
        command = add(command)
    return verb(*examples)(command)


def answer(direction: Direction, asked: Asked) -> int:
    """Say every way, or the one that is asked for; the exit status."""
    operand = read_operand(get(asked.name, asked.target), asked.operand)
    found = _ways(direction, operand, asked)
    if asked.target:
        found = [way for way in found if asked.target in way.targets]
    if asked.way is not None and asked.way > len(found):
        msg = f"--way is 1 to {len(found)}: so many there are" if found else "--way: there is none"
        raise click.UsageError(msg)
    first = (asked.way or 1) - 1
    chosen = found if asked.way is None else found[first : first + 1]
    code = found[first].emit(asked.lang) if asked.lang and found else None
    if asked.output and found and not code:
        from warpfrag.drawing import draw

        draw(found[first]).save(asked.output)
    if asked.as_json:
        said = {"lang": asked.lang, "code": code, "file": asked.output}
        query = {"operand": fragment_json(operand), "order": asked.order}
        say_json(f"{direction}s", {**query, "ways": [*map(way_json, chosen)], **said})
    if not write_or_say(code, asked.output, quiet=asked.as_json) and not asked.as_json:
        _say_ways(direction, operand, chosen, asked)
    return DONE if found else NO


def _ways(direction: Direction, operand: Operand, asked: Asked) -> list[AccessPlan]:
    if asked.searches:
        given = {"--pitch": asked.pitch, "--swizzle": asked.swizzle, "--start": asked.start}
        given |= {"--packed": asked.packed or None}
        if named := ", ".join(name for name, one in given.items() if one is not None):
            msg = f"--search finds pitches and swizzles itself: leave out {named}"
            raise click.UsageError(msg)
        return search(operand, asked.order, direction)
    memory = Memory(asked.order, asked.pitch, int(asked.swizzle or 0), asked.start or 0)
    return loads(operand, memory, packed=asked.packed) if direction == "load" else stores(operand, memory)


def write_or_say(code: str | None, output: str | None, *, quiet: bool) -> bool:
    """Write code to a file or print it; whether there was any."""
    if code and output:
        write_atomically(output, code)
        if not quiet:
            say(f"{output}: {code.count(chr(10))} lines")
    elif code and not quiet:
        say(code.rstrip("\n"))
    return bool(code)


def _say_ways(direction: Direction, operand: Operand, ways: list[AccessPlan], asked: Asked) -> None:
    toward = "from" if direction == "load" else "to"
    where = f"{asked.order} order" if asked.searches or not ways else ways[0].memory.described
    heading(fragment_text(operand))
    heading(f"{toward} shared memory: {where}")
    if not ways:
        say("no way" + (" without bank conflicts" if asked.searches else _unaligned(operand, asked)))
        return
    first = asked.way or 1
    header = ["way", "instructions", "passes", "conflicts", "cost", "what"]
    rows = [
        [number, way.instructions, way.passes, way.conflicts, way.cost, _short(way.name)]
        for number, way in enumerate(ways, first)
    ]
    if asked.searches:
        header = ["way", "pitch", "swizzle", *header[1:]]
        rows = [
            [row[0], way.memory.pitch or 0, way.memory.swizzle, *row[1:]] for row, way in zip(rows, ways, strict=True)
        ]
    say_table(header, rows)
    for number, way in enumerate(ways, first):
        say(f"\nway {number}")
        for access in way.accesses:
            for line in _access_lines(way, access, lanes=asked.lanes):
                say(line)
        if way.shift:
            say(f"  then each word << {way.shift}: where its elements belong")
    notes(_notes(operand, ways))


def _unaligned(operand: Operand, asked: Asked) -> str:
    """Why there is none, where no element is aligned."""
    size = operand.row.container // 8
    odd = {name: given for name, given in (("pitch", asked.pitch), ("start", asked.start)) if given and size > 1}
    said = [f"{name} {given}" for name, given in odd.items() if given % size]
    return f": elements of {size} bytes are not aligned at {' and '.join(said)}" if said else ""


def _short(name: str) -> str:
    """A name as people shorten it."""
    return name.replace(".sync.aligned", "")


def _access_lines(way: AccessPlan, access: Access, *, lanes: bool) -> Iterator[str]:
    words = ", ".join(map(str, access.words))
    part = "" if access.slot is None else f", element {access.slot}"
    yield f"  {_short(access.instruction)}, word{'s' if len(access.words) > 1 else ''} {words}{part}"
    total = sum_expression(address_sum(access.addresses, way.memory))
    yield f"    {f'swizzle({total})' if way.memory.swizzle else total}"
    if lanes:
        given = [(thread, address) for thread, address in enumerate(access.addresses) if address is not None]
        name, wide = thread_name(len(access.addresses)), len(str(len(access.addresses) - 1))
        for first in range(0, len(given), IN_LINE):
            numbers = " ".join(f"{address:6}" for _, address in given[first : first + IN_LINE])
            yield f"    {name} {given[first][0]:{wide}}: {numbers}"


def _notes(operand: Operand, ways: list[AccessPlan]) -> list[str]:
    found = ["base is the start of the memory in shared memory, as a 32-bit address, in bytes"]
    if len(operand.threads) > 1:
        found.append("thread is threadIdx.x % 128, the number of a thread in its warpgroup; all four warps take part")
    for memory in {way.memory.swizzle: way.memory for way in ways if way.memory.swizzle}.values():
        formula = f"swizzle(a) = {swizzle_expression(memory, 'a')}"
        found.append(f"{formula} for {memory.swizzle} bytes; align the memory to {8 * memory.swizzle}")
    memory = ways[0].memory
    extent = operand.layout.outs["col" if memory.order == "row" else "row"] * operand.row.container // 8
    if memory.pitch is not None and memory.pitch < extent:
        found.append(f"the pitch of {memory.pitch} bytes is less than the {extent} of a {memory.order}: they overlap")
    return found


def way_json(way: AccessPlan) -> dict[str, object]:
    """A way as JSON has it."""
    return {
        "name": way.name,
        "memory": {
            "order": way.memory.order,
            "pitch": way.memory.pitch,
            "swizzle": way.memory.swizzle,
            "start": way.memory.start,
        },
        "instructions": way.instructions,
        "passes": way.passes,
        "conflicts": way.conflicts,
        "cost": way.cost,
        "shift": way.shift,
        "targets": way.targets,
        "accesses": [
            {
                "instruction": access.instruction,
                "words": access.words,
                "slot": access.slot,
                "width": access.width,
                "addresses": access.addresses,
                "expression": way.expression(access),
                "passes": access.passes,
                "conflicts": access.conflicts,
            }
            for access in way.accesses
        ],
    }
