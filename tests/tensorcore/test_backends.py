"""Which backend runs a rule, without a compiler at run time, and with a library that is missing or damaged."""

import contextlib
import gc
import os
import random
import shutil
import subprocess
import sys
from functools import _lru_cache_wrapper
from pathlib import Path

import numpy as np
import pytest
from arithmetic_cases import instruction, rule_of

import warpfrag as wf
from warpfrag.errors import NotModelled, SlowArithmetic
from warpfrag.isa.instruction_table import able_architectures, forms
from warpfrag.isa.legality import form_of, left_out
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import KernelSelector
from warpfrag.tensorcore.backends.compiled import CHECK_ENVIRONMENT, KERNELS, Compiled, FusedKernel
from warpfrag.tensorcore.backends.cuda_backend import canary_operands
from warpfrag.tensorcore.backends.portable import PortableKernel
from warpfrag.tensorcore.native import library as native
from warpfrag.tensorcore.native.levels import library_name
from warpfrag.tensorcore.resolved_instruction import _resolved, resolve_form
from warpfrag.tensorcore.thread_split import run_split

S8 = rule_of(instruction("mma", "m16n8k32", "s32.s8.s8.s32"), "sm_90")
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
    """Run a program with this interpreter; return its exit status and its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


def test_products_import_no_compiler():
    program = TILE + "assert (wf.gemm(A.repeat(40, 0), B, instruction=mma) == 16).all()\n"
    assert python(program + 'sys.exit(", ".join({"numba", "llvmlite"} & set(sys.modules)) or None)') == (0, "")


def product(tiles, height=16, width=8):
    """Zeros."""
    return ProductOperands(
        np.zeros((tiles, height, 16), np.uint16),
        np.zeros((tiles, 16, width), np.uint16),
        np.zeros((tiles, height, width), np.uint32),
    )


def test_rules_run_in_c_and_integers_in_numpy():
    assert isinstance(KernelSelector(F16).chosen, FusedKernel)
    assert isinstance(KernelSelector(S8).chosen, PortableKernel)


def every_rule():
    """The rules of all instructions that the compiled backend holds."""
    rules = set()
    for form in (form for form in forms() if form.operation.does == "multiply"):
        for arch in able_architectures(form):
            with contextlib.suppress(NotModelled):
                rules.add(plan(form, arch).rule)
    return sorted((rule for rule in rules if Compiled.holds(rule)), key=repr)


def test_every_rule_gives_the_codes_of_the_reference():
    rules = every_rule()
    assert {type(rule) for rule in rules} == set(KERNELS)
    for rule in rules:
        kernel, operands = Compiled().compile(rule), canary_operands(rule)
        expected = reference.matmul(rule, operands)
        np.testing.assert_array_equal(kernel.run_whole(operands), expected, str(rule))
        np.testing.assert_array_equal(run_split(kernel, operands, threads=1), expected, str(rule))


def test_the_canary_is_about_the_last_bit():
    """A sum rounded to nearest instead of truncated differs from the reference."""
    operands = canary_operands(F16)
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
    """Vary everything without a limit: spellings, K, targets, tiles, layouts, memories, figures, wrong words."""
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
    """B is prepared a whole block of columns wide for every N: 1 x 1 x 400,000 once took 2 GB."""
    program = f"""
import numpy as np, pathlib, warpfrag as wf
A, B = np.ones((1, 400_000), np.float16), np.ones((400_000, 1), np.float16)
assert wf.gemm(A, B, instruction="{NAME}")[0, 0] == 400_000
status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
peak = int(status.split("VmHWM:")[1].split()[0])  # kB; ru_maxrss would include the process that started this one
assert peak < 700_000, peak
"""
    assert python(program) == (0, "")


EVERYTHING = f"""
import numpy as np, warpfrag as wf
from warpfrag.tensorcore.native import library
A, B = np.ones((16, 32), np.float16), np.ones((32, 8), np.float16)
mma = wf.get("{NAME}")
assert (wf.gemm(A, B, instruction=mma) == 32).all()
assert (mma.d.unpack(wf.execute(mma, mma.a.pack(A[:, :16]), mma.b.pack(B[:16]))) == 16).all()
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the installed package's native folder, which a program's library is loaded from."""
    copy = tmp_path / "native"
    shutil.copytree(native.FOLDER, copy)
    return copy


def loading_from(folder):
    """The start of a program that loads its library from a folder."""
    imports = "from pathlib import Path\nfrom warpfrag.tensorcore.native import library\n"
    return f"{imports}library.FOLDER = Path({str(folder)!r})\n"


@pytest.mark.parametrize("damage", ["none", "missing", "truncated", "changed", "foreign"])
def test_without_a_library_products_are_right_and_that_is_said_once(damage, package):
    path = package / library_name()
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changed = {"truncated": data[:5000], "changed": data[:-9] + b"#" + data[-8:], "foreign": b"MZ" + data}
        path.write_bytes(changed.get(damage, data))
    status, errors = python(loading_from(package) + EVERYTHING * 2)
    assert status == 0, errors
    assert errors.count("SlowArithmetic") == (damage != "none"), errors


def test_the_portable_backend_can_be_asked_for():
    status, errors = python(EVERYTHING + "assert library.library() is None", WARPFRAG_KERNELS="portable")
    assert (status, errors) == (0, "")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [("has", False, "no fused multiply-add"), ("call", 1, "does not follow the rounding mode in its control register")],
)
def test_a_processor_that_cannot_run_the_kernels_has_the_portable_backend(name, value, reason, monkeypatch):
    owner = native.NativeLibrary if name == "has" else CHECK_ENVIRONMENT
    monkeypatch.setattr(owner, name, lambda *_: value)
    with pytest.warns(SlowArithmetic, match=reason):
        assert not Compiled.is_available.__wrapped__()


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


def test_scale_factors_that_a_batch_shares_are_contiguous_to_the_loops():
    """Loops are compiled for contiguous arrays; a batch that shares its scale factors broadcasts them."""
    rule = rule_of(wf.get("mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.f32.ue8m0").form, "sm_120")
    a, b, c = np.zeros((3, 16, 64), np.uint8), np.zeros((3, 64, 8), np.uint8), np.zeros((3, 16, 8), np.uint32)
    scale_a, scale_b = (np.broadcast_to(np.ones(shape, np.uint8), (3, *shape)) for shape in ((16, 2), (2, 8)))
    loaded = FusedKernel(rule).load(ProductOperands(a, b, c, None, scale_a, scale_b))
    assert [one.flags.c_contiguous for one in loaded] == [True] * len(loaded)
