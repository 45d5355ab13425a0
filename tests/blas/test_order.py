"""Orders of additions: the terms of each, products in an order, and the order that reproduces an observed product."""

import math
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas.find_order import candidates, find_orders
from warpfrag.blas.order import additions_of
from warpfrag.blas.summation import Multiplicands, may_be_filled_up
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.epilogue import convert
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.array_types import Scaled

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
CAPTURED = np.load(Path(__file__).parents[1] / "data" / "cublas_sm90.npz")
DTYPES = {
    "f16": (np.float16, np.float16), "tf32": (np.float32, np.float32), "s8": (np.int8, np.int32),
    "e4m3_fast": (ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16),
    "e4m3_slow": (ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16),
}  # fmt: skip
ORDERS = {
    "f16 128x96x1024": wf.Order(),
    "f16 8x1024x4096": wf.Order(split_k=3, unit=64),
    "tf32 100x300x500": wf.Order(split_k=8, unit=4, residue=16),
    "e4m3_fast 48x4096x2048": wf.Order(),
    "e4m3_slow 192x320x640": wf.Order(promote=128),
    "s8 512x512x512": wf.Order(),
}


def random(shape: tuple[int, ...], seed: int, dtype: type = np.float16) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def chain(A: np.ndarray, B: np.ndarray, first: int, last: int) -> np.ndarray:
    return wf.gemm(A[:, first:last], B[first:last], instruction=F16)


@pytest.mark.parametrize("depth", [1, 63, 64, 200, 257])
def test_parts_are_added_in_float32_and_c_last(depth: int):
    A, B, C = random((5, depth), 0), random((depth, 7), 1), random((5, 7), 2, np.float32)
    step = math.ceil(math.ceil(depth / 32) / 3) * 32
    total = chain(A, B, 0, step)
    for first in range(step, depth, step):
        total = total + chain(A, B, first, first + step)
    order = wf.Order(split_k=3, unit=32)

    assert np.array_equal(wf.gemm(A, B, instruction=F16, order=order), total)
    assert np.array_equal(wf.gemm(A, B, C, instruction=F16, order=order), total + C)


def test_parts_are_added_in_place_to_c_or_a_bias():
    A, B, C, bias = random((5, 90), 0), random((90, 7), 1), random((5, 7), 2, np.float32), random((7,), 3, np.float32)
    parts = [chain(A, B, first, first + 32) for first in (0, 32, 64)]
    order = wf.Order(split_k=3, unit=32, in_place=True)

    def added(start: np.ndarray) -> np.ndarray:
        return ((start + parts[0]) + parts[1]) + parts[2]

    assert np.array_equal(wf.gemm(A, B, instruction=F16, order=order), (parts[0] + parts[1]) + parts[2])
    assert np.array_equal(wf.gemm(A, B, C, instruction=F16, order=order), added(C))
    assert np.array_equal(wf.gemm(A, B, instruction=F16, order=order, epilogue=wf.Epilogue(bias=bias)), added(bias))
    assert np.array_equal(
        wf.gemm(A, B, C, instruction=F16, order=order, epilogue=wf.Epilogue(beta=0.5, bias=bias)),
        added(np.float32(0.5) * C + bias),
    )
    assert not np.array_equal(added(bias), wf.gemm(A, B, instruction=F16, order=order) + bias)
    with pytest.raises(wf.errors.InvalidOperand, match="measured with alpha 1 only, got alpha 2.0"):
        wf.gemm(A, B, instruction=F16, order=order, epilogue=wf.Epilogue(alpha=2.0))
    with pytest.raises(wf.errors.InvalidOperand, match="in_place applies to the parts of split_k"):
        wf.Order(in_place=True)


def test_promoted_chains_are_added_inside_each_part():
    A, B = random((4, 320), 3), random((320, 6), 4)
    parts = [
        (chain(A, B, 0, 64) + chain(A, B, 64, 128)) + chain(A, B, 128, 192),
        chain(A, B, 192, 256) + chain(A, B, 256, 320),
    ]

    found = wf.gemm(A, B, instruction=F16, order=wf.Order(split_k=2, unit=64, promote=64))
    assert np.array_equal(found, parts[0] + parts[1])


@pytest.mark.parametrize(("depth", "rest"), [(100, 4), (96, 0), (20, 20)])
def test_the_residue_comes_first_and_alone(depth: int, rest: int):
    """The first K % 32 elements are padded with zeros; whole tiles follow, starting from C."""
    A, B, C = random((4, depth), 5), random((depth, 6), 6), random((4, 6), 7, np.float32)
    filled = -(-rest // 16) * 16 - rest
    A_filled = np.concatenate([A[:, :rest], np.zeros((4, filled)), A[:, rest:]], axis=1)
    B_filled = np.concatenate([B[:rest], np.zeros((filled, 6)), B[rest:]])

    found = wf.gemm(A, B, C, instruction=F16, order=wf.Order(residue=32))
    assert np.array_equal(found, wf.gemm(A_filled, B_filled, C, instruction=F16))


def test_a_step_is_an_instruction_filled_up_with_zeros():
    A, B = random((4, 90), 17), random((90, 6), 18)
    found = wf.gemm(A, B, instruction=F16, order=wf.Order(step=8))
    assert np.array_equal(found, wf.gemm(A, B, instruction="mma.m16n8k8.f32.f16.f16.f32"))
    assert not np.array_equal(found, wf.gemm(A, B, instruction=F16))


def test_segments_differ_by_at_most_a_unit_and_are_added_as_a_tree():
    A, B = random((4, 350), 21), random((350, 6), 22)
    first, second, third = (chain(A, B, *part) for part in ((0, 96), (96, 224), (224, 350)))  # 11 units: 3, 4, 4
    order = wf.Order(unit=32, segment_k=3)
    assert np.array_equal(wf.gemm(A, B, instruction=F16, order=order), (third + second) + first)
    assert wf.find_order(A, B, (third + second) + first) == order
    cuts = [352 * part // 5 // 32 * 32 for part in range(5)] + [350]
    a, b, c, d, e = (chain(A, B, *part) for part in pairwise(cuts))  # 11 units: 2, 2, 2, 2, 3
    tree = a + ((b + c) + (d + e))  # the right half is a power of two
    assert np.array_equal(wf.gemm(A, B, instruction=F16, order=wf.Order(unit=32, segment_k=5)), tree)
    assert not np.array_equal(tree, (((a + b) + c) + d) + e)
    assert str(order) == ("segment-K in 3 parts of whole units of 32, k ascending in each, added in float32 as a tree")
    assert order.chains(40, 16, 16) == [[((0, 32),)], [((32, 40),)]]


def test_units_may_be_shorter_than_an_instruction():
    """CUTLASS splits K at 16-byte vectors; each part begins with its own residue."""
    A, B = random((4, 100), 19), random((100, 6), 20)
    parts = [wf.gemm(A[:, part], B[part], instruction=F16, order=wf.Order(residue=32)) for part in
             (slice(40), slice(40, 80), slice(80, 100))]  # fmt: skip
    found = wf.gemm(A, B, instruction=F16, order=wf.Order(split_k=3, unit=8, residue=32))
    assert np.array_equal(found, (parts[0] + parts[1]) + parts[2])
    with pytest.raises(
        wf.errors.InvalidOperand, match="unit: expected a multiple of the instruction's k, 32, for a sparse A"
    ):
        wf.gemm(
            np.zeros((2, 64)), np.ones((64, 2)), instruction="mma.sp.m16n8k32.f32.f16.f16.f32", order=wf.Order(2, 8)
        )


def test_a_promoted_residue_counts_as_a_whole_tile():
    spans = wf.Order(promote=64, residue=32).chains(140, 16, 16)
    assert spans == [[((0, 12), (12, 44)), ((44, 108),), ((108, 140),)]]


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        (F16, "sm_90"),
        ("mma.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
        ("mma.m16n8k16.f16.f16.f16.f16", "sm_80"),
        ("mma.m16n8k8.f32.tf32.tf32.f32", "sm_80"),
        ("mma.m16n8k32.f32.e4m3.e5m2.f32", "sm_90"),
        ("mma.m16n8k8.f64.f64.f64.f64", "sm_90"),
    ],
)
def test_chains_that_are_summed_together_are_what_each_is_alone(name: str, arch: str):
    """Short chains are padded with zeros, which must change nothing, neither -0 nor NaN."""
    rule = plan(wf.get(name).form, arch).rule
    k, format_of = rule.k, wf.FORMATS[rule.a]
    draw = np.random.default_rng(1)
    shapes = (2, 3, 9 * k), (2, 9 * k, 4)
    a, b = (draw.integers(0, format_of.codes, shape, np.uint64).astype(code_dtype(format_of)) for shape in shapes)
    operands = Multiplicands(rule, a, b)
    chains = [((first, last),) for first, last in ((0, 9 * k), (k, 4 * k), (3, k + 5), (8 * k, 9 * k))]
    chains.append(((0, 3), (3, 2 * k + 3)))
    together = chains if may_be_filled_up(rule) else [((0, 3 * k),), ((k, 4 * k),)]
    found = operands.sum_chains(together)
    for chain_of, sums in zip(together, found, strict=True):
        assert np.array_equal(sums, operands.sum_chain(chain_of, None))


@pytest.mark.parametrize(
    ("name", "add"),
    [
        ("mma.m16n8k16.f16.f16.f16.f16", lambda x, y: (x.astype(np.float32) + y.astype(np.float32)).astype(np.float16)),
        ("mma.m16n8k8.f64.f64.f64.f64", lambda x, y: x + y),
        ("mma.m16n8k32.s32.s8.s8.s32", lambda x, y: x + y),
        ("mma.m16n8k32.satfinite.s32.s8.s8.s32", lambda x, y: x + y),
        ("mma.sp.m16n8k32.f32.f16.f16.f32", lambda x, y: x + y),
    ],
)
def test_every_accumulator_can_be_added(name: str, add):
    mma = wf.get(name)
    A = np.random.default_rng(8).integers(-99, 100, (3, 512)) * np.tile([1, 1, 0, 0], 128)
    B = np.random.default_rng(9).integers(-99, 100, (512, 5)) / (8 if mma.b.format.is_float else 1)
    halves = [wf.gemm(A[:, part], B[part], instruction=mma) for part in (slice(256), slice(256, 512))]

    found = wf.gemm(A, B, instruction=mma, order=wf.Order(split_k=2, unit=256))
    assert found.dtype == halves[0].dtype
    assert np.array_equal(found, add(*halves))


def test_sums_of_integers_wrap_or_are_clamped():
    A, B = np.full((1, 64), 127), np.full((64, 1), 127)
    C = np.full((1, 1), 2**31 - 1)
    order = wf.Order(split_k=2, unit=32)
    wrapped = wf.gemm(A, B, C, instruction="mma.m16n8k32.s32.s8.s8.s32", order=order)
    clamped = wf.gemm(A, B, C, instruction="mma.m16n8k32.satfinite.s32.s8.s8.s32", order=order)

    assert wrapped.item() == 64 * 127 * 127 - 2**31 - 1
    assert clamped.item() == 2**31 - 1


def test_nan_and_infinite_parts_give_the_nan_of_an_addition():
    A = np.zeros((1, 64), np.float16)
    A[0, 0], A[0, 32] = np.inf, -np.inf
    found = wf.gemm(A, np.ones((64, 1)), instruction=F16, order=wf.Order(split_k=2, unit=32))
    assert found.view(np.uint32).item() == 0x7FFFFFFF


def test_block_scales_follow_their_parts():
    name = "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    SA, SB = 2.0 ** np.arange(4)[None], np.ones((4, 2))
    found = wf.gemm(
        Scaled(np.ones((1, 128)), SA), Scaled(np.ones((128, 2)), SB), instruction=name, arch="sm_120",
        order=wf.Order(split_k=2, unit=32),
    )  # fmt: skip
    assert np.array_equal(found, np.full((1, 2), 32 * 15))


def test_a_batch_is_so_many_products():
    A, B, C = random((2, 1, 5, 40), 10), random((3, 40, 6), 11), random((5, 6), 12, np.float32)
    found = wf.gemm(A, B, C, instruction=F16, order=wf.Order(split_k=2, unit=16))

    assert found.shape == (2, 3, 5, 6)
    for i, j in np.ndindex(2, 3):
        one = wf.gemm(A[i, 0], B[j], C, instruction=F16, order=wf.Order(split_k=2, unit=16))
        assert np.array_equal(found[i, j], one)
    assert wf.gemm(A[:0], B[:1], instruction=F16).shape == (0, 1, 5, 6)


def test_orders_in_words():
    assert str(wf.Order()) == "k ascending"
    assert wf.Order(2, 64).describe(4096) == "split-K in 2 parts of 2048, k ascending in each, added in float32"
    assert wf.Order(3, 64).describe(4096) == (
        "split-K in 3 parts of 1408 (the last of 1280), k ascending in each, added in float32"
    )
    assert wf.Order(4, 64).describe(260) == (
        "split-K in 3 parts of 128 (the last of 4), k ascending in each, added in float32"
    )
    assert str(wf.Order(2)) == "split-K in 2 parts, k ascending in each, added in float32"
    assert str(wf.Order(promote=128)) == "k ascending, promoted to a float32 accumulator every 128 k"
    assert str(wf.Order(residue=16)) == "the first K % 16 alone, then k ascending"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split_k": 0}, "split_k: expected an integer of at least 1; got 0"),
        ({"split_k": None}, "split_k: expected an integer of at least 1; got None"),
        ({"unit": True}, "unit: expected an integer of at least 1, or None; got True"),
        ({"promote": 96, "residue": 64}, "promote must be a multiple of residue, 64; got 96"),
        ({"split_k": 2, "segment_k": 2}, "expected split_k or segment_k, not both; got 2 and 2"),
        ({"step": 12}, "step: expected a divisor of the instruction's k, 16; got 12"),
        ({"step": 8, "residue": 12}, "residue: expected a multiple of step, 8; got 12"),
        ({"promote": 8}, "promote: expected a multiple of the instruction's k, 16; got 8"),
        ({"residue": 8}, "residue: expected a multiple of the instruction's k, 16; got 8"),
    ],
)
def test_what_is_no_order_is_refused(fields: dict, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.gemm(np.ones((2, 64)), np.ones((64, 2)), instruction=F16, order=wf.Order(**fields))


def test_other_orders_and_odd_batches_are_refused():
    with pytest.raises(wf.errors.InvalidOperand, match=r"expected a wf.Order, such as wf.Order\(split_k=2\); got 3"):
        wf.gemm(np.ones((2, 4)), np.ones((4, 2)), instruction=F16, order=3)
    with pytest.raises(
        wf.errors.InvalidOperand, match="residue and step apply only to dense gemms without scale factors"
    ):
        wf.gemm(
            np.zeros((2, 64)), np.ones((64, 2)), instruction="mma.sp.m16n8k32.f32.f16.f16.f32",
            order=wf.Order(residue=32),
        )  # fmt: skip
    with pytest.raises(
        wf.errors.InvalidOperand, match="A is 2 x 4 x 4 and B is 3 x 4 x 4: their batch axes do not broadcast"
    ):
        wf.gemm(np.ones((2, 4, 4)), np.ones((3, 4, 4)), instruction=F16)
    with pytest.raises(wf.errors.InvalidOperand, match="C: expected shape 2 x 4 x 4, got 3 x 4 x 4"):
        wf.gemm(np.ones((2, 4, 4)), np.ones((4, 4)), np.ones((3, 4, 4)), instruction=F16)


@pytest.mark.filterwarnings("ignore::warpfrag.errors.AmbiguousOrder")
@pytest.mark.parametrize("name", ORDERS)
def test_products_of_cublas_are_explained(name: str):
    """Parts of torch.matmul, torch._scaled_mm and torch._int_mm products from an H200."""
    kind, result = DTYPES[name.partition(" ")[0]]
    A, B, D = (CAPTURED[f"{name}/{role}"] for role in "ABD")
    assert wf.find_order(A.view(kind), B.view(kind), D.view(result)) == ORDERS[name]


@pytest.mark.filterwarnings("ignore::warpfrag.errors.AmbiguousOrder")
@pytest.mark.parametrize(
    "order",
    [
        wf.Order(split_k=5, unit=64),
        wf.Order(split_k=3, unit=128, residue=32),
        wf.Order(residue=64),
        wf.Order(split_k=2, unit=64, promote=128),
    ],
)
@pytest.mark.parametrize("result", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_an_order_is_found_again(order: wf.Order, result: type):
    A, B = random((24, 1000), 13), random((1000, 40), 14)
    observed = wf.gemm(A, B, instruction=F16, order=order).astype(result)
    found = wf.find_order(A, B, observed, instruction=F16)

    assert np.array_equal(wf.gemm(A, B, instruction=F16, order=found).astype(result), observed)
    if result is np.float32:
        assert found.chains(1000, 16, 16) == order.chains(1000, 16, 16)


def test_a_rounded_result_does_not_decide_between_orders():
    """Each order that is said to fit does, and their additions differ: their float32 sums do."""
    A, B = random((8, 256), 13), random((256, 8), 14)
    sums = wf.gemm(A, B)
    with pytest.warns(wf.errors.AmbiguousOrder, match=r"at least 8 orders fit \(of \d+ that were compared\)"):
        assert wf.find_order(A, B, sums.astype(np.float16)) == wf.Order()
    found = find_orders(A, B, sums.astype(np.float16), instruction=None, arch="sm_90", progress=None, backend="cpu")
    each = [np.asarray(wf.gemm(A, B, order=order)) for order in found.orders]
    assert all(np.array_equal(one.astype(np.float16), sums.astype(np.float16)) for one in each)
    assert len({one.tobytes() for one in each}) == len(each) == 8
    assert wf.find_order(A, B, sums) == wf.Order()


def test_the_same_additions_are_one_order():
    key = additions_of(wf.Order(split_k=3, unit=64), 700, 16, 16)
    assert additions_of(wf.Order(split_k=2, unit=256, promote=256), 700, 16, 16) == key
    assert additions_of(wf.Order(split_k=2, unit=256, promote=128), 700, 16, 16) != key


def test_no_order_explains_another_product():
    A, B = random((8, 200), 15), random((200, 8), 16)
    observed = wf.gemm(A, B, instruction=F16)
    observed[3, 4] = np.nextafter(observed[3, 4], np.float32(9))
    tried = []

    assert wf.find_order(A, B, observed, progress=lambda *told: tried.append(told)) is None
    assert tried[0] == (0, len(tried), "k ascending")
    assert [done for done, _, _ in tried] == list(range(len(tried)))


def test_integers_have_one_order():
    A, B = np.ones((2, 300), np.int8), np.ones((300, 2), np.int8)
    with pytest.warns(wf.errors.AmbiguousOrder, match="every order of additions gives observed"):
        assert wf.find_order(A, B, np.full((2, 2), 300, np.int32)) == wf.Order()
    assert wf.find_order(A, B, np.full((2, 2), 301, np.int32)) is None


def test_candidates_differ_in_what_they_add():
    fp8 = wf.get("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3")
    orders = list(candidates(1000, plan(fp8.form, "sm_90").rule))
    assert orders[0] == wf.Order()
    assert wf.Order(promote=128) in orders
    assert wf.Order(split_k=8, unit=128) not in orders  # adds as the promotion does
    assert len(orders) == len(set(orders)) > 50


def test_every_nan_is_converted_to_the_same():
    codes = np.array([0x7FC00000, 0xFFFFFFFF, 0x7F800000, 0x477FF000, 0x00000001], np.uint32)
    assert convert("f32", codes, "f16").tolist() == [0x7FFF, 0x7FFF, 0x7C00, 0x7C00, 0]
    assert convert("f32", codes, "bf16").tolist() == [0x7FFF, 0x7FFF, 0x7F80, 0x4780, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"observed": np.ones((3, 4), np.float32)},
            "observed: expected shape 3 x 5, the rows of A and the columns of B; got 3 x 4",
        ),
        (
            {"observed": np.ones((3, 5))},
            "expected one of float32, float16, bfloat16, since D is f32; got dtype float64",
        ),
        ({"observed": np.ones((3, 5), np.uint16)}, "got dtype uint16"),
        ({"A": np.ones((3, 7), np.float16)}, "A is 3 x 7 and B is 8 x 5: the inner extents differ"),
        (
            {"B": np.ones((8, 5), np.float32)},
            "A is float16 and B is float32: sm_90 has no mma for them",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(change: dict, message: str):
    right = {
        "A": np.ones((3, 8), np.float16),
        "B": np.ones((8, 5), np.float16),
        "observed": np.ones((3, 5), np.float32),
    }
    with pytest.raises(wf.WarpfragError, match=message):
        wf.find_order(**(right | change))
