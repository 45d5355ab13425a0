"""`warpfrag products`: the product computed from the listed bits is the product."""

import numpy as np
import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"
SPARSE = "mma.sp.m16n8k64.s32.s8.s8.s32"
SCALED = "mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


def value(operand, words, holder):
    """The value in the bits that a holder names."""
    width = holder["bit_high"] - holder["bit_low"] + 1
    code = int(words[holder["lane"], holder["reg"]]) >> holder["bit_low"] & (1 << width) - 1
    return operand.format.decode(code)


def small(rng, shape):
    return rng.integers(-3, 4, shape)


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "mma.m16n8k32.s32.s8.s8.s32",
        "mma.m16n8k64.s32.s4.s4.s32",
        "mma.m8n8k16.s32.s8.s8.s32",
        "wmma.mma.row.col.m16n16k16.f32.f32",
    ],
)
def test_the_terms_add_up_to_the_product(run, name):
    mma = wf.get(name)
    rng = np.random.default_rng(7)
    A, B = small(rng, mma.a.shape), small(rng, mma.b.shape)
    a, b = mma.a.pack(A), mma.b.pack(B)
    for row, col in [(0, 0), (mma.shape.m - 1, mma.shape.n - 1), (5, 3)]:
        (found,) = run("products", name, row, col, "--json").json["results"]
        assert [term["k"] for term in found["terms"]] == list(range(mma.shape.k))
        for holders in ([term["a"] for term in found["terms"]], [term["b"] for term in found["terms"]]):
            assert all(holders)
        total = sum(value(mma.a, a, term["a"][0]) * value(mma.b, b, term["b"][0]) for term in found["terms"])
        assert total == (A @ B)[row, col]
        for role in "cd":
            places = [(entry["lane"], entry["reg"], entry["slot"]) for entry in found[role]]
            assert places == mma.operands[role].layout.where(row=row, col=col)


def test_m8n8k4_shows_all_four_products_or_one(run):
    name = "mma.m8n8k4.row.col.f32.f16.f16.f32"
    mma = wf.get(name)
    rng = np.random.default_rng(8)
    A, B = small(rng, (4, 8, 4)), small(rng, (4, 4, 8))
    a, b = mma.a.pack(A), mma.b.pack(B)
    results = run("products", name, 6, 5, "--json").json["results"]

    assert [found["mma"] for found in results] == [0, 1, 2, 3]
    for found in results:
        total = sum(value(mma.a, a, term["a"][0]) * value(mma.b, b, term["b"][0]) for term in found["terms"])
        assert total == (A @ B)[found["mma"], 6, 5]
    assert run("products", name, 6, 5, "--mma", 2, "--json").json["results"] == [results[2]]


def test_a_sparse_product_shows_what_is_possible(run):
    name = "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32"
    (found,) = run("products", name, 9, 3, "--selector", 1, "--json").json["results"]
    text = run("products", name, 9, 3, "--selector", 1).lines

    assert [term["possible_k"] for term in found["terms"][:4]] == [[0, 1, 2], [1, 2, 3], [4, 5, 6], [5, 6, 7]]
    assert [term["k"] for term in found["terms"]] == [None] * 16
    place = wf.get(name).metadata.where(row=9, chunk=0, selector=1)
    assert (found["terms"][0]["metadata"]["lane"], found["terms"][0]["metadata"]["bit_low"]) == place
    assert text[5].split() == ["k", "stored", "A", "lane", "reg", "bits", "element", "code", "lane", "bits"]
    assert text[6].split() == ["0|1|2", "0", "4", "1", "15:0", "a2", "6", "19:16"]
    assert "b K 3` shows the element of B" in " ".join(" ".join(text).split())


def test_block_scaling_shows_the_scale_factors(run):
    mma = wf.get(SCALED)
    rng = np.random.default_rng(10)
    SA, SB = rng.integers(0, 120, (16, 4)), rng.integers(0, 120, (4, 8))
    sa = mma.scale_a.pack(SA, raw=True, byte_id=0, thread_id=0)
    sb = mma.scale_b.pack(SB, raw=True, byte_id=0, thread_id=0)
    (found,) = run("products", SCALED, 9, 5, "--json").json["results"]

    assert [(scale["k_first"], scale["k_last"]) for scale in found["scales"]] == [(0, 15), (16, 31), (32, 47), (48, 63)]
    for scale in found["scales"]:
        (a,), (b,) = scale["scale_a"], scale["scale_b"]
        assert int(sa[a["lane"]]) >> a["bit_low"] & 255 == SA[9, scale["scale"]]
        assert int(sb[b["lane"]]) >> b["bit_low"] & 255 == SB[scale["scale"], 5]


def test_products_as_text(run):
    lines = run("products", NAME, 9, 3).lines

    assert lines[2].split() == ["D", "5", "3", "31:0", "d3"]
    assert lines[5].split() == ["k", "A", "lane", "reg", "bits", "element", "B", "lane", "reg", "bits", "element"]
    assert lines[6].split() == ["0", "4", "1", "15:0", "a2", "12", "0", "15:0", "b0"]
    assert len(lines) == 6 + 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([NAME, 16, 0], "row must be in 0..15, got 16"),
        ([NAME, 0, 8], "col must be in 0..7, got 8"),
        ([NAME, 0, 0, "--selector", 0], "--selector applies to instructions with a sparse A"),
        ([NAME, 0, 0, "--mma", 0], "--mma does not apply to d of mma.sync"),
        ([SPARSE, 0, 0, "--selector", 1], "selector: expected one of 0, got 1"),
        (["ldmatrix.m8n8.x4.shared.b16", 0, 0], "products applies to mma, mma.sp, wmma.mma and wgmma, not to ldmatrix"),
    ],
)
def test_bad_questions_are_refused(refused, words, message):
    assert refused("products", *words).startswith(message)


def test_float32_operands_are_said_to_be_truncated(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exact, inexact = np.ones((16, 16), np.float32), np.full((16, 16), 1 / 3, np.float32)
    np.save("exact.npy", exact)
    np.save("A.npy", inexact)

    truncated = run("gemm", "A.npy", "exact.npy", "--arch", "A100")
    assert "note: float32 is truncated to tf32" in truncated.out
    assert "--rounding rne rounds it first" in " ".join(truncated.out.split())
    report = run("error-report", "A.npy", "exact.npy", "--arch", "A100")
    assert report.lines[-1].startswith("note: float32 is truncated to tf32, as a tensor core reads it; --rounding rne")
    assert report.lines[-1].endswith("; errors are relative to the product of the truncated operands")
    assert "truncated" in run("error-report", "A.npy", "exact.npy", "--arch", "A100", "--json").json["note"]
    assert run("error-report", "exact.npy", "exact.npy", "--arch", "A100", "--json").json["note"] == ""
    assert "note" not in run("gemm", "A.npy", "exact.npy", "--arch", "A100", "--rounding", "rne").out
    assert "note" not in run("gemm", "exact.npy", "exact.npy", "--arch", "A100").out
    with pytest.warns(wf.errors.LossyProduct, match="truncated to tf32"):
        wf.gemm(inexact, exact, arch="A100")


def test_the_arithmetic_table_names_shapes(run):
    lines = run("arithmetic-table", "sm_90").lines
    assert "mma f16 + f16 -> f16: m16n8k8, m16n8k16" in lines
    assert any(line.endswith(": m64n8k16, ..., m64n256k16") for line in lines)


def test_the_arithmetic_table_of_an_instruction(run, refused):
    assert run("arithmetic-table", NAME).out == run("arithmetic-table", "--for", NAME).out
    assert refused("arithmetic-table", "sm_9").startswith("\"arithmetic_table('sm_9')\": unknown arch 'sm_9'")


def test_an_order_is_found_on_a_gpu_without_library_tables(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    A, B = random.normal(size=(16, 64)).astype(np.float16), random.normal(size=(64, 8)).astype(np.float16)
    for name, array in (("A", A), ("B", B), ("D1", wf.gemm(A, B, arch="A100")), ("D2", wf.gemm(A, B, arch="H100"))):
        np.save(f"{name}.npy", array)

    assert run("find-order", "A.npy", "B.npy", "D1.npy", "--arch", "A100").lines[0].startswith("k ascending")
    explained = run("explain", "D1.npy", "D2.npy", "A.npy", "B.npy", "--arch", "A100", "--arch", "H100")
    text = " ".join(explained.out.split())
    assert "D1: k ascending, on A100 D2: k ascending, on H100" in text
    steps = "A100 adds 8 products per step with 24 fraction bits, and H100 adds 16 products per step with 25"
    assert f": {steps} fraction bits" in text


def test_batch_invariance_ends_with_a_conclusion(run):
    changing = run("batch-invariance", "bf16", "--n", "4096", "--k", "14336")
    answer = run("batch-invariance", "bf16", "--n", "4096", "--k", "14336", "--json").json
    constant = run("batch-invariance", "bf16", "--n", "4096", "--k", "14336", "-m", "1", "56")

    assert "the bits of a row change at m = 57, 65, 89" in changing.out
    remedy = "pad smaller batches with zero rows until m is in 209..215, 217..223,"
    assert remedy in " ".join(changing.out.split())
    assert answer["conclusion"].startswith("the bits of a row change at m = 57")
    assert constant.lines[1] == "the bits of a row do not depend on the batch size from 1 to 56"
    assert (changing.code, constant.code) == (1, 0)
    assumed = (
        "assumes torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False (PyTorch's default: True)"
    )
    assert assumed in " ".join(changing.out.split())
    assert answer["settings"][assumed.split()[1]]["assumed"] is False
    few = run("batch-invariance", "bfloat16", "--n", "4096", "--k", "14336", "-m", "1", "64")
    advice = "to keep the bits up to m = 64, pad smaller batches with zero rows until m is in 57..64 (at most 56 rows)"
    assert advice in " ".join(few.out.split())


def test_padded_batches_have_the_order_of_the_largest_one():
    found = wf.batch_invariance({"down": (4096, 14336), "up": (14336, 4096), "out": (4096, 4096)}, m=(1, 600))
    spans = found.like_largest
    assert len(spans) > 3
    for layer in found.layers:
        orders = {run.order for run in layer.ranges for first, last in spans if run.first <= first and last <= run.last}
        largest = layer.ranges[-1].order
        assert {order.describe(layer.k) for order in orders} == {largest.describe(layer.k)}
        others = [run for run in layer.ranges if run.order != largest]
        assert not any(run.first <= m <= run.last for run in others for span in spans for m in span)
