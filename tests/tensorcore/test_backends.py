"""Which backend runs what: nothing is compiled for a tile, kernels are kept where they can be, and a canary watches."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from functools import _lru_cache_wrapper
from pathlib import Path

import numpy as np
import pytest
from arithmetic_cases import instruction, rule_of

import warpfrag as wf
from warpfrag.errors import SlowArithmetic
from warpfrag.isa.legality import form_of, left_out
from warpfrag.tensorcore import backends, reference
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import KernelSelector, canary, kernel_key
from warpfrag.tensorcore.backends.compiled import KERNELS, Compiled, FusedKernel
from warpfrag.tensorcore.kernels import fused, jit
from warpfrag.tensorcore.kernels.__main__ import rules_by_loops
from warpfrag.tensorcore.resolved import _resolved, resolve_form

TF32 = rule_of(instruction("mma", "m16n8k8", "f32.tf32.tf32.f32"), "sm_90")
C_LAST = rule_of(instruction("mma", "m16n8k16", "f32.e4m3.e4m3.f32"), "sm_90")
F16 = rule_of(instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_90")
NAME = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TILE = """
import numpy as np, sys, warpfrag as wf
mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
A, B = np.ones((16, 16)), np.ones((16, 8))
found = mma.d.unpack(wf.execute(mma, mma.a.pack(A), mma.b.pack(B)))
assert (found == 16).all()
"""


def python(program, **environment):
    """Run a program with this interpreter; gives its exit status and what it wrote to stderr."""
    # how numba opens its files is not our business: `make test` asks for that warning
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONWARNDEFAULTENCODING"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**inherited, **environment},
    )
    return done.returncode, done.stderr


@pytest.fixture
def fresh(monkeypatch):
    """A process that has spent nothing and judged nothing."""
    monkeypatch.setattr(backends, "_spent_seconds", {})
    monkeypatch.setattr(backends, "_passed", {})
    monkeypatch.setattr(backends, "_look_again", {})
    backends.compiled_backend.cache_clear()
    backends._say_compiling.cache_clear()
    yield monkeypatch
    backends.compiled_backend.cache_clear()


def test_a_tile_imports_no_compiler():
    assert python(TILE + 'sys.exit(", ".join({"numba", "llvmlite"} & set(sys.modules)) or None)') == (0, "")


def product(tiles, height=16, width=8):
    """Zeros."""
    return ProductOperands(
        np.zeros((tiles, height, 16), np.uint16),
        np.zeros((tiles, 16, width), np.uint16),
        np.zeros((tiles, height, width), np.uint32),
    )


def test_kernels_compiled_before_are_loaded_once_that_pays(fresh):
    fresh.setattr(Compiled, "is_cached", staticmethod(lambda _kernel, *, split: True))
    choice = KernelSelector(F16)
    names = [type(choice.kernel(product(100))).__name__ for _ in range(20)]
    assert names == ["PortableKernel"] * 18 + ["FusedKernel"] * 2  # 0.05 s at 0.2 ms an instruction, 12 ns a product


def test_kernels_are_compiled_only_for_much_work_and_that_is_said_once_on_a_terminal(fresh, capsys):
    fresh.setattr(backends, "WORTH_COMPILING", {backends.Rule: 1.0})
    fresh.setattr(Compiled, "is_cached", staticmethod(lambda _kernel, *, split: False))
    fresh.setattr(sys.stderr, "isatty", lambda: True)
    choice = KernelSelector(F16)
    looks = []
    fresh.setattr(Compiled, "is_cached", staticmethod(lambda _kernel, *, split: looks.append(split)))
    for _ in range(1000):
        assert choice.kernel(product(1)) is choice.portable
    assert len(looks) < 10  # it is not looked for at every call
    assert capsys.readouterr().err == ""
    assert isinstance(choice.kernel(product(100_000)), FusedKernel)
    assert "warpfrag: compiling faster kernels" in capsys.readouterr().err
    assert isinstance(choice.kernel(product(1)), FusedKernel)
    assert isinstance(KernelSelector(F16).kernel(product(1)), FusedKernel)  # whoever asks next
    KernelSelector(rule_of(instruction("mma", "m8n8k4", "f64.f64.f64.f64"), "sm_90")).kernel(
        ProductOperands(*(np.zeros(shape, np.uint64) for shape in ((1, 512, 512), (1, 512, 8), (1, 512, 8))))
    )
    assert capsys.readouterr().err == ""


def test_who_does_not_sing_is_not_used(fresh):
    fresh.setattr(backends, "WORTH_LOADING", 0.0)
    fresh.setattr(Compiled, "is_cached", staticmethod(lambda _kernel, *, split: True))
    right = FusedKernel.run_whole
    fresh.setattr(FusedKernel, "run_whole", lambda self, operands: right(self, operands) ^ np.uint32(1))
    choice = KernelSelector(F16)
    with pytest.warns(SlowArithmetic, match="compiled Fused kernels do not compute what the reference does"):
        kernel = choice.kernel(product(1))
    assert kernel is choice.portable
    assert KernelSelector(F16).kernel(product(1)).run_whole(product(1)).any() == np.False_  # and it is said once


def test_the_canary_is_about_the_last_bit():
    """A sum rounded to nearest instead of truncated differs from what the reference gives."""
    operands = canary.operands_of(F16)
    a, b = (array.view(np.float16)[0].astype(np.float64) for array in operands[:2])
    nearest = (a @ b + operands.c.view(np.float32)[0]).astype(np.float32).view(np.uint32)
    assert (nearest != reference.matmul(F16, operands)[0]).any()


def spellings(count):
    """Different orders of the words of one instruction, in small letters and in capitals, all of them PTX."""
    chance, found = random.Random(1), set()
    while len(found) < count:
        words = ["f32", "f16", "f16", "f32"]
        for others in (["row", "col"], ["sync"], ["aligned"], ["m16n8k16"]):
            places = sorted(chance.randint(0, len(words)) for _ in others)
            for place, word in zip(reversed(places), reversed(others), strict=True):
                words.insert(place, word)
        text = ".".join(["mma", *words])
        found |= {text, text.upper()}
    return sorted(found)


def test_a_hundred_spellings_are_prepared_once():
    _resolved.cache_clear()
    names = spellings(100)
    assert not any(left_out(name) for name in names)
    blank = [NAME + " " * n for n in range(100)]
    a, b = np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32)
    for name in (*names, *blank, wf.get(NAME), "mma.m16n8k16.f32.f16.f16.f32"):
        for arch in ("sm_90", "sm_90a", "90"):
            wf.execute(name, a, b, arch=arch)
    assert _resolved.cache_info().currsize == 1
    assert len({id(resolve_form(form_of(name), arch)) for name in (*names, *blank) for arch in ("sm_90", "SM90A")}) == 1


def unbounded_caches():
    """The size of every cache of ours that may grow."""
    ours = [
        one for one in gc.get_objects() if isinstance(one, _lru_cache_wrapper) and "warpfrag" in str(one.__module__)
    ]
    return {one: one.cache_info().currsize for one in ours if one.cache_info().maxsize is None}


def vary(number):
    """What a user may vary without end: spellings, K, targets, tiles, layouts, memories, figures, wrong words."""
    name, height = spellings(100)[number], number % 7 + 1
    mma = wf.get(name + " " * number)
    wf.execute(name, np.zeros((32, 4), np.uint32), np.zeros((32, 2), np.uint32))
    wf.gemm(np.ones((height, 16 * number)), np.ones((16 * number, 3)), instruction=name, arch="SM90")
    tiles = mma.a.tiled(row=height, col=number)
    tiles.pack(np.ones(tiles.shape))
    layout = wf.Layout.parse({"row": 2, "col": 2}, lane="c1 r1").tiled(row=number)
    memory = wf.Memory(pitch=32 + 16 * number)
    wf.loads(mma.a, memory)
    wf.draw(mma, "a", title=str(number)).to_text(100 + number)
    for wrong in (lambda: wf.get(f"mma.{number}"), lambda: wf.find(shape=f"m{number}"), lambda: wf.emit(f"x{number}")):
        with pytest.raises(wf.WarpfragError):
            wrong()
    return layout.rank, memory.addresses((8, number), 16)


@pytest.mark.slow
def test_what_users_vary_fills_no_cache_without_bound():
    for number in (1, 2):
        vary(number)
    before = unbounded_caches()
    for number in range(3, 40):
        vary(number)
    grown = {one.__qualname__: size for one, size in unbounded_caches().items() if size > before.get(one, 0)}
    assert len(before) > 15
    assert grown == {}


def test_a_kernel_remembers_the_order_of_a_few_k():
    kernel = Compiled().compile(F16)
    for depth in range(16, 16 * 40, 16):
        kernel.order(depth)
    assert kernel.order.cache_info().currsize <= 8


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's process status")
def test_a_long_and_narrow_product_takes_little_memory():
    """B is prepared a whole block of columns wide, whatever N: 1 x 1 x 400,000 took 2 GB once."""
    program = f"""
import numpy as np, pathlib, warpfrag as wf
A, B = np.ones((1, 400_000), np.float16), np.ones((400_000, 1), np.float16)
assert wf.gemm(A, B, instruction="{NAME}")[0, 0] == 400_000
status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
peak = int(status.split("VmHWM:")[1].split()[0])  # kB; ru_maxrss would include the process that started this one
assert peak < 700_000, peak
"""
    assert python(program) == (0, "")


BITS = "mma.m8n8k128.s32.b1.b1.s32.and.popc"  # whose kernels are compiled soonest
EVERYTHING = f"""
import contextlib, io, numpy as np, warpfrag as wf
from warpfrag.cli import main
A, B = np.ones((8, 128), bool), np.ones((128, 8), bool)
mma = wf.get("{BITS}")
assert (mma(A, B) == 128).all()
assert (wf.gemm(A, B, instruction=mma) == 128).all()
assert (mma.d.unpack(wf.execute(mma, mma.a.pack(A), mma.b.pack(B))) == 128).all()
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["execute", "{BITS}"]) == main(["check", "--only", "{BITS}"]) == 0
"""
FORCED = """
from warpfrag.tensorcore import backends
backends.WORTH_LOADING, backends.WORTH_COMPILING = 0.0, {backends.Rule: 0.0}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prelude", "environment", "said"),
    [
        # a read-only installation without a writable home: numba finds no folder that it can write to
        (
            "",
            {"NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"},
            "cannot be kept on disk",
        ),
        # a full disk: nothing can be written, neither there nor elsewhere
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n",
            {"NUMBA_CACHE_DIR": "{folder}"},
            "cannot be kept on disk",
        ),
        ("", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
        ("import sys\nsys.modules['numba'] = None\n", {}, "numba cannot be imported"),
        ("", {"NUMBA_CACHE_DIR": "{folder}"}, ""),
    ],
)
def test_without_a_place_for_compiled_code_it_works_and_says_so_once(prelude, environment, said, tmp_path):
    filled = {name: value.format(folder=tmp_path) for name, value in environment.items()}
    status, errors = python(prelude + FORCED + EVERYTHING * 2, **filled)
    assert status == 0, errors
    assert errors.count("SlowArithmetic") == bool(said), errors
    assert said in errors


def test_compiled_code_is_tied_to_the_text_of_every_kernel():
    """numba looks at one file only, and a kernel calls others: the digest is in the name it is kept under."""
    name = fused.fused_tiles.compiled.py_func.__qualname__
    assert name == f"fused_tiles_{jit.KERNELS_DIGEST}"
    Compiled().compile(F16).run_whole(product(1))
    assert fused.fused_tiles.is_cached
    folder = Path(fused.fused_tiles.compiled.stats.cache_path)
    assert list(folder.glob(f"*{name}*.nbi"))
    fresh = jit.KernelEntry(lambda: None)
    assert not fresh.is_cached


KEPT = {
    "f16": (F16, ((2, 16, 16), (2, 16, 8))),
    "fp8": (C_LAST, ((2, 16, 32), (2, 32, 8))),
    "sparse": (rule_of(instruction("mma.sp", "m16n8k32", "f32.f16.f16.f32"), "sm_90"), ((2, 16, 16), (2, 32, 8))),
    "scaled": (
        rule_of(
            instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32", kind="mxf8f6f4", scale_vec="1X"),
            "sm_120a",
        ),
        ((2, 16, 32), (2, 32, 8)),
    ),
}
"""Rules with the shapes of A and B: what each adds to the memory that is kept."""


def random_product(rule, shape_a, shape_b, seed):
    """Random finite codes, and metadata and scale factors where the rule has them."""
    draw = np.random.default_rng(seed)
    bits = 8 if rule.a == "e4m3" else 16
    a, b = (draw.integers(0, 3 << bits - 2, shape, f"u{bits // 8}") for shape in (shape_a, shape_b))
    c = draw.standard_normal((2, 16, 8)).astype(np.float32).view(np.uint32)
    named = {}
    if rule.is_sparse:
        chosen = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])[draw.integers(0, 6, (2, 16, 8))]
        named["columns"] = (chosen + 4 * np.arange(8)[:, None]).reshape(shape_a).astype(np.int32)
    if rule.scales:
        named = {
            name: draw.integers(120, 134, shape, np.uint8)
            for name, shape in (("scale_a", (2, 16, rule.scales)), ("scale_b", (2, rule.scales, 8)))
        }
    return ProductOperands(a, b, c, **named)


@pytest.mark.parametrize("kind", KEPT)
def test_a_product_in_memory_that_was_kept_leaves_nothing_of_the_last(kind):
    rule, shapes = KEPT[kind]
    kernel, products = Compiled().compile(rule), [random_product(rule, *KEPT[kind][1], seed) for seed in range(3)]
    expected = [reference.matmul(rule, operands) for operands in products]
    assert not np.array_equal(expected[0], expected[1])
    codes = [kernel.run_whole(operands) for operands in products]
    assert len(kernel.idle(*shapes)) == 1  # all three had the same memory
    assert all(map(np.array_equal, codes, expected))  # and a result is not overwritten by the next


def test_memory_that_is_in_use_is_not_taken_again():
    """Another thread, or a signal's handler, multiplies while the loops of a product run."""
    rule, shapes = KEPT["f16"]
    kernel, products = Compiled().compile(rule), [random_product(rule, *shapes, seed) for seed in range(2)]
    expected = [reference.matmul(rule, operands) for operands in products]
    kernel.run_whole(products[0])
    (workspace,) = idle = kernel.idle(*shapes)
    between = []

    def interrupted():
        between.append(kernel.run_whole(products[1]))
        workspace.run()

    idle[:] = [workspace._replace(run=interrupted)]
    assert np.array_equal(kernel.run_whole(products[0]), expected[0])
    assert np.array_equal(between[0], expected[1])
    assert len(idle) == 2


def test_the_memory_of_a_large_product_is_not_kept():
    kernel, shape = Compiled().compile(F16), (1, 80, 80)
    zeros = np.zeros(shape, np.uint16)
    kernel.run_whole(ProductOperands(zeros, zeros, np.zeros(shape, np.uint32)))
    assert kernel.idle.cache_info().currsize == 0


def test_every_kernel_can_be_compiled_ahead():
    rules = rules_by_loops()
    assert set(rules) == {f"{rule.__name__}, {part}" for rule in KERNELS for part in ("whole tiles", "parts of a tile")}
    assert all(Compiled().compile(rule) for kinds in rules.values() for rule in kinds.values())
    variants = {key.variant for key in rules["Fused, parts of a tile"] if key.rounding == "RZ-FP32"}
    assert {variant.is_short for variant in variants} == {variant.is_narrow for variant in variants} == {False, True}
    assert len({kernel_key(rule, split=True) for rule in (F16, TF32, C_LAST)}) == 3  # each has a canary of its own


def test_scale_factors_that_a_batch_shares_are_contiguous_to_the_loops():
    """Loops are compiled for contiguous arrays; a batch that shares its scale factors broadcasts them."""
    rule = rule_of(wf.get("mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.f32.ue8m0").form, "sm_120")
    a, b, c = np.zeros((3, 16, 64), np.uint8), np.zeros((3, 64, 8), np.uint8), np.zeros((3, 16, 8), np.uint32)
    scale_a, scale_b = (np.broadcast_to(np.ones(shape, np.uint8), (3, *shape)) for shape in ((16, 2), (2, 8)))
    loaded = FusedKernel(rule).load(ProductOperands(a, b, c, None, scale_a, scale_b))
    assert [one.flags.c_contiguous for one in loaded] == [True] * len(loaded)
