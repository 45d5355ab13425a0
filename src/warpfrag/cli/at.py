"""`warpfrag at`: which element a lane holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.options import (
    instruction_argument,
    integer,
    json_option,
    load_options,
    operand_argument,
    target_option,
    warp_option,
)
from warpfrag.cli.support.output import print_heading, print_json, print_notes, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.layout.coordinates import check_index, place

if TYPE_CHECKING:
    from warpfrag.cli.support.operand_view import OperandView, Record
    from warpfrag.layout.coordinates import Place


@verb(
    "warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5          # everything lane 5 holds of A",
    "warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5 2 1      # register 2, slot 1 of lane 5",
    "warpfrag at mma.sp.m16n8k32.f32.f16.f16.f32 metadata 5",
    "warpfrag at ldmatrix.m8n8.x4.shared.b16 addresses 9",
    "warpfrag at wgmma.mma_async.m64n64k16.f32.f16.f16 d 5 7 --warp 1",
    "warpfrag at tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 37 5     # lane 37, column 5",
    "warpfrag at tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 5 --warp 1 "
    "--through tcgen05.ld.sync.aligned.16x256b.x8.b32",
)
@instruction_argument
@operand_argument
@click.argument("lane", type=integer())
@click.argument("reg", type=integer(), required=False)
@click.argument("slot", type=integer(), required=False)
@warp_option
@load_options
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
    through: str | None,
    column: int | None,
    base_lane: int | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Which element a lane holds, in one slot, one register or all registers of an operand.

    OPERAND is a, b, c, d, metadata, scale_a, scale_b or, for ldmatrix and stmatrix, addresses. wgmma is run by four
    warps: --warp selects one; default: all. Of tensor memory, LANE is its lane and REG its column; with
    --through it is what the registers of four warps hold after a tcgen05.ld of the operand.
    """
    from warpfrag.cli.support.operand_view import Load, operand_view
    from warpfrag.tensorcore.registry import get

    view = operand_view(get(name, target), operand, Load(through, column, base_lane))
    layout = view.layout
    if view.in_tensor_memory:
        places = _cells(view, lane, reg, slot)
        _print(view, view.records(places), as_json=as_json)
        return
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
    records = view.records(places) if view.check_lane(lane) else []
    _print(view, records, as_json=as_json)


def _cells(view: OperandView, lane: int, column: int | None, slot: int | None) -> list[Place]:
    """The places of a lane of tensor memory: of one column and slot, or of all; of a pair, in both blocks."""
    extents = view.layout.ins
    view.check_lane(lane)
    columns = range(extents["column"]) if column is None else [check_index("column", column, extents["column"])]
    slots = range(view.layout.slots) if slot is None else [check_index("slot", slot, view.layout.slots)]
    blocks = [{"block": index} for index in range(extents["block"])] if "block" in extents else [{}]
    return [
        place(**block, tlane=lane, column=column, slot=slot) for block in blocks for column in columns for slot in slots
    ]


def _print(view: OperandView, records: list[Record], *, as_json: bool) -> None:
    """The elements, as text or JSON."""
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
