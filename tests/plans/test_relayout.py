"""Relayouts: every plan runs, every element arrives, and no plan has more shuffles than necessary."""

import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpfrag as wf
from oracle.toolkit import assemble, compile_cuda, find_nvcc, find_ptxas, virtual
from tools.plans import relayout_unit, sample_plans, timed_accesses, timing_unit
from warpfrag.errors import InvalidOperand
from warpfrag.formats.codes import code_dtype
from warpfrag.layout.bit_matrix import Echelon
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.relayout import Relayout, fragments, relayout, tiled_alike, warpgroup_fragments
from warpfrag.plans.relayout_execution import convert_codes
from warpfrag.plans.relayout_operations import conversions
from warpfrag.plans.shuffle_search import LANE, Select, ShufflePlan, find_shuffles
from warpfrag.tensorcore.operand import Operand

F16 = wf.get("mma.m16n8k16.f32.f16.f16.f32")
F8 = wf.get("mma.m16n8k32.f32.e4m3.e4m3.f32")
F64 = wf.get("mma.m16n8k16.f64.f64.f64.f64")
SPELT = {"shfl": "shfl", "movmatrix": "movmatrix", "select": "selp", "cvt": "cvt"}
STATIC = "static __device__ __forceinline__ void"


# ---- the algebra


@st.composite
def bijections(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Images of the bits of a lane and of a cell, one to one, and how many bits of cells share a word."""
    lanes, cells = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    columns = [1 << bit for bit in range(lanes + cells)]
    bit = st.integers(0, lanes + cells - 1)
    for into, other in draw(st.lists(st.tuples(bit, bit), max_size=16)):
        if into != other:
            columns[into] ^= columns[other]
    columns = draw(st.permutations(columns))
    images = [(one >> cells) << LANE | one & ((1 << cells) - 1) for one in columns]
    return images[cells:], images[:cells], draw(st.integers(0, min(2, cells)))


def wanted(lanes: list[int], cells: list[int], lane: int, cell: int) -> tuple[int, int]:
    """The source lane and cell of a target place."""
    total = 0
    for bits, images in ((lane, lanes), (cell, cells)):
        for bit, image in enumerate(images):
            total ^= image * (bits >> bit & 1)
    return total >> LANE, total & ((1 << LANE) - 1)


def run(moves: ShufflePlan, lanes: int) -> list[list[tuple[Any, ...]]]:
    """Return the cells of each lane after the plan, if every source cell holds its own lane and number."""

    def odd(lane: int, mask: int) -> int:
        return (lane & mask).bit_count() & 1

    def turned(word: tuple[Any, ...], flip: int) -> tuple[Any, ...]:
        return tuple(word[slot ^ flip] for slot in range(len(word)))

    state = [[tuple((lane, cell) for cell in packet) for packet in moves.packets] for lane in range(1 << lanes)]
    for step in (*moves.publish, moves.shuffle, *moves.receive):
        if isinstance(step, Select):
            state = [
                [words[of] if odd(lane, step.mask) or not step.mask else words[at] for at, of in enumerate(step.words)]
                for lane, words in enumerate(state)
            ]
        elif step is moves.shuffle:
            state = [
                [state[lane if flip is None else step.lanes(flip)[lane]][at] for at, flip in enumerate(step.flips)]
                for lane in range(1 << lanes)
            ]
        else:
            state = [
                [turned(word, step.flip) if odd(lane, step.mask) else word for word in words]
                for lane, words in enumerate(state)
            ]
    return state


@settings(max_examples=300)
@given(bijections())
def test_the_fewest_shuffles_bring_every_cell_where_it_is_wanted(case: tuple[list[int], list[int], int]):
    lanes, cells, slots = case
    moves = find_shuffles(lanes, cells, slots, [1 << bit for bit in range(slots)])
    assert moves is not None
    state = run(moves, len(lanes))
    least = 0
    for lane in range(1 << len(lanes)):
        from_others: dict[int, int] = {}
        for cell in range(1 << len(cells)):
            place = wanted(lanes, cells, lane, cell)
            word, slot = moves.cells[cell]
            assert state[lane][word][slot] == place
            if place[0] != lane:
                from_others[place[0]] = from_others.get(place[0], 0) + 1
        least = max(least, sum(-(-count >> slots) for count in from_others.values()))
    assert moves.shuffles == least  # a lane gets one word from one lane in each: fewer cannot do


def test_brute_force_finds_no_plan_with_fewer_shuffles():
    """Two lanes of two words, every one-to-one linear map: all combinations of one, two or three shuffles."""
    places = [(lane, word) for lane in range(2) for word in range(2)]

    def reachable(rounds: int) -> set[tuple[frozenset[tuple[int, int]], ...]]:
        """Return the possible contents of lanes after `rounds` shuffles, each of one word from one lane."""
        start = tuple(frozenset(place for place in places if place[0] == lane) for lane in range(2))
        states = {start}
        for _ in range(rounds):
            states |= {
                tuple(held[lane] | {published[reads[lane]]} for lane in range(2))
                for held in states
                for published in product(*map(sorted, held))
                for reads in product(range(2), repeat=2)
            }
        return states

    for columns in product(range(1, 8), repeat=2):
        rows = Echelon()
        for column in columns:
            rows.add(column)
        if rows.rank < 2 or max(columns) > 3:
            continue
        images = [(one >> 1) << LANE | one & 1 for one in columns]
        moves = find_shuffles([images[1]], [images[0]], 0, [])
        assert moves is not None
        goal = [{wanted([images[1]], [images[0]], lane, cell) for cell in range(2)} for lane in range(2)]
        enough = next(
            count
            for count in range(4)
            if any(all(goal[lane] <= held[lane] for lane in range(2)) for held in reachable(count))
        )
        assert moves.shuffles == enough


# ---- operands


def random_codes(operand: Operand, seed: int) -> np.ndarray:
    codes = np.random.default_rng(seed).integers(0, operand.format.codes, operand.shape, np.uint64, endpoint=False)
    return codes.astype(code_dtype(operand.format)) if operand.format.bits < 64 else codes


def check(plan: Relayout, seed: int = 1) -> None:
    """Every element arrives, every copy is written, padding is zero."""
    codes = random_codes(plan.source, seed)
    expected = convert_codes(plan.source.format.name, plan.target.format.name, codes)
    if plan.permutation is not None:
        expected = expected[..., list(plan.permutation)]
    assert np.array_equal(plan(plan.source.pack(codes, raw=True)), plan.target.pack(expected, raw=True))


def check_counts(plan: Relayout) -> None:
    """The code has exactly the instructions that the plan counts: copies are neither transposed nor converted twice."""
    code = plan.emit("ptx")
    code = re.sub(r"selp\.b32 %\w+, \d+, \d+, p", "", code)  # selectors of prmt: made once, of two constants
    found = {kind: len(re.findall(rf"\b{name}\.(?!u32\.u16)", code)) for kind, name in SPELT.items()}
    if min(plan.source.spec.container, plan.target.spec.container) >= 8:  # smaller ones are put together by shifts
        assert found == {kind: plan.counts[kind] for kind in SPELT}


@cache
def plan_between(source: Operand, target: Operand) -> Relayout | None:
    """Return the plan between two fragments, tiled to equal extents."""
    pair = tiled_alike(source, target)
    return None if pair is None else relayout(*pair)


@cache
def sample() -> list[Relayout]:
    return sample_plans()


@pytest.mark.parametrize(
    "source",
    [*fragments(), *warpgroup_fragments()],
    ids=lambda operand: f"{operand.role}.{operand.format}.{operand.shape}",
)
def test_every_fragment_reaches_every_other_of_its_extents(source: Operand):
    reached = 0
    for target in fragments() if len(source.threads) == 1 else warpgroup_fragments():
        plan = plan_between(source, target)
        if plan is not None:
            check(plan)
            check_counts(plan)
            reached += 1
    assert reached >= 1  # itself


def test_an_accumulator_is_the_next_a_if_two_tiles_stand_side_by_side():
    plan = relayout(F16.d.tiled(col=2), F16.a)
    assert plan.is_free
    assert plan.counts == {"shfl": 0, "movmatrix": 0, "select": 0, "prmt": 0, "cvt": 4}
    assert str(plan) == "free: 4 cvt"
    assert relayout(F16.a, F16.a).operations == ()


def test_fp8_needs_shuffles_or_a_permuted_k():
    source = F8.d.tiled(col=4)
    shuffled = relayout(source, F8.a)
    assert not shuffled.is_free
    assert shuffled.counts["shfl"] == 4
    check(shuffled)
    permuted = relayout(source, F8.a, permute="col")
    assert permuted.is_free
    assert permuted.permutation is not None
    assert permuted.permutation[:8] == (0, 1, 8, 9, 2, 3, 10, 11)
    assert sorted(permuted.permutation) == list(range(32))
    check(permuted)


def test_a_permuted_k_gives_the_same_product():
    """A with columns permuted by p, times B with rows permuted by p, is A times B, regardless of rounding."""
    plan = relayout(F8.d.tiled(col=4), F8.a, permute="col")
    random = np.random.default_rng(5)
    A, B = random.integers(-4, 5, (16, 32)).astype(np.float32), random.integers(-4, 5, (32, 8)).astype(np.float32)
    words = plan(plan.source.pack(A))
    product_of = wf.execute(F8, words, F8.b.pack(B[list(plan.permutation)]), arch="sm_90")
    assert np.array_equal(F8.d.unpack(product_of), A @ B)


def test_sixteen_bit_accumulators_become_b_by_movmatrix():
    half = wf.get("mma.m16n8k16.f16.f16.f16.f16")
    plan = relayout(half.d, half.b)
    assert plan.counts["movmatrix"] == 2
    assert plan.counts["shfl"] == 0
    check(plan)


def test_wide_accumulators_become_b_by_movmatrix_once_they_are_packed():
    plan = relayout(F16.d, F16.b)
    assert plan.counts == {"shfl": 0, "movmatrix": 2, "select": 0, "prmt": 0, "cvt": 2}
    check(plan)
    back = relayout(F16.b, F16.d)
    assert back.counts == {"shfl": 0, "movmatrix": 2, "select": 0, "prmt": 0, "cvt": 4}
    check(back)


# ---- four warps

WGMMA = {
    name: wf.get(f"wgmma.mma_async.sync.aligned.m64n64{name}")
    for name in ("k16.f32.f16.f16", "k16.f32.bf16.bf16", "k32.f32.e4m3.e4m3")
}


@pytest.mark.parametrize(
    ("name", "permute", "said"),
    [
        ("k16.f32.f16.f16", None, "free: 16 cvt"),
        ("k16.f32.bf16.bf16", None, "free: 16 cvt"),
        ("k32.f32.e4m3.e4m3", None, "8 shfl, 8 select, 8 prmt, 16 cvt"),
        ("k32.f32.e4m3.e4m3", "col", "free: 16 cvt"),
    ],
)
def test_accumulators_of_four_warps_become_a_of_the_next_product(name: str, permute: Any, said: str):
    mma = WGMMA[name]
    plan = relayout(mma.d, mma.a.tiled(col=64 // mma.shape.k), permute=permute)
    assert str(plan) == said
    check(plan)


def test_nothing_crosses_warps():
    a = WGMMA["k16.f32.f16.f16"].a
    bases = a.layout.bases
    for warp, lane in (("r32 r16", bases["lane"]), ("r16 c2", bases["lane"].replace("c2", "r32"))):
        layout = Layout.parse(a.layout.outs, **{**bases, "warp": warp, "lane": lane})
        other = replace(a, spec=replace(a.spec, layout=layout))
        for pair in ((a, other), (other, a)):
            with pytest.raises(InvalidOperand, match="elements would move between warps.* in shared memory"):
                relayout(*pair)


def test_tiles_that_are_no_power_of_two_move_too():
    plan = relayout(F16.d.tiled(col=6), F16.a.tiled(col=3))
    assert plan.is_free
    check(plan)
    check(relayout(F8.d.tiled(col=12), F8.a.tiled(col=3)))


def test_batches_go_together():
    plan = relayout(F8.d.tiled(col=4), F8.a)
    codes = np.stack([random_codes(plan.source, seed) for seed in range(6)]).reshape(2, 3, 16, 32)
    words = plan.source.pack(codes, raw=True)
    assert np.array_equal(plan(words)[1, 2], plan(words[1, 2]))


@pytest.mark.parametrize(("source", "target"), conversions())
def test_conversions_round_to_nearest_and_saturate_as_cvt_does(source: str, target: str):
    row, into = conversions()[source, target], wf.FORMATS[target]
    values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.3,
        1e-8,
        65519.9,
        65520.0,
        1e30,
        -1e30,
        448.0,
        464.0,
        465.0,
        127.5,
        -128.5,
        0.5,
        1.5,
    ]
    given = wf.FORMATS[source]
    if not given.is_float:
        values = [0, 1, -1, 127, 128, -128, -129, 2**31 - 1, -(2**31)]
    codes = np.array(
        [given.encode(value, rounding="rne") for value in values if abs(value) <= given.max], code_dtype(given)
    )
    for code, found in zip(codes, convert_codes(source, target, codes), strict=True):
        value = given.decode(code)
        if row.too_large != "infinity":
            value = min(max(value, into.min), into.max)
        assert found == into.encode(value, rounding="rne")
    if given.is_float:
        nan = np.array([given.nan_code, given.nan_code | given.sign_bit], code_dtype(given))
        assert set(convert_codes(source, target, nan).tolist()) == {row.nan}
        infinite = convert_codes(source, target, np.array([given.encode(float("inf"))], code_dtype(given)))[0]
        assert infinite == (into.encode(into.max) if row.too_large != "infinity" else into.encode(float("inf")))


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: relayout(F16.d, F16.a), InvalidOperand, r"16 rows x 8 cols in a warp.*: source.tiled\(col=2\)$"),
        (lambda: relayout(F8.a, F8.b), InvalidOperand, r": source.tiled\(row=2\) and target.tiled\(col=4\)$"),
        (lambda: relayout(F16.d.tiled(col=3), F16.a), InvalidOperand, r"tiled\(\) puts tiles side by side$"),
        (lambda: relayout(F16, F16.a), InvalidOperand, "source: expected an operand such as mma.d"),
        (lambda: relayout(F16.a, "a"), InvalidOperand, "target: expected an operand .* got 'a'"),
        (lambda: relayout(F16.a, F16.a, permute="x"), InvalidOperand, "permute: expected one of row, col, got 'x'"),
        (lambda: relayout(F16.d, F64.d), wf.errors.NotModelled, "no conversion from f32 to f64"),
        (lambda: relayout(F16.a, F16.b.tiled(col=2), permute="col"), InvalidOperand, "no order of the cols keeps"),
        (lambda: relayout(F16.d, F16.d).emit("c"), InvalidOperand, "lang: expected one of cuda, ptx, got 'c'"),
        (lambda: relayout(F16.d, F16.d)(np.zeros((32, 3), np.uint32)), InvalidOperand, "expected registers"),
    ],
)  # fmt: skip
def test_what_cannot_be_moved_is_refused(ask: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        ask()


# ---- code


def every_plan() -> list[Relayout]:
    """The plans between all fragments, and of four warps."""
    both = [*product(fragments(), repeat=2), *product(warpgroup_fragments(), repeat=2)]
    return [plan for pair in both if (plan := plan_between(*pair))]


@pytest.mark.slow
def test_every_plan_compiles_and_assembles(tmp_path: Path):
    nvcc, (ptxas, _version) = find_nvcc(), find_ptxas("sm_90")
    plans = every_plan()
    # without the comment, many are the same; not static, so that the compiler leaves none out
    cuda = list(dict.fromkeys(plan.emit("cuda", name="plan").split("\n", 2)[2] for plan in plans))
    ptx = list(dict.fromkeys(plan.emit("ptx", name="plan").split("\n", 2)[2] for plan in plans))
    assert len(cuda) >= 330
    assert len(ptx) >= 330
    cuda = [text.replace(f"{STATIC} plan(", f"__device__ void plan{at}(") for at, text in enumerate(cuda)]
    (tmp_path / "plans.cu").write_text("\n".join(["#include <cstdint>", *cuda]), encoding="utf-8")
    assert compile_cuda(nvcc, "sm_90", tmp_path / "plans.cu") == ""
    ptx = [text.replace(" plan ", f" plan{at} ") for at, text in enumerate(ptx)]
    (tmp_path / "plans.ptx").write_text(
        "\n".join([".version 8.0", ".target sm_90", ".address_size 64", *ptx]), encoding="utf-8"
    )
    assert assemble(ptxas, virtual("sm_90"), tmp_path / "plans.ptx") == []


@pytest.mark.slow
def test_kernels_that_run_plans_compile(tmp_path: Path):
    plans = sample()
    assert len(plans) >= 40
    (tmp_path / "plans.cu").write_text(relayout_unit(plans), encoding="utf-8")
    assert compile_cuda(find_nvcc(), "sm_90", tmp_path / "plans.cu") == ""


@pytest.mark.slow
def test_kernels_that_time_loads_compile(tmp_path: Path):
    ways = timed_accesses()
    assert len({way.accesses[0].passes for way in ways}) >= 4
    (tmp_path / "timing.cu").write_text(timing_unit(ways), encoding="utf-8")
    assert compile_cuda(find_nvcc(), "sm_90", tmp_path / "timing.cu") == ""
