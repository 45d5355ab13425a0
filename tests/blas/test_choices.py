"""A library's choices as data: the file, the table of the wheel, the rules from a choice to an order, the model."""

import json
import time
import zipfile
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas.cublas import choice_model, cublaslt
from warpfrag.blas.cublas.choice_table import BUILT_IN, Choice, ChoiceRun, Choices, LayerKind, built_in
from warpfrag.blas.cublas.cublaslt import Configuration, KernelLaunch, choice_of
from warpfrag.blas.cublas.kernel_orders import order_of
from warpfrag.blas.cublas.library_gemm import lane_gemm
from warpfrag.blas.cublas.predict_order import ProductKind
from warpfrag.blas.cublas.segment_k import TILES, segmented
from warpfrag.hardware import cublas_survey
from warpfrag.hardware.cublas_survey import SurveyPlan, find_runs

NVJET = Choice(66, 0, 1, 0, 0, 0, "nvjet")
KIND = LayerKind("matmul", "bf16", "nt")


def nvjet(parts: int) -> Choice:
    return NVJET._replace(split_k=parts)


def small_table() -> Choices:
    runs = {
        (KIND, 64, 4096): [ChoiceRun(7, nvjet(4)), ChoiceRun(8, nvjet(4)), ChoiceRun(100, nvjet(2))],
        (KIND, 8, 11528): [ChoiceRun(100, nvjet(9))],
    }
    return Choices.build(runs, gpu="H999", library="cuBLASLt 99.1", torch="3.0")


def test_a_table_is_written_and_read(tmp_path):
    small_table().save(tmp_path / "choices.npz")
    table = Choices.load(tmp_path / "choices.npz")
    assert table.runs(KIND, 64, 4096) == [ChoiceRun(8, nvjet(4)), ChoiceRun(100, nvjet(2))]  # neighbours are joined
    chosen = [table.find(KIND, m, 64, 4096) for m in (1, 8, 9, 100, 101)]
    assert chosen == [nvjet(4), nvjet(4), nvjet(2), nvjet(2), None]
    assert table.runs(KIND, 64, 4097) is None
    assert table.listed == [(KIND, 8, 11528), (KIND, 64, 4096)]
    assert table.settings["workspace"] == 32 << 20
    assert table.settings["reduced_precision_reduction"] is False


def test_a_file_of_another_machine_is_used_and_its_limits_are_told(tmp_path):
    path = str(tmp_path / "choices.npz")
    small_table().save(path)
    found = wf.predict_order(9, 64, 4096, choices=path, layout="nt")
    assert (found.order, found.basis, found.is_guess) == (wf.Order(split_k=2, unit=64), "library", False)
    assert "cuBLASLt 99.1 on an H999" in found.text
    assert wf.predict_order(5, 8, 11528, choices=path, layout="nt").omitted_k == 8
    with pytest.raises(wf.errors.NotModelled, match="is not in <Choices of cuBLASLt 99.1 on H999: 2 layers, 3 runs>"):
        wf.predict_order(9, 64, 4104, choices=path, layout="nt")
    with pytest.raises(wf.errors.NotModelled, match="known on H200, not on 'H999'"):
        wf.predict_order(9, 64, 4096, choices="H999", layout="nt")


def changed(data: bytes, **arrays: np.ndarray) -> bytes:
    with np.load(BytesIO(data)) as stored:
        parts = {name: stored[name] for name in stored.files} | arrays
    stream = BytesIO()
    np.savez_compressed(stream, **parts)
    return stream.getvalue()


def other_header(data: bytes, **changes: object) -> bytes:
    with np.load(BytesIO(data)) as stored:
        header = json.loads(bytes(stored["header"])) | changes
    return changed(data, header=np.frombuffer(json.dumps(header).encode(), np.uint8))


def test_what_is_no_file_of_choices_is_refused_with_the_reason(tmp_path):
    data = small_table().to_bytes()
    wrong = {
        "expected a file of choices": b"nothing",
        "expected schema 1 of a file of choices, got 2": other_header(data, schema=2),
        "expected a file of choices written by `warpfrag survey`": other_header(data, format="x"),
        "expected the arrays": changed(data, ends=np.zeros(3)),
        "the arrays are inconsistent": changed(data, ends=np.array([1, 2], np.uint16)),
    }
    for reason, content in wrong.items():
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(wf.WarpfragError, match=f"bad.npz: {reason}"):
            Choices.load(tmp_path / "bad.npz")
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(wf.WarpfragError, match=r"cut.npz: expected a file of choices"):
        Choices.load(tmp_path / "cut.npz")
    with pytest.raises(wf.WarpfragError, match="cannot be read"):
        wf.predict_order(1, 8, 8, choices=str(tmp_path / "none.npz"))
    with pytest.raises(wf.errors.InvalidOperand, match="choices: expected a GPU, a table, or a"):
        wf.predict_order(1, 8, 8, choices=7, layout="nt")
    assert zipfile.is_zipfile(BytesIO(data))


@pytest.mark.parametrize("gpu", BUILT_IN)
def test_the_table_of_the_wheel(gpu: str):
    table = built_in(gpu)
    assert len(table.to_bytes()) < 1_000_000
    assert len({(n, k) for _, n, k in table.listed}) > 1000
    assert {kind.type for kind in table.kinds} >= {"bf16", "f16", "tf32", "e4m3"}
    for kind, n, k in table.listed[::97]:
        runs = table.runs(kind, n, k)
        ends = [run.last for run in runs]
        assert ends == sorted(set(ends)), (kind, n, k)
        assert ends[-1] == 16384
        assert all(before.choice != after.choice for before, after in pairwise(runs))


def test_look_ups_are_quick():
    built_in.cache_clear()
    start = time.perf_counter()
    built_in("H200")
    loaded = time.perf_counter() - start
    wf.predict_order(9, 4096, 14336, layout="nt")
    wf.predict_order(9, 4008, 4104, layout="nt")
    start = time.perf_counter()
    for m in range(1, 201):
        wf.predict_order(m, 4096, 14336, layout="nt")
        wf.predict_order(m, 4008, 4104, layout="nt")
    each = (time.perf_counter() - start) / 400
    assert loaded < 0.2, loaded  # 20 ms on a machine that has nothing else to do
    assert each < 0.005, each  # 1 ms likewise


def kind(type_: str, call: str = "matmul", layout: str = "nt") -> ProductKind:
    return ProductKind(call, type_, layout)


def test_a_choice_becomes_an_order():
    def order(of: ProductKind, choice: Choice, k: int = 4096) -> wf.Order:
        return order_of(of, choice, (16, 64, k)).order

    cutlass = Choice(21, 0, 5, 2, 0, 32, "cutlass_80_s1688")
    assert order(kind("bf16"), nvjet(1)) == wf.Order()
    assert order(kind("bf16"), nvjet(3)) == wf.Order(split_k=3, unit=64)
    assert order(kind("e4m3", "scaled_mm fast"), nvjet(3)) == wf.Order(split_k=3, unit=128)
    assert order(kind("e4m3", "scaled_mm slow"), nvjet(1)) == wf.Order(promote=128)
    assert order(kind("tf32"), cutlass) == wf.Order(split_k=5, unit=32, residue=32)
    assert order(kind("tf32"), cutlass, 4100) == wf.Order(split_k=5, unit=4, residue=32)  # no whole lines
    assert order(kind("tf32", layout="tn"), cutlass) == wf.Order(split_k=5, unit=4, residue=32)  # k strided
    short = Choice(24, 0, 5, 2, 0, 32, "cutlass_75_s1688")
    assert order(kind("f16"), short, 4099) == wf.Order(split_k=5, unit=8, residue=32, step=8)
    assert order(kind("s8", "int_mm"), Choice(0, 0, 1, 0, 0, 0, "integers")) == wf.Order()
    lanes = wf.Order(lanes=16, vector=1, promote=32)
    assert order(kind("tf32"), Choice(13, 0, 1, 0, 11, 0, "gemv2T")) == lanes
    assert order(kind("tf32"), Choice(13, 0, 1, 0, 75, 0, "gemvx")).vector == 1
    assert order(kind("tf32"), Choice(13, 0, 1, 0, 74, 0, "gemvx"), 257) == wf.Order(lanes=32, vector=9, in_halves=True)
    assert order(kind("tf32"), Choice(13, 0, 1, 0, 100, 0, "gemvx"), 8192).vector == 64
    dot = Choice(14, 0, 16, 2, 0, 0, "dot_kernel")
    assert order(kind("tf32"), dot) == wf.Order(lanes=128, vector=2, in_halves=True, blocks=16)
    assert order(kind("tf32"), cutlass._replace(split_k=24), 64) == wf.Order(split_k=2, unit=32, residue=32)
    with pytest.raises(wf.errors.NotModelled, match="a kernel whose order of additions is not modelled, dot_kernel"):
        order(kind("bf16"), dot)


SEGMENTS = [
    ("nn", (151, 4408, 3200), (18, 8, 0), 5, 18), ("nt", (2117, 1064, 5952), (20, 5, 1), 4, 21),
    ("nn", (67, 3544, 13888), (20, 8, 0), 4, 28),
]  # fmt: skip
"""Layout, shape, tile, cluster and swizzle; the parts and the number of cut tiles that special operands showed."""


@pytest.mark.parametrize(("layout", "shape", "numbers", "parts", "cut"), SEGMENTS)
def test_the_tiles_that_segment_k_cuts(layout, shape, numbers, parts, cut):
    tile, cluster, swizzle = numbers
    found = segmented(Choice(43, tile, 0, 0, cluster, swizzle, "xmma_segment_k"), layout, shape)
    rows, columns = TILES[tile] if layout != "nn" else TILES[tile][::-1]
    tiles = np.arange(0, shape[0], rows), np.arange(0, shape[1], columns)

    assert found.order == wf.Order(segment_k=parts, unit=32)
    assert (tiles[0].size * tiles[1].size if found.cut_tiles is None else found.cut_tiles.of(*tiles).sum()) == cut


def test_a_gemm_in_lanes_adds_as_it_says():
    random = np.random.default_rng(3)
    A, B = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 50), (50, 3)))
    order = wf.Order(lanes=4, vector=2, in_halves=True)
    sums = np.zeros((4, 2, 3), np.float32)
    for k in range(50):
        lane = k // 2 % 4
        sums[lane] = (A[:, k, None].astype(np.longdouble) * B[k] + sums[lane]).astype(np.float32)
    expected = (sums[0] + sums[2]) + (sums[1] + sums[3])

    assert np.array_equal(lane_gemm(A, B, order), expected)
    assert not np.array_equal(lane_gemm(A, B, wf.Order(lanes=1, vector=1)), expected)
    blocks = wf.Order(lanes=2, vector=2, in_halves=True, blocks=5)
    even, odd = (lane_gemm(A[:, each::2], B[each::2], wf.Order(lanes=10, vector=1)) for each in (0, 1))
    assert even.shape == lane_gemm(A, B, blocks).shape
    assert np.allclose(even + odd, lane_gemm(A, B, blocks))
    parts = lane_gemm(A[:, :26], B[:26], order) + lane_gemm(A[:, 26:], B[26:], order)
    assert np.array_equal(lane_gemm(A, B, replace(order, split_k=2, unit=2)), parts)


LOST = [
    (1, 8, 11528, 9, 8), (4, 8, 23048, 18, 8), (2, 8, 32024, 25, 24), (8, 240, 25552, 19, 16),
    (1, 8, 5768, 4, 0), (1, 8, 11528, 8, 0), (1, 8, 11520, 9, 0), (64, 16, 9144, 7, 0),
]  # fmt: skip
"""m, n, k, the split count, and how many products an H200 lost."""


@pytest.mark.parametrize(("m", "n", "k", "parts", "lost"), LOST)
def test_products_that_the_library_loses(m: int, n: int, k: int, parts: int, lost: int):
    assert order_of(kind("f16"), nvjet(parts), (m, n, k)).omitted_k == lost


def test_a_lossy_product_gives_what_comes_out_and_warns(tmp_path):
    path = str(tmp_path / "choices.npz")
    small_table().save(path)
    A, B = np.ones((2, 11528), ml_dtypes.bfloat16), np.zeros((11528, 8), ml_dtypes.bfloat16)
    B[-8:] = 1
    with pytest.warns(wf.errors.LossyProduct, match="omits the last 8 of 11528 terms along K, and so does this"):
        found = wf.predict(A, B, layout="nt", choices=path)
    assert not found.D.any()
    assert found.omitted_k == 8
    assert "the library omits the last 8 terms along K" in found.text
    assert found.to_dict()["omitted_k"] == 8


def test_kernels_name_what_a_configuration_does_not():
    def chosen(name: str, grid: tuple[int, int, int], algorithm: int = 43, cluster: int = 2) -> Choice:
        configuration = Configuration(algorithm, 20, -1, 2, 0, 0, 34, 0, cluster)
        return choice_of(configuration, [KernelLaunch(name, grid, 384)], (512, 768, 18432))

    segment = "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_on_kernel"
    assert chosen(segment, (120, 1, 1))[2::4] == (5, "xmma_segment_k")
    assert chosen(segment.replace("_on_", "_off_"), (24, 1, 1)).kernel == "xmma_sm90"
    assert chosen(segment, (12, 1, 1)) == Choice(43, 20, 0, 0, 2, 0, "xmma_segment_k")
    named = "_ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align1EEvNT_6ParamsE"
    assert chosen(named, (7, 1, 18), algorithm=23) == Choice(23, 0, 18, 2, 0, 16, "cutlass_80_s1688")
    assert chosen("_Z13gemv2T_kernel_valIiiffffLi128E", (1, 1, 1), algorithm=13).kernel == "gemv2T"
    with pytest.raises(wf.errors.NotModelled, match="the library has no kernel for a gemm of 1 x 2 x 3"):
        choice_of(None, [], (1, 2, 3))


def test_the_model_says_how_often_it_is_right_and_where_it_ends():
    networks, trees = choice_model.built_in_model()
    for network in networks.values():
        assert all(0.9 < accuracy < 1 for accuracy in network.accuracies.values())
    assert all(0.6 < tree.accuracy < 1 for tree in trees.values())
    found = wf.predict_order(100, 4008, 8200, dtype="f16", layout="nn")
    assert (found.basis, found.is_guess) == ("modelled", True)
    assert f"{100 * found.accuracy:.1f} % of unseen shapes" in found.text
    assert "cutlass" in wf.predict_order(300, 777, 4099, layout="nt").kernel
    assert wf.predict_order(300, 776, 4096, dtype="tf32", layout="nt").is_guess
    assert wf.predict_order(1, 33, 1001, dtype="tf32", layout="nt").order.blocks == 16
    assert wf.predict_order(1, 4001, 4096, dtype="tf32", layout="nt").order.lanes == 16
    with pytest.raises(wf.errors.NotModelled, match="fp8 rows must be 16-byte multiples"):
        wf.predict_order(3, 7, 4096, dtype="e4m3", layout="nt")


def test_runs_of_m_are_found_to_the_last():
    def choose(m: int) -> Choice:
        return nvjet(1 + (m > 7) + (m > 1500) + (m > 1503))

    assert [run.last for run in find_runs(choose, 4000)] == [7, 1500, 1503, 4000]
    assert [run.choice.split_k for run in find_runs(choose, 4000)] == [1, 2, 3, 4]
    assert find_runs(choose, 5) == [ChoiceRun(5, nvjet(1))]


def test_a_plan_of_a_survey(tmp_path):
    path = tmp_path / "layers.toml"
    path.write_text('types = ["bf16", "e4m3"]\nlayouts = ["nt", "nn"]\nm = 64\n[layers]\nqkv = [6144, 4096]\n', "utf-8")
    plan = SurveyPlan.read(path)
    assert [tuple(kind) for kind in plan.kinds] == [
        ("matmul", "bf16", "nt"), ("matmul", "bf16", "nn"), ("scaled_mm slow", "e4m3", "nt"),
    ]  # fmt: skip
    assert (plan.layers, plan.m) == ({"qkv": (6144, 4096)}, 64)
    for text, message in {
        "[layers]": "expected a table",
        "layer = 1": "got layer",
        "[layers]\nx = [1]": "layer 'x': expected two integers",
        "[layers]\nx = [8, 8]\n[y]": "got y",
        "m = 0\n[layers]\nx = [8, 8]": "m: expected an integer from 1 to",
        "x": "is not TOML",
    }.items():
        path.write_text(text, "utf-8")
        with pytest.raises(wf.WarpfragError, match=message):
            SurveyPlan.read(path)


def test_without_a_gpu_the_library_cannot_be_asked(monkeypatch):
    def no_library(*_args: object, **_kwargs: object) -> None:
        raise OSError

    monkeypatch.setattr(cublaslt.ctypes, "CDLL", no_library)
    cublaslt.library.cache_clear()
    with pytest.raises(wf.errors.NoGpu, match=r"this machine has no NVIDIA driver \(libcuda.so.1\)"):
        wf.predict_order(4, 64, 64, query_cublas=True, layout="nt")


def test_the_table_has_the_layers_of_the_models():
    from tools.choices.layers import layers, models

    listed = {(n, k) for kind, n, k in built_in("H200").listed if kind == KIND}
    aligned = [pair for pair in layers() if pair[0] % 8 == 0 and pair[1] % 8 == 0]
    assert len(models()) >= 120
    assert len(aligned) > 1400
    assert [pair for pair in aligned if pair not in listed] == []


def test_a_survey_that_is_interrupted_goes_on(tmp_path, monkeypatch):
    class InterruptedLibrary(cublaslt.Library):
        gpu, version, left = "NVIDIA H999", "1.0.0", 100
        asked: ClassVar[list[int]] = []

        def __init__(self) -> None:
            pass

        def configuration(self, question: cublaslt.Question) -> Configuration:
            InterruptedLibrary.left -= 1
            if InterruptedLibrary.left == 0:
                raise KeyboardInterrupt
            self.asked.append(question.n)
            return Configuration(66, 1, 1 + (question.m < 20), 2, 0, 0, 35, 0, 2)

    monkeypatch.setattr(cublas_survey, "library", InterruptedLibrary)
    plan = SurveyPlan((KIND,), {"a": (64, 4096), "b": (128, 4096)}, 64)
    with pytest.raises(KeyboardInterrupt):
        cublas_survey.survey(plan, tmp_path / "choices.npz")
    assert Choices.load(tmp_path / "choices.npz").listed == [(KIND, 64, 4096)]
    InterruptedLibrary.asked.clear()
    table = cublas_survey.survey(plan, tmp_path / "choices.npz")
    assert set(InterruptedLibrary.asked) == {128}
    assert [table.runs(KIND, n, 4096)[0].last for n in (64, 128)] == [19, 19]
