"""`warpfrag at`: which element a lane holds."""

from __future__ import annotations

import click

from warpfrag.catalog.registry import get
from warpfrag.cli.support.operand_view import operand_view
from warpfrag.cli.support.options import (
    instruction_argument,
    integer,
    json_option,
    operand_argument,
    target_option,
    warp_option,
)
from warpfrag.cli.support.output import print_heading, print_json, print_notes, print_table
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
    view = operand_view(get(name, target), operand)
    layout = view.layout
    for coordinate, index, extent in (("reg", reg, layout.regs), ("slot", slot, layout.slots)):
        check_index(coordinate, index or 0, extent)
    regs = range(layout.regs) if reg is None else [reg]
    slots = range(layout.slots) if slot is None else [slot]
    places = [
        place(**warp_index, lane=lane, reg=reg, slot=slot)
        for warp_index in view.warps(warp)
        for reg in regs
        for slot in slots
    ]
    records = [view.record(place) for place in places] if view.check_lane(lane) else []
    if as_json:
        answer = {
            "instruction": view.instruction.name,
            "operand": view.name,
            "elements": list(map(view.json, records)),
        }
        print_json("at", {**answer, "notes": view.notes})
        return
    print_heading(view.title)
    if records:
        print_table(view.header(), [view.cells(record) for record in records])
    print_notes(view.notes)
