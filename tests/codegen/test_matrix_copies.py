"""ldmatrix and stmatrix helpers: moved byte by byte by the instruction's own layout, and compared with pack."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from instructions import of_a_warp
from warpfrag import get
from warpfrag.codegen.memory_indexing import kernel_copies, shared_copies
from warpfrag.layout.index_expressions import evaluate
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.loads import moved


@cache
def every_copy():
    """Each copy of each operand, once."""
    found = {}
    for instruction in of_a_warp():
        if instruction.form.is_product and not instruction.form.is_wmma:
            for role in "abcd":
                for copy in shared_copies(instruction.operands[role].spec, "stmatrix" if role == "d" else "ldmatrix"):
                    found.setdefault((copy.operand, copy.order), (instruction.operands[role], copy))
    return list(found.values())


def line_of(copy, codes, lane):
    """Return the 16 bytes at the address that a lane passes, evaluated from the emitted formulas, as one number."""
    row, col = (evaluate(formula, {"lane": lane}) for formula in copy.formulas.values())
    count = 128 // copy.memory_bits
    assert (col if copy.order == "row" else row) % count == 0  # lines are aligned
    line = codes[row, col : col + count] if copy.order == "row" else codes[row : row + count, col]
    assert len(line) == count
    return sum(code << copy.operand.container * at for at, code in enumerate(line.tolist()))


@cache
def read_by(matrix_move):
    """Return every place that a matrix move fills: the lane that passes its line, and its index in the line."""
    layout, line_dim = moved(matrix_move).layout, matrix_move.addresses.dims[1]
    found = []
    for place in layout.places():
        at = layout.at(lane=place.lane, reg=place.reg, slot=place.slot)
        giver = matrix_move.addresses.where(matrix=at.matrix, **{line_dim: getattr(at, line_dim)})[0].lane
        found.append((place, giver, at.col if line_dim == "row" else at.row))
    return found


def words_by(copy, codes, regs):
    """Return the registers after the matrix move."""
    unit = moved(copy.matrix_move).spec.container
    found = np.zeros((32, regs), np.uint32)
    lines = [line_of(copy, codes, lane) for lane in range(copy.matrix_move.addresses.lanes)]
    for place, giver, inside in read_by(copy.matrix_move):
        element = lines[giver] >> inside * unit & (1 << unit) - 1
        found[place.lane, place.reg] |= np.uint32(element << place.slot * unit)
    return found << np.uint32(copy.shift)


def test_registers_are_what_pack_gives():
    for operand, copy in every_copy():
        codes = np.random.default_rng(1).integers(0, 1 << operand.format.bits, operand.shape, np.uint64)
        words = operand.pack(codes.astype(np.uint32), raw=True)

        assert np.array_equal(words_by(copy, codes, operand.regs), words), (operand, copy.order)


def test_the_operands_that_have_one():
    formats = {(operand.role, operand.format.name) for operand, _ in every_copy()}

    assert len(every_copy()) > 50
    assert {("a", "f16"), ("b", "f16"), ("a", "tf32"), ("a", "b1"), ("a", "e2m1"), ("d", "f16")} <= formats
    assert not {("c", "f32"), ("d", "s32"), ("a", "f64")} & formats


@pytest.mark.parametrize(
    ("name", "role", "order", "matrix_move", "row", "col"),
    [
        ("mma.m16n8k16.f32.f16.f16.f32", "a", "row", "m8n8.x4.shared.b16", "lane & 15", "(lane >> 4) * 8"),
        ("mma.m16n8k16.f32.f16.f16.f32", "b", "col", "m8n8.x2.shared.b16", "lane & 8", "lane & 7"),
        ("mma.m16n8k16.f32.f16.f16.f32", "b", "row", "m8n8.x2.trans.shared.b16", "lane & 15", "0"),
        ("mma.m16n8k32.s32.s8.s8.s32", "a", "row", "m8n8.x4.shared.b16", "lane & 15", "lane & 16"),
        ("mma.m16n8k32.s32.s8.s8.s32", "a", "col", "m16n16.x2.trans.shared.b8", "0", "lane"),
    ],
)
def test_addresses(name, role, order, matrix_move, row, col):
    (copy,) = [copy for copy in shared_copies(get(name).operands[role].spec) if copy.order == order]

    assert copy.matrix_move.name == f"ldmatrix.sync.aligned.{matrix_move}"
    assert {dim: str(formula) for dim, formula in copy.formulas.items()} == {"row": row, "col": col}


def test_a_mover_that_contradicts_the_layout_does_not_serve():
    row = get("mma.m16n8k16.f32.f16.f16.f32").a.spec
    wrong = Layout.parse({"row": 16, "col": 16}, lane="c2 r1 c4 r2 r4", reg="r8 c8", slot="c1")

    assert len(shared_copies(row)) == 2
    assert shared_copies(replace(row, layout=wrong)) == ()


def test_a_kernel_uses_every_way_of_a_and_b():
    instruction = get("mma.m16n8k16.f16.f16.f16.f16")
    kernels = kernel_copies(instruction, ["sm_90"])

    assert [(chosen["a"].order, chosen["b"].order) for chosen in kernels] == [("row", "col"), ("col", "row")]
    assert all("d" in chosen for chosen in kernels)
    assert all("d" not in chosen for chosen in kernel_copies(instruction, ["sm_80"]))
    assert kernel_copies(get("mma.m8n8k4.f64.f64.f64.f64"), ["sm_80"]) == []
