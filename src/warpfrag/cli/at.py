"""`warpfrag at`: which element a lane holds."""

from __future__ import annotations

import click

from warpfrag.catalog.registry import get
from warpfrag.cli.support.operand_view import view
from warpfrag.cli.support.options import (
    instruction_argument,
    integer,
    json_option,
    operand_argument,
    target_option,
    warp_option,
)
from warpfrag.cli.support.output import heading, notes, say_json, say_table
from warpfrag.cli.support.verbs import verb
from warpfrag.core.coordinates import check_index, place


@verb(
    "warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5          # everything lane 5 holds of A",
    "warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5 2 1      # register 2, slot 1 of lane 5",
    "warpfrag at mma.sp.m16n8k32.f32.f16.f16.f32 metadata 5",
    "warpfrag at ldmatrix.m8n8.x4.shared.b16 addresses 9",
    "warpfrag at wgmma.mma_async.m64n64k16.f32.f16.f16 d 5 7 --warp 1",
)
@instruction_argument
@operand_argument
@click.argument("lane", type=integer())
@click.argument("reg", type=integer(), required=False)
@click.argument("slot", type=integer(), required=False)
@warp_option
@target_option
@json_option
def command(
    *,
    name: str,
    operand: str,
    lane: int,
    reg: int | None,
    slot: int | None,
    warp: int | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Which element a lane holds, in one slot, one register or all registers of an operand.

    OPERAND is a, b, c, d, metadata, scale_a, scale_b or, for ldmatrix and stmatrix, addresses. wgmma is run by four
    warps: --warp says which; all without it.
    """
    shown = view(get(name, target), operand)
    layout = shown.layout
    for index, given, extent in (("reg", reg, layout.regs), ("slot", slot, layout.slots)):
        check_index(index, given or 0, extent)
    regs = range(layout.regs) if reg is None else [reg]
    slots = range(layout.slots) if slot is None else [slot]
    places = [
        place(**one, lane=lane, reg=reg, slot=slot) for one in shown.warps(warp) for reg in regs for slot in slots
    ]
    records = [shown.record(place) for place in places] if shown.check_lane(lane) else []
    if as_json:
        answer = {
            "instruction": shown.instruction.name,
            "operand": shown.name,
            "elements": list(map(shown.json, records)),
        }
        say_json("at", {**answer, "notes": shown.notes})
        return
    heading(shown.title)
    if records:
        say_table(shown.header(), [shown.cells(record) for record in records])
    notes(shown.notes)
