"""The SVG of every operand of every instruction: well-formed, one cell per element, and consistent with the layout."""

from math import prod

import pytest

import warpfrag as wf
from instructions import of_a_warp
from viz.parsed import FACTS, block_words, cells, draw, fact, parse, tip, words
from warpfrag.tensorcore.operand import Metadata, Scale, SparseOperand
from warpfrag.viz.fragment_grids import slot_run


def kind_of(instruction, operand):
    """Return a key for the cells of an operand: operands with equal keys look the same."""
    row = operand.spec
    role = "d" if operand.role == "c" else operand.role
    ordered = isinstance(operand, SparseOperand) and instruction.form.is_ordered
    return role, type(operand), operand.format.bits, row.layout, row.container, row.low, ordered, instruction.addresses


def distinct_operands():
    """One instruction and role for each kind of operand that has a known layout; C only where no D is like it."""
    found = {}
    for instruction in of_a_warp():
        for role, operand in sorted(instruction.operands.items(), key=lambda item: item[0] == "c"):
            if not operand.spec.unknown:
                found.setdefault(kind_of(instruction, operand), (instruction, role))
    return list(found.values())


OPERANDS = distinct_operands()
MATRICES = [(one, role) for one, role in OPERANDS if not isinstance(one.operands[role], Metadata | Scale)]
CHOSEN = [(one, role) for one, role in OPERANDS if isinstance(one.operands[role], Metadata | Scale)]
SPARSE = [(one, role) for one, role in MATRICES if isinstance(one.operands[role], SparseOperand)]


def named(pairs):
    return {"argvalues": pairs, "ids": [f"{one.name} {role}" for one, role in pairs]}


def test_there_is_something_to_draw():
    assert len(OPERANDS) > 100
    assert {role for _, role in OPERANDS} == {"a", "b", "c", "d", "metadata", "scale_a", "scale_b"}
    assert len(SPARSE) > 10


@pytest.mark.parametrize(("instruction", "role"), **named(MATRICES))
def test_the_matrix_view_shows_each_element_once_with_every_holder(instruction, role):
    operand = instruction.operands[role]
    layout = operand.layout
    root = parse(draw(instruction, role, "matrix").svg)
    found = cells(root)
    shown = set()
    labelled = 0
    for cell in found:
        assert set(cell.keys()) >= set(FACTS)
        assert cell.get("data-operand") == role
        at = tuple(fact(cell, dim) for dim in layout.dims)
        shown.add(at)
        holders = layout.where(**dict(zip(layout.dims, at, strict=True)))
        assert holders[0] == (fact(cell, "lane"), fact(cell, "reg"), fact(cell, "slot"))
        places = []
        for lane, reg, slot in holders:
            high, low = operand.bits(slot)
            bits = f"{high}:{low}" if high > low else f"{low}"
            places.append(f"T{lane} {role}{reg * operand.slots + slot} r{reg}[{bits}]")
        assert tip(cell) == f"{role.upper()}[{','.join(map(str, at))}] {'; copy '.join(places)}"
        said = words(cell)
        if said:
            labelled += 1
            owners = dict.fromkeys(f"T{lane}" for lane, _, _ in holders)
            names = [f"{role}{reg * operand.slots + slot}" for _, reg, slot in holders]
            assert len(owners) == 1  # no layout so far spreads the copies of an element over lanes
            assert said == [" ".join([*owners, *names])]

    assert len(found) == len(shown) == prod(layout.shape)
    if labelled < len(found):
        assert labelled == 0
        check_blocks(root, operand)


def check_blocks(root, operand):
    """If cells are too small for words, each register has its words once for each run of its slots."""
    run = prod(slot_run(operand.layout))
    expected = [
        f"T{lane} {operand.role}{first}..{operand.role}{first + run - 1}"
        for lane in range(32)
        for first in range(0, operand.regs * operand.slots, run)
    ]
    assert run > 1
    assert sorted(block_words(root)) == sorted(expected)


@pytest.mark.parametrize(("instruction", "role"), **named(MATRICES))
def test_the_warp_view_shows_every_slot_of_every_register(instruction, role):
    operand = instruction.operands[role]
    layout = operand.layout
    root = parse(draw(instruction, role, "warp").svg)
    found = cells(root)
    places = {(fact(cell, "lane"), fact(cell, "reg"), fact(cell, "slot")) for cell in found}

    assert len(found) == len(places) == 32 * operand.regs * operand.slots
    for cell in found:
        at = layout.at(lane=fact(cell, "lane"), reg=fact(cell, "reg"), slot=fact(cell, "slot"))
        coordinates = ",".join(map(str, at))
        assert at == tuple(fact(cell, dim) for dim in layout.dims)
        assert words(cell) in ([f"({coordinates})"], [])
        assert tip(cell).endswith(f"{role.upper()}[{coordinates}]")
    if not words(found[0]):
        ends = [
            tuple(",".join(map(str, layout.at(lane=lane, reg=reg, slot=slot))) for slot in (0, operand.slots - 1))
            for lane in range(32)
            for reg in range(operand.regs)
        ]
        assert sorted(block_words(root)) == sorted(f"({first})..({last})" for first, last in ends)


@pytest.mark.parametrize(("instruction", "role"), **named(SPARSE))
def test_the_logical_view_shows_the_span_of_every_register(instruction, role):
    operand = instruction.operands[role]
    root = parse(draw(instruction, role).svg)
    found = cells(root)

    assert {(fact(cell, "row"), fact(cell, "col")) for cell in found} == {
        (row, col) for row in range(16) for col in range(instruction.shape.k)
    }
    assert len(found) == 16 * instruction.shape.k
    for cell in found:
        span = operand.span(lane=fact(cell, "lane"), reg=fact(cell, "reg"))
        assert span.row == fact(cell, "row")
        assert span.first <= fact(cell, "col") <= span.last
    spans = [(lane, reg * operand.slots) for lane in range(32) for reg in range(operand.regs)]
    names = {
        first: f"a{first}..a{first + operand.slots - 1}" if operand.slots > 1 else f"a{first}" for _, first in spans
    }
    assert sorted(block_words(root)) == sorted(f"T{lane} {names[first]}" for lane, first in spans)


@pytest.mark.parametrize("name", ["mma.sp.m16n8k64.s32.s8.s8.s32", "mma.sp::ordered_metadata.m16n8k64.s32.s8.s8.s32"])
def test_a_logical_cell_names_every_slot_that_can_hold_it(name):
    instruction = wf.get(name)
    slots = {fact(cell, "col"): cell.get("data-slot") for cell in cells(parse(draw(instruction, "a").svg))[:8]}

    if instruction.form.is_ordered:  # of columns 0 to 3 the first is never stored second, nor the last first
        assert slots == {0: "0", 1: "0 1", 2: "0 1", 3: "1", 4: "2", 5: "2 3", 6: "2 3", 7: "3"}
    else:
        assert slots == {0: "0 1", 1: "0 1", 2: "0 1", 3: "0 1", 4: "2 3", 5: "2 3", 6: "2 3", 7: "2 3"}


def choices_of(operand):
    """Return every choice of immediates, as options of draw and as the leading coordinates of the layout."""
    if isinstance(operand, Metadata):
        return [({"selector": selector}, (selector,)) for selector in operand.selectors]
    return [
        (
            {"byte_id": (byte_id, byte_id), "thread_id": (thread_id, thread_id)},
            (thread_id, byte_id // operand.byte_ids.step),
        )
        for thread_id in operand.thread_ids
        for byte_id in operand.byte_ids
    ]


@pytest.mark.parametrize(("instruction", "role"), **named(CHOSEN))
def test_metadata_and_scales_show_lane_and_bits_for_every_choice(instruction, role):
    operand = instruction.operands[role]
    layout = operand.layout
    for options, leading in choices_of(operand):
        found = cells(parse(draw(instruction, role, **options).svg))
        assert len(found) == prod(operand.shape)
        assert len({(fact(cell, "row"), fact(cell, "col")) for cell in found}) == len(found)
        for cell in found:
            at = (*leading, fact(cell, "row"), fact(cell, "col"))
            (place,) = layout.where(**dict(zip(layout.dims, at, strict=True)))
            assert place == (fact(cell, "lane"), fact(cell, "reg"), fact(cell, "slot"))
            high, low = operand.bits(place.slot)
            assert words(cell) == [f"T{place.lane} [{high}:{low}]"]


@pytest.mark.parametrize(("instruction", "role"), **named(CHOSEN))
def test_the_words_of_the_warp_grey_what_is_not_read(instruction, role):
    operand = instruction.operands[role]
    for options, leading in choices_of(operand):
        found = cells(parse(draw(instruction, role, "warp", **options).svg))
        assert len(found) == 32 * operand.slots
        for cell in found:
            at = operand.layout.at(lane=fact(cell, "lane"), slot=fact(cell, "slot"))
            is_read = at[: len(leading)] == leading
            assert cell.get("class") == (None if is_read else "unread")
            assert words(cell) == [f"({at[-2]},{at[-1]})" if is_read else "-"]


def distinct_products():
    """One instruction for each operation and combination of shapes; other tests draw every layout."""
    found = {}
    for instruction in of_a_warp():
        if instruction.form.is_product:
            kinds = tuple(
                (instruction.op, role, one.shape, instruction.pattern and instruction.pattern.chunk)
                for role, one in instruction.operands.items()
            )
            found.setdefault(str(kinds), instruction)
    return list(found.values())


@pytest.mark.parametrize("instruction", distinct_products(), ids=str)
def test_a_whole_instruction_shows_each_element_of_each_operand_once(instruction):
    found = cells(parse(draw(instruction).svg))
    counts = {role: sum(cell.get("data-operand") == role for cell in found) for role in instruction.operands}
    expected = {role: prod(operand.shape) for role, operand in instruction.operands.items()} | {"c": 0}
    expected["a"] *= 2 if instruction.pattern else 1  # a sparse A is shown as the matrix it stands for

    assert counts == expected


WGMMA = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.f16.f16"


@pytest.mark.parametrize("width", [8, 24, 256])
def test_the_threads_of_a_warpgroup_are_counted_through(width):
    """T37 is lane 5 of warp 1; the first columns of a wide matrix are shown, and others on request."""
    instruction = wf.get(WGMMA.format(width))
    picture = draw(instruction)
    layout = instruction.d.layout
    grids = [grid for (grid,) in picture.scenes]

    assert [(grid.operand, grid.height, grid.width) for grid in grids] == [("a", 64, 16), ("d", 64, min(width, 32))]
    for cell in grids[1].cells:
        (place,) = layout.where(**dict(cell.coordinates))
        assert (cell.lane, cell.reg) == (32 * place.warp + place.lane, place.reg)
    assert "T127" in picture.text
    assert any("B is in shared memory" in note for note in picture.notes)
    last = draw(instruction, "d", cols=(width - 8, width - 1)).scenes[0][0]
    assert last.cells[-1].coordinates == (("row", 63), ("col", width - 1))


def test_the_warp_view_of_a_warpgroup_has_its_threads():
    grid = draw(WGMMA.format(8), "d", "warp").scenes[0][0]

    assert (grid.height, grid.title) == (128, "D in the registers of the warpgroup")
    assert grid.cells[37 * 4].lines == ("(17,2)",)


@pytest.mark.parametrize("view", ["matrix", "warp"])
def test_what_lies_in_shared_memory_has_no_figure_of_registers(view):
    with pytest.raises(wf.errors.InvalidOperand, match="operand b of wgmma.* is in shared memory"):
        draw(WGMMA.format(8), "b", view)
    with pytest.raises(wf.errors.InvalidOperand, match="B of wgmma.* is in shared memory: use matrix"):
        draw(WGMMA.format(8), view="whole")
