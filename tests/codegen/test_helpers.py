"""Load and store helpers follow the layout: emitted C++ compiled for the host."""

import ctypes
import os
import shutil
import subprocess
from random import Random

import numpy as np
import pytest

from instructions import every
from oracle.toolkit import absent
from warpfrag.codegen.cuda_functions import COMMON, load_function, register_array, store_function
from warpfrag.codegen.memory_indexing import dimensions, element_bits, extents, stride_names
from warpfrag.codegen.statement import registers


def every_operand():
    """One operand in registers for each distinct layout, format and role, with its instruction."""
    found = {}
    for instruction in every():
        if instruction.form.is_product and not instruction.form.is_wmma and instruction.shape.n <= 24:
            for operand in registers(instruction).values():
                if operand.storage != "shared":
                    found.setdefault(operand.spec, (instruction, operand))
    return list(found.values())


OPERANDS = every_operand()


def orders(operand):
    """Return row-major and column-major strides, with gaps between lines and between matrices."""
    *outer, rows, cols = extents(operand)
    for gap in (0, 3):
        matrix = (rows + gap) * (cols + gap)
        yield (*(matrix for _ in outer), cols + gap, 1)
        yield (*(matrix for _ in outer), 1, rows + gap)


def codes_of(operand, random):
    """Random codes of the matrix in memory."""
    limit = 1 << operand.format.bits
    return [random.randrange(limit) for _ in range(int(np.prod(extents(operand))))]


def memory_of(operand, codes, steps):
    """Return the matrix in memory, bit by bit, surrounded by ones."""
    bits = element_bits(operand)
    sizes = extents(operand)
    last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    size = ((last + 1) * bits + 7) // 8
    whole = (1 << 8 * size) - 1
    for index, code in zip(np.ndindex(*sizes), codes, strict=True):
        place = int(np.dot(index, steps)) * bits
        whole = whole & ~(((1 << bits) - 1) << place) | code << place
    return bytearray(whole.to_bytes(size, "little"))


def expected_words(operand, codes):
    """Return the registers by the layout, place by place: for each lane, the registers as integers."""
    dims, sizes = dimensions(operand), extents(operand)
    lanes = []
    for thread in np.ndindex(operand.threads):
        place = dict(zip(("warp", "lane")[-len(thread) :], thread, strict=True))
        words = []
        for reg in range(operand.regs):
            word = 0
            for slot in range(operand.slots):
                at = operand.layout.at(**place, reg=reg, slot=slot)
                code = codes[np.ravel_multi_index([getattr(at, dim) for dim in dims], sizes)]
                word |= code << operand.bits(slot).low
            words.append(word)
        lanes.append(words)
    return lanes


@pytest.fixture(scope="module")
def host_library(tmp_path_factory):
    """Every helper, compiled by the host's C++ compiler; threadIdx is a variable there."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        absent("no C++ compiler to run the emitted helpers with")
    text = [
        "#define __device__\n#define __forceinline__ inline\nstruct { int x; } threadIdx;",
        COMMON,
        "using warpfrag::element;",
    ]
    for number, (_, operand) in enumerate(OPERANDS):
        role, kind = operand.role, register_array(operand).c_type
        names = stride_names(operand)
        helper = store_function(operand) if role == "d" else load_function(operand)
        call = f"{kind} (&fragment)[{operand.regs}] = *static_cast<{kind} (*)[{operand.regs}]>(words);"
        arguments = f"memory, {', '.join(names)}"
        move = f"store_d({arguments}, fragment);" if role == "d" else f"load_{role}(fragment, {arguments});"
        parameters = ", ".join(["int lane", "void* words", "void* memory", *(f"int {name}" for name in names)])
        text += [
            f"namespace helper{number} {{",
            *helper,
            "}",
            f'extern "C" void move{number}({parameters}) {{ threadIdx.x = lane; {call} helper{number}::{move} }}',
        ]
    folder = tmp_path_factory.mktemp("host")
    source, library = folder / "helpers.cpp", folder / "helpers.so"
    source.write_text("\n".join(text), encoding="utf-8")
    options = ["-std=c++17", "-O1", "-Wall", "-Wno-unknown-pragmas", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("number", range(len(OPERANDS)), ids=[f"{o.role} {o.format} {o.shape}" for _, o in OPERANDS])
def test_emitted_cuda_moves_what_the_layout_says(host_library, number):
    _, operand = OPERANDS[number]
    size = operand.spec.register_bits // 8
    codes = codes_of(operand, Random(number))
    expected = expected_words(operand, codes)
    for steps in orders(operand):
        memory = memory_of(operand, codes, steps)
        blank = memory_of(operand, [0] * len(codes), steps) if operand.role == "d" else bytearray(memory)
        place = (ctypes.c_char * len(blank)).from_buffer(blank)
        for lane in range(len(expected)):
            given = expected[lane] if operand.role == "d" else [0] * operand.regs
            words = bytearray(b"".join(word.to_bytes(size, "little") for word in given))
            buffer = (ctypes.c_char * len(words)).from_buffer(words)
            getattr(host_library, f"move{number}")(lane, buffer, place, *steps)
            if operand.role != "d":
                found = [int.from_bytes(words[at : at + size], "little") for at in range(0, len(words), size)]
                assert found == expected[lane], f"lane {lane}, strides {steps}"
        assert blank == memory
