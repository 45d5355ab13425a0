"""wgmma in emitted code: staging fills shared memory as its descriptor reads it, and statements follow the ISA."""

import ctypes
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from instructions import every
from oracle.toolkit import absent
from warpfrag import Descriptor, get
from warpfrag.codegen.cuda_functions import COMMON, SHARED, stage_function, wgmma_common
from warpfrag.codegen.cuda_kernels import wgmma_tile_kernel
from warpfrag.codegen.emit import emit
from warpfrag.codegen.memory_indexing import stages
from warpfrag.codegen.ptx_kernels import WGMMA_RAW_PARAMETERS, wgmma_raw_kernel
from warpfrag.codegen.statement import check_variant, kernel_variants, raw_name
from warpfrag.errors import InvalidOperand
from warpfrag.tensorcore.wgmma_call import Variant

WGMMA = [one for one in every() if one.form.is_warpgroup]
F16 = get("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16")
SPARSE = get("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32")


def every_stage():
    """Every way into shared memory of operands that differ in format or shape, at some widths."""
    found = {}
    for instruction in WGMMA:
        if instruction.shape.n <= 64:  # 64 is the first width with the widest swizzle of an MN-major B
            for stage in stages(instruction):
                operand = stage.operand
                if instruction.shape.n == 64 and not stage.trans:
                    continue
                found.setdefault((operand.role, operand.format.bits, operand.shape, stage.trans), (instruction, stage))
    return list(found.values())


STAGES = every_stage()
NAMES = [f"{stage.suffix} {stage.operand.format} {stage.operand.shape}" for _, stage in STAGES]


def matrix_in_memory(stage, seed, order):
    """A matrix of random codes, and memory that holds it at some strides."""
    operand = stage.operand
    rows, cols = operand.shape
    codes = np.random.default_rng(seed).integers(0, 1 << operand.format.bits, operand.shape, np.uint64)
    steps = (cols + 3, 1) if order == "row" else (1, rows + 8)
    index = np.tensordot(steps, np.indices(operand.shape), 1)
    bits = np.ones((int(index.max()) + 1) * operand.format.bits + 64, np.uint8)
    for bit in range(operand.format.bits):
        bits[index * operand.format.bits + bit] = codes >> np.uint64(bit) & np.uint64(1)
    return codes, np.packbits(bits[: len(bits) // 8 * 8], bitorder="little").tobytes(), steps


@pytest.fixture(scope="module")
def host_library(tmp_path_factory):
    """The staging functions and `descriptor`, compiled by the host's C++ compiler; threadIdx is a variable there."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        absent("no C++ compiler to run the emitted helpers with")
    word = re.search(r"(__device__ [^\n]*uint64_t descriptor\(.*?\n\})", wgmma_common(), re.DOTALL)[1]
    text = ["#define __device__\n#define __forceinline__ inline\nstruct { int x; } threadIdx;", COMMON]
    text += ["using warpfrag::element;", word]
    text += ['extern "C" uint64_t word(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e) {']
    text += ["    return descriptor(a, b, c, d, e);", "}"]
    for number, (_, stage) in enumerate(STAGES):
        call = f"stage_{stage.suffix}(shared, memory, row, col);"
        text += [f"namespace stage{number} {{", *stage_function(stage), "}"]
        text += [f'extern "C" void stage{number}_(void* shared, void* memory, int row, int col) {{']
        text += [f"    for (threadIdx.x = 0; threadIdx.x < 128; ++threadIdx.x) stage{number}::{call}", "}"]
    folder = tmp_path_factory.mktemp("host")
    source, library = folder / "stages.cpp", folder / "stages.so"
    source.write_text("\n".join(text), encoding="utf-8")
    options = ["-std=c++17", "-O1", "-Wall", "-Wno-unknown-pragmas", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("number", range(len(STAGES)), ids=NAMES)
def test_staged_operands_lie_as_their_descriptor_reads_them(host_library, number):
    """C++ compiled for the host leaves the same bytes as `store`."""
    _, stage = STAGES[number]
    for order in ("row", "col"):
        codes, memory, steps = matrix_in_memory(stage, number, order)
        expected = stage.operand.store(codes, stage.descriptor, trans=stage.trans, raw=True).memory.tobytes()
        assert len(expected) == stage.size

        shared, given = bytearray(b"\xff" * stage.size), bytearray(memory)
        places = [(ctypes.c_char * len(one)).from_buffer(one) for one in (shared, given)]
        getattr(host_library, f"stage{number}_")(*places, *steps)
        assert bytes(shared) == expected


def test_the_emitted_descriptor_is_the_word(host_library):
    host_library.word.restype = ctypes.c_uint64
    random = np.random.default_rng(0)
    for swizzle in (0, 32, 64, 128):
        for _ in range(8):
            start, leading, stride = (16 * int(number) for number in random.integers(0, 1 << 14, 3))
            base_offset = int(random.integers(0, 8))
            expected = Descriptor(start, leading, stride, swizzle, base_offset).word
            assert host_library.word(start, leading, stride, swizzle, base_offset) == expected


@pytest.mark.parametrize("instruction", WGMMA[::7], ids=str)
def test_tile_kernels_stage_every_operand_and_order(instruction):
    text = emit(instruction, kernels=True)
    for stage in stages(instruction):
        tile = stage.descriptor
        assert f"return descriptor({SHARED}, {tile.leading}, {tile.stride}, {tile.swizzle});" in text
        assert f"    stage_{stage.suffix}(shared_{stage.operand.role}, " in text


@pytest.mark.parametrize(
    ("name", "variant", "ending"),
    [
        (F16, Variant(), "%moved, %moved_1, %is_added, 1, 1, 0, 0;"),
        (F16, Variant(False, (False, True), (True, False)), "{%a_0, %a_1, %a_2, %a_3}, %moved, %is_added, -1, 1, 1;"),
        (SPARSE, Variant(selector=1), "%moved, %moved_1, %metadata_0, 1, %is_added, 1, 1;"),
        (get("wgmma.mma_async.m64n8k32.s32.s8.u8"), Variant(), "%moved, %moved_1, %is_added;"),
        (get("wgmma.mma_async.m64n8k256.s32.b1.b1.and.popc"), Variant(False), "%a_3}, %moved, %is_added;"),
    ],
    ids=str,
)
def test_a_statement_has_its_operands_in_order(name, variant, ending):
    lines = [line.strip() for line in wgmma_raw_kernel(name, variant)]
    place = next(number for number, line in enumerate(lines) if line.startswith(name.name))

    assert lines[place].startswith(f"{name.name} {{%d_0, ")
    assert lines[place].endswith(ending)
    around = ["wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    assert [lines[place - 1], *lines[place + 1 : place + 3]] == around
    assert lines.index("fence.proxy.async;") + 1 == lines.index("bar.sync 0;") < place


def test_raw_kernels_of_one_list_of_parameters_cover_every_place_of_a_and_selector():
    for instruction in WGMMA[::9]:
        entries = re.findall(r"\.entry (\w+)\(\n(.*?)\n\)", emit(instruction, lang="ptx"), re.DOTALL)
        variants = [variant for variant in kernel_variants(instruction) if not any(variant.trans)]
        assert [name for name, _ in entries] == [raw_name(instruction, variant) for variant in variants]
        assert {tuple(re.findall(r"\.u(\d+) (\w+)", parameters)) for _, parameters in entries} == {
            tuple((ptx_type.removeprefix(".u"), name) for name, ptx_type in WGMMA_RAW_PARAMETERS.items())
        }


def test_the_wrapper_names_as_many_operands_as_its_statement():
    for instruction in WGMMA[::3]:
        blocks = re.findall(r"asm volatile\((.*?)\);", emit(instruction), re.DOTALL)
        products = [block for block in blocks if instruction.name in block]
        assert len(products) == 2  # A in shared memory, A in registers
        for block in products:
            text = "".join(re.findall(r'^ *"(.*)"$', block, re.MULTILINE))
            assert {int(number) for number in re.findall(r"%(\d+)", text)} == set(
                range(len(re.findall(r'"\+?[rfln]"\(', block)))
            )


def test_kernels_cover_every_place_order_and_selector():
    assert [variant.suffix(sparse=False) for variant in kernel_variants(F16)] == [
        "",
        "_a_mn_b_mn",
        "_registers",
        "_registers_b_mn",
    ]
    assert len(list(kernel_variants(SPARSE))) == 4


@pytest.mark.parametrize(
    ("instruction", "variant", "message"),
    [
        (SPARSE, Variant(trans=(False, True)), "only 16-bit types can be MN-major"),
        (F16, Variant(False, (True, False)), "A in registers cannot be MN-major"),
        (get("wgmma.mma_async.m64n8k32.s32.s8.s8"), Variant(negate=(True, False)), "only floats can be negated"),
        (F16, Variant(selector=1), r"takes the selectors \[0\]"),
    ],
)
def test_what_an_instruction_does_not_have_is_refused(instruction, variant, message):
    for make in (check_variant, wgmma_raw_kernel, wgmma_tile_kernel):
        with pytest.raises(InvalidOperand, match=message):
            make(instruction, variant)


def test_a_header_of_several_has_descriptors_once():
    text = emit([F16, SPARSE, "mma.m16n8k16.f32.f16.f16.f32"])
    assert text.count("uint64_t descriptor(\n") == 1
    assert "WARPFRAG_WGMMA\n" not in emit("mma.m16n8k16.f32.f16.f16.f32")
