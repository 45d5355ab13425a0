"""Mistakes with indices, strides, offsets, accumulators, the order of k and rounding are found in every family."""

from functools import partial

import numpy as np
import pytest

import warpfrag as wf
from diagnosis.asking import diagnose
from diagnosis.test_diagnose import FAMILIES, SCALED, SPARSE, Planted
from slow_cases import sampled, slow
from warpfrag.diagnosis.arithmetic_mistakes import added
from warpfrag.diagnosis.findings import Mistake
from warpfrag.diagnosis.matrix_mistakes import recoded
from warpfrag.formats.codes import from_codes, to_codes

STARTS = (
    "A: row index with too few bits",
    "B: leading dimension",
    "B: offset of +2 el",
    "B: column index with too few",
)
KERNELS = {
    "mma.m16n8k16.f32.f16.f16.f32": "sm_90",
    "mma.m16n8k16.f16.f16.f16.f16": "sm_80",
    "mma.m16n8k16.f32.bf16.bf16.f32": "sm_80",
    "mma.m16n8k8.f32.tf32.tf32.f32": "sm_90",
    "mma.m16n8k32.f32.e4m3.e4m3.f32": "sm_89",
    "mma.m16n8k32.f32.e5m2.e5m2.f32": "sm_89",
    "wgmma.mma_async.m64n32k16.f32.f16.f16": "sm_90",
    "wmma.mma.row.col.m16n16k16.f32.f32": "sm_90",
}


def texts(found):
    return [str(finding) for finding in found]


@pytest.mark.parametrize("name", sampled([name for name in FAMILIES if name != "mma.m16n8k8.f64.f64.f64.f64"], 4))
def test_wrong_indices_accumulators_and_rounding_are_named_in_every_family(name):
    product = Planted(name, FAMILIES[name])
    mma = product.mma
    for start in STARTS:
        codes = product.make(*product.named(start))
        if codes is not None:
            assert any(text.startswith(start) for text in texts(product.diagnose(codes))), start
    if name != SCALED:  # whose sums are too large to show a number as small as 3
        held = mma.c.codes(np.full(mma.c.shape, 3)).flat[0]
        change = recoded(mma.c, lambda codes: added(mma.c, codes, np.full_like(codes, held)))
        exactly = "" if mma.d.format.is_float else "3 more"
        found = texts(product.diagnose(product.make(Mistake("c", "c", "", change))))
        assert found[0].startswith(f"C: not zeroed: every element is {exactly}")
    if mma.d.format.is_float:
        codes = product.right.copy()
        codes.flat[::3] += codes.dtype.type(1)
        assert texts(product.diagnose(codes))[0].startswith("D: right up to rounding: ")


def matrices(name, shape=(64, 32, 64)):
    instruction, random = wf.get(name), np.random.default_rng(5)
    m, n, k = shape
    return [
        from_codes(operand.format, to_codes(operand.format, random.standard_normal(size), rounding="rne"))
        for operand, size in ((instruction.a, (m, k)), (instruction.b, (k, n)))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_the_order_of_k_in_a_kernel_is_named(name):
    A, B = matrices(name)
    arch = KERNELS[name]
    tiles = np.arange(64).reshape(2, 32)[::-1].reshape(-1)
    observed = wf.gemm(A[:, tiles], B[tiles], instruction=name, arch=arch)
    found = diagnose(name, observed, A, B, arch=arch, tile=(64, 32, 32))

    assert "D: k in another order: tiles of 32, from the last to the first" in texts(found)


F16 = "mma.m16n8k16.f32.f16.f16.f32"


def carried(A, B):
    """A kernel that never zeroes its accumulators: one tile of 32 x 16 after another, row by row."""
    D, before = np.zeros((64, 32), np.float32), None
    for row in (0, 32):
        for col in (0, 16):
            before = wf.gemm(A[row : row + 32], B[:, col : col + 16], before, instruction=F16)
            D[row : row + 32, col : col + 16] = before
    return D


def planted_in_kernels():
    A, B = matrices(F16)
    run = partial(wf.gemm, instruction=F16)
    right, flat = run(A, B), A.reshape(-1)
    rows = np.arange(64)
    strided = flat[rows[:, None] * 56 + np.arange(64)]
    b = wf.get(F16).b
    blocks = B.reshape(4, 16, 4, 8).transpose(0, 2, 1, 3)
    swapped = b.unpack(b.pack(blocks)[..., ::-1]).transpose(0, 2, 1, 3).reshape(B.shape)
    stored = np.zeros(64 * 40 + 32, np.float32)
    stored[(rows[:, None] * 40 + np.arange(32))] = right
    split = wf.gemm(*matrices(F16, (64, 32, 256)), instruction=F16, order=wf.Order(split_k=2))
    return {
        "A: row index with too few bits (row & 7)": run(A[rows & 7], B),
        "A: column index with too few bits (column & 31): columns repeat every 32": run(A[:, rows & 31], B),
        "A: leading dimension 56 instead of 64 (row-major)": run(strided, B),
        "A: offset of +8 elements in memory (row-major)": run(np.append(flat[8:], [0] * 8).reshape(64, 64), B),
        "B: registers 0 and 1 swapped": run(A, swapped),
        "C: not zeroed between tiles: each starts with the previous sums, row by row": carried(A, B),
        "C: not zeroed: every element is about -2.5 more than expected": run(A, B, np.full((64, 32), -2.5)),
        "C: not zeroed: every element is about 0.1235 more than expected": run(A, B) + np.float32(0.123456789),
        "D: the first tile of k is missing": run(A[:, 32:], B[32:]),
        "D: leading dimension 40 instead of 32 (row-major)": stored[: 64 * 32].reshape(64, 32),
        "D: k in another order: split-K in 2 parts": split,
        "D: right up to rounding: ": np.nextafter(right, np.float32(99)),
    }


@pytest.mark.parametrize(("text", "observed"), planted_in_kernels().items())
def test_mistakes_of_a_kernel_are_named(text, observed):
    A, B = matrices(F16, (64, 32, 256)) if "split-K" in text else matrices(F16)
    found = diagnose(F16, observed, A, B, tile=(32, 16, 32))

    assert any(name.startswith(text) for name in texts(found)), texts(found)


@pytest.mark.parametrize("transposed", ["A", "B"])
@pytest.mark.parametrize("extents", [(16, 16, 16), slow(((48, 48, 48),)), slow(((48, 64, 64),))])
def test_a_transposed_matrix_of_a_whole_kernel_is_named(transposed, extents):
    m, n, k = extents
    A, B = matrices(F16, (k, n, k) if transposed == "A" else (m, k, k))
    turned = (A.T, B) if transposed == "A" else (A, B.T)
    exact = wf.gemm(*map(np.ascontiguousarray, turned), instruction=F16)
    library = turned[0].astype(np.float32) @ turned[1].astype(np.float32)
    halves = library.astype(np.float16)
    printed = np.array([[float(f"{value:.4f}") for value in row] for row in library])

    for observed in (exact, library, halves, halves.astype(np.float32), printed):
        found = diagnose(F16, observed, A, B)
        assert f"{transposed}: the whole matrix transposed" in texts(found)
        assert all(finding.operand == transposed.lower() for finding in found)


def test_the_precision_of_a_whole_d_is_noted():
    A, B = matrices(F16)
    right = wf.gemm(A, B, instruction=F16)
    halves = diagnose(F16, right.astype(np.float16).astype(np.float32), A, B)
    printed = diagnose(F16, np.round(right.astype(float), 2), A, B)

    assert (halves.correct, halves.notes) == (True, ("all values of D are exact in f16, so D is compared as f16",))
    assert printed.correct
    assert printed.notes[0].startswith("compared at the precision of D: ")
    assert diagnose(F16, right, A, B).notes == ()
    assert not diagnose(F16, np.round(right.astype(float), 2) + 0.5, A, B).correct


def test_a_right_kernel_is_right_and_f16_results_are_compared_as_f16():
    A, B = matrices(F16)
    right = wf.gemm(A, B, instruction=F16)

    assert diagnose(F16, right, A, B, tile=(32, 16)).correct
    assert diagnose(F16, right.astype(np.float16), A, B, tile=(32, 16)).correct


def test_what_is_right_is_said_and_what_the_wrong_elements_equal():
    A, B = matrices(F16)
    D = wf.gemm(A, B, instruction=F16)
    D[:32, 16:] = D[:32, :16]
    D[40] = 0
    found = diagnose(F16, D, A, B, tile=(32, 16))

    assert found == []
    assert found.agreement.rows == (*range(32, 40), *range(41, 64))
    assert found.agreement.blocks == ((0, 0),)
    assert found.agreement.equals == (
        "32 of 544 wrong elements are 0",
        "512 of 544 wrong elements equal the expected D[row, col - 16]",
    )
    assert str(found).endswith("\n".join(found.agreement.equals))


def test_lanes_and_registers_that_are_right_are_listed():
    mma, random = wf.get(F16), np.random.default_rng(1)
    A, B = (random.standard_normal(operand.shape).astype(np.float16) for operand in (mma.a, mma.b))
    words = mma.d.pack(mma(A, B))
    words[3, 1] ^= 0x12345678
    words[9, 1] = 0x7FC00000
    right = diagnose(mma, words, A, B).agreement

    assert right.lanes == tuple(lane for lane in range(32) if lane not in {3, 9})
    assert right.registers == (0, 2, 3)
    assert right.correct == 126
    assert "1 of 2 wrong elements are NaN" in right.equals


@pytest.mark.parametrize("name", [SPARSE, SCALED, F16, "mma.m16n8k32.s32.s8.s8.s32"])
def test_nothing_is_named_where_nothing_explains_it(name):
    # benchmarks/unexplained.py does this two thousand times
    product = Planted(name, FAMILIES[name], seed=11)
    codes = product.right.copy()
    codes.flat[[3, 50]] = codes.flat[[50, 3]]
    codes.flat[77] ^= codes.dtype.type(1 << 18)

    assert product.diagnose(codes) == []
    assert product.diagnose(codes).agreement.correct == codes.size - 3


def test_wrong_tiles_are_refused():
    A, B = matrices(F16)
    D = np.zeros((64, 32), np.float32)
    for tile in ((16,), (16, 0), "16x8", (16, 8, 16, 1)):
        with pytest.raises(wf.errors.InvalidOperand, match="expected the rows and columns of D that a block computes"):
            diagnose(F16, D, A, B, tile=tile)
    with pytest.raises(wf.errors.InvalidOperand, match="observed: expected shape"):
        diagnose(F16, D[:16], A, B, tile=(16, 8))
    with pytest.raises(wf.errors.InvalidOperand, match="without metadata or scale factors"):
        diagnose(F16, D, A, B, metadata=np.zeros(32, np.uint32), tile=(16, 8))


@pytest.mark.parametrize("held", ["old", "constant", "nan"])
@pytest.mark.parametrize(("lines", "text"), [(np.s_[8:], "rows 8-15 (registers 2, 3)"), (np.s_[:, 1::2], "columns")])
def test_rows_and_columns_that_were_not_stored_are_named(held, lines, text):
    mma, random = wf.get(F16), np.random.default_rng(2)
    A, B, A_before = (random.standard_normal(size).astype(np.float16) for size in ((16, 16), (16, 8), (16, 16)))
    before = {"old": mma(A_before, B), "constant": np.full((16, 8), 7.0), "nan": np.full((16, 8), np.nan)}[held]
    D = mma(A, B)
    D[lines] = before[lines]
    found = diagnose(mma, D, A, B)

    assert [finding.kind for finding in found] == ["index"]
    assert str(found[0]).startswith(f"D: {text}")
    assert "): values unrelated to the product, as if they were not stored; all others are right" in str(found[0])


def test_elements_that_are_moved_or_changed_were_stored():
    mma, random = wf.get(F16), np.random.default_rng(2)
    A, B = (random.standard_normal(size).astype(np.float16) for size in ((16, 16), (16, 8)))
    D = mma(A, B)
    more, moved = D.copy(), D.copy()
    more[:8, ::2] += 1  # register 0
    moved[:, 2], moved[:, 4:8:2] = D[:, 4], 0

    assert diagnose(mma, more, A, B) == []
    assert diagnose(mma, moved, A, B) == []


def test_a_zero_that_was_not_overwritten_is_first_a_mistake_with_d():
    mma, random = wf.get(F16), np.random.default_rng(3)
    A, B = (random.standard_normal(operand.shape).astype(np.float16) for operand in (mma.a, mma.b))
    D = mma(A, B)
    D[8:] = 0
    found = diagnose(mma, D, A, B)

    assert texts(found) == ["D: registers 2, 3 not stored", "A: registers 1, 3 not filled"]
    assert found[0].fix.startswith("store registers 2, 3 of D: ")


def test_tiles_of_a_kernel_that_were_not_stored_are_named():
    A, B = matrices(F16)
    D = wf.gemm(A, B, instruction=F16)
    tile, rows = D.copy(), D.copy()
    tile[32:, 16:] = 5
    rows.reshape(-1, 16, D.shape[1])[:, 8:] = 5
    few = D.copy()
    few[40, ::3] = 5

    assert str(diagnose(F16, tile, A, B, tile=(32, 16))[0]).startswith("D: 32 x 16 block (1, 1): ")
    assert "(registers 2, 3): values unrelated" in str(diagnose(F16, rows, A, B, tile=(32, 16))[0])
    assert diagnose(F16, few, A, B, tile=(32, 16)) == []


def test_a_weight_that_is_multiplied_as_its_transpose_is_found_or_refused():
    random = np.random.default_rng(4)
    A, square, wide = (random.standard_normal(size).astype(np.float16) for size in ((32, 64), (64, 64), (24, 64)))
    D = wf.gemm(A, np.ascontiguousarray(square.T), instruction=F16)

    assert texts(diagnose(F16, D, A, square)) == ["B: the whole matrix transposed"]
    with pytest.raises(wf.errors.InvalidOperand, match=r"B has the shape \(24, 64\), .*pass B\.T"):
        diagnose(F16, wf.gemm(A, np.ascontiguousarray(wide.T), instruction=F16), A, wide)
