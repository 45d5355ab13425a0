"""The arithmetic table: it states what `execute` computes, and every reference exists."""

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.tensorcore.arithmetic_table import references


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("mma.m16n8k16.f32.f16.f16.f32", "sm_80"),
        ("mma.m16n8k16.f32.f16.f16.f32", "sm_90"),
        ("mma.m16n8k16.f32.bf16.bf16.f32", "sm_75"),
        ("mma.m16n8k32.f32.e4m3.e4m3.f32", "sm_89"),
        ("mma.m16n8k8.f32.tf32.tf32.f32", "sm_80"),
    ],
)
def test_a_term_keeps_the_bits_that_the_row_says(name, arch):
    mma = wf.get(name)
    if arch == "sm_75" and mma.form.a == "bf16":
        with pytest.raises(wf.WarpfragError):
            wf.arithmetic_table(arch).of(mma)
        return
    row = wf.arithmetic_table(arch).of(name)
    for bits, is_kept in ((row.fraction_bits, True), (row.fraction_bits + 1, False)):
        A, B = np.zeros(mma.a.shape), np.zeros(mma.b.shape)
        half = bits // 2
        A[0, :2], B[:2, 0] = (1, 2.0**-half), (1, 2.0 ** -(bits - half))
        A[0, 2], B[2, 0] = -1, 1
        assert (mma(A, B, arch=arch)[0, 0] == 2.0**-bits) == is_kept


def test_every_architecture_is_in_one_table_and_every_reference_exists():
    table = wf.arithmetic_table()
    head, *body = table.overview()

    assert set(head[1:]) == {row.arch for row in table} >= {"sm_70", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}
    assert (
        dict(zip(head, next(row for row in body if row[0] == "mma f16 + f32 -> f32"), strict=True))["sm_90"]
        == "fma 16/25"
    )
    assert {key for row in table for key in row.references} <= set(references())
    assert all(row.references and row.source and row.level for row in table)
    papers = {entry.doi or entry.arxiv for entry in references().values()}
    assert papers >= {"10.7717/peerj-cs.330", "2403.00232", "2411.00442", "2511.10909", "2512.07004"}


def test_f64_names_every_rounding():
    row = wf.arithmetic_table("sm_90").of("mma.m8n8k4.f64.f64.f64.f64")

    assert row.rounding == "to nearest even, or as .rz .rm .rp specify, after every product"
    assert len([name for name in row.instructions if ".rz." in name]) == len(row.instructions) // 4 or row.instructions
    assert row.products is None
    assert row.step == "fma"


def test_what_is_not_known_is_refused():
    with pytest.raises(wf.WarpfragError, match="sm_12"):
        wf.arithmetic_table("sm_12")
    with pytest.raises(wf.errors.InvalidOperand, match="expected an architecture"):
        wf.arithmetic_table(90)
    with pytest.raises(wf.errors.NotModelled, match="has no known arithmetic on sm_70"):
        wf.arithmetic_table("sm_70").of("mma.m16n8k16.f32.f16.f16.f32")


def test_rows_are_cited_with_version_and_references():
    row = wf.arithmetic_table("sm_90").of("mma.m16n8k16.f32.f16.f16.f32")

    assert row.citation.startswith('warpfrag, arithmetic_table("sm_90"), mma f16/bf16 + f32 -> f32 (published: ')
    assert "<table" in wf.arithmetic_table("sm_90")._repr_html_()
