"""NVIDIA's assembler accepts every emitted kernel on targets where the instruction is legal, and on no others."""

import os
import re
import subprocess
from functools import cache
from itertools import chain

import pytest

from instructions import every, of_a_warp
from oracle.toolkit import absent, advisories, assemble, compile_cuda, find_nvcc, find_ptxas, virtual
from warpfrag.codegen.emit import emit, ptx_header, source_file
from warpfrag.codegen.memory_indexing import operand_copies
from warpfrag.codegen.ptx_kernels import declarations, raw_kernel, raw_kernels, wgmma_raw_kernel
from warpfrag.codegen.statement import identifier
from warpfrag.isa.legality import advice, first_version
from warpfrag.isa.targets import targets
from warpfrag.tensorcore.registry import find, get

# Targets that take the same instructions; the first of each stands for its class where time is short.
CLASSES = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120f", "sm_120a")
# No nvcc that knows all other targets knows the retired ones; their PTX is assembled all the same.
KNOWN_TO_NVCC = [name for name, target in targets().items() if not target.ptxas]
# Everything for every target takes half an hour. By default each text becomes machine code once, where texts that
# differ only in the name of their instruction are one; and each instruction is judged for every class of targets.
EVERYTHING = os.environ.get("WARPFRAG_ASSEMBLE_EVERYTHING") == "1"
CHUNK = 60


@cache
def representatives():
    """Return the first of each set of targets that accept the same instructions."""
    found = {}
    for name in targets():
        found.setdefault(tuple(one.name for one in find() if name in one.targets), name)
    return tuple(found.values())


def distinct(instructions, written):
    """Return one instruction for each distinct emitted text, regardless of instruction names."""
    found = {}
    for one in instructions:
        text = re.sub(r"//.*", "", written(one)).replace(f"{one.name} ", "@ ")
        found.setdefault(re.sub(identifier(one), "@", text, flags=re.IGNORECASE), one)
    return list(found.values())


def new_texts(target, order, written):
    """Return the instructions of a target with texts that no earlier target has."""

    def movers(one, name):
        return operand_copies(one, (name,)) if one.form.is_product and not one.form.is_warpgroup else {}

    before = order[: order.index(target)]
    new = [
        one
        for one in legal(target)
        if all(name not in one.targets or movers(one, name) != movers(one, target) for name in before)
    ]
    return distinct(new, written)


def instructions_to_assemble():
    """Return every instruction; unless everything is requested, one per wgmma family, with alternating widths."""
    if EVERYTHING:
        return find()
    families = {}
    for one in every():
        if one.form.is_warpgroup:
            key = (one.form.op, one.form.d, one.form.a, one.form.b, one.form.satfinite)
            families.setdefault(key, []).append(one)
    return [*of_a_warp(), *(widths[number % len(widths)] for number, widths in enumerate(families.values()))]


def legal(target):
    """Return the instructions that a target accepts."""
    return [one for one in instructions_to_assemble() if target in one.targets]


def numbered(kernels):
    """Return the lines of some texts, and the owner of each line number."""
    lines, owners = [], {}
    for owner, text in kernels:
        own = "\n".join(text).split("\n")
        owners.update(dict.fromkeys(range(len(lines) + 1, len(lines) + len(own) + 1), owner))
        lines += own
    return lines, owners


def statement_of(instruction):
    """One kernel that holds the instruction."""
    if instruction.form.is_warpgroup:
        return wgmma_raw_kernel(instruction)
    return raw_kernel(instruction) if instruction.form.is_product else raw_kernels(instruction)


@pytest.mark.slow
@pytest.mark.parametrize("target", targets() if EVERYTHING else representatives())
def test_every_emitted_ptx_kernel_assembles_for_every_target(target, tmp_path, record_property):
    ptxas, newest = find_ptxas(target)
    whole = set(legal(target))
    if not EVERYTHING:
        whole = set(new_texts(target, representatives(), lambda one: "\n".join(raw_kernels(one))))
    by_version = {}
    for instruction in legal(target):
        by_version.setdefault(first_version(instruction.form, target), []).append(instruction)
    kernels = 0
    for version, instructions in by_version.items():
        if version > newest:
            continue
        bodies = [raw_kernels(one) for one in instructions if one in whole]
        known = [statement_of(one) for one in instructions if one not in whole]
        for judge, some in ((target, bodies), (virtual(target), known)):
            text = "\n".join([*ptx_header(instructions, target), *chain.from_iterable(some)])
            module = tmp_path / f"version{version[0]}{version[1]}.ptx"
            module.write_text(text, encoding="utf-8")

            assert not some or assemble(ptxas, judge, module) == []
            kernels += text.count(".visible .entry")
    assert kernels >= len([one for one in legal(target) if first_version(one.form, target) <= newest])
    record_property("assembler: PTX kernels assembled", kernels)


@pytest.mark.slow
@pytest.mark.parametrize("target", targets())
def test_what_is_not_legal_is_refused(target, tmp_path, record_property):
    ptxas, newest = find_ptxas(target)
    # a refusal must not be for the version's sake
    candidates = instructions_to_assemble()
    left = [one for one in candidates if target not in one.targets and first_version(one.form, target) <= newest]
    count = len(left)
    module = tmp_path / "refused.ptx"
    head = [f".version {newest[0]}.{newest[1]}", *ptx_header((), target)[1:], *declarations(left)]
    while left:
        lines, owners = numbered([(None, head), *((instruction, statement_of(instruction)) for instruction in left)])
        module.write_text("\n".join(lines) + "\n", encoding="utf-8")
        refused = {owners.get(complaint.line) for complaint in assemble(ptxas, virtual(target), module)}

        assert refused & set(left), f"{target} takes {left[0].name} and {len(left) - 1} more"
        left = [instruction for instruction in left if instruction not in refused]
    record_property("assembler: illegal instructions refused", count)


@pytest.mark.slow
@pytest.mark.parametrize("target", KNOWN_TO_NVCC if EVERYTHING else CLASSES)
def test_every_emitted_cuda_kernel_compiles(target, tmp_path, record_property):
    nvcc = find_nvcc()
    _, newest = find_ptxas(target)
    instructions = legal(target)
    if not EVERYTHING:
        some = new_texts(target, CLASSES, lambda one: source_file([one], target))
        instructions = [*some, *(one for one in instructions[::50] if one not in some)]
    instructions = [one for one in instructions if first_version(one.form, target) <= newest]
    kernels = 0
    for start in range(0, len(instructions), CHUNK):
        text = source_file(instructions[start : start + CHUNK], target)
        source = tmp_path / f"unit{start}.cu"
        source.write_text(text, encoding="utf-8")

        assert compile_cuda(nvcc, target, source) == ""
        kernels += text.count("__global__")
    assert kernels > 20
    record_property("assembler: CUDA kernels compiled", kernels)


def test_without_a_target_the_code_compiles_for_the_oldest(tmp_path):
    nvcc = find_nvcc()
    source = tmp_path / "unit.cu"
    names = ["mma.m8n8k16.s32.s8.s8.s32", "wmma.mma.row.col.m16n16k16.f32.f16", "ldmatrix.m8n8.x4.b16"]
    source.write_text(emit(names, kernels=True), encoding="utf-8")

    assert compile_cuda(nvcc, "sm_75", source) == ""


def test_every_state_space_assembles_and_compiles(tmp_path):
    ptxas, _ = find_ptxas("sm_90")
    nvcc = find_nvcc()
    names = [
        f"{op}.{form}{space}.{kind}"
        for op, form, kind, spaces in (
            ("wmma.load.a", "row.m16n16k16", "f16", ("", ".global", ".shared", ".shared::cta")),
            ("wmma.store.d", "col.m16n16k16", "f32", ("", ".global", ".shared", ".shared::cta")),
            ("ldmatrix", "m8n8.x4.trans", "b16", ("", ".shared", ".shared::cta")),
            ("stmatrix", "m8n8.x2", "b16", ("", ".shared", ".shared::cta")),
        )
        for space in spaces
    ]
    module, source = tmp_path / "spaces.ptx", tmp_path / "spaces.cu"
    texts = emit(names, lang="ptx", arch="sm_90"), emit(names, arch="sm_90", kernels=True)
    for path, text in zip((module, source), texts, strict=True):
        path.write_text(text, encoding="utf-8")
        assert [name for name in names if f"{get(name).name} " not in text] == []

    assert assemble(ptxas, "sm_90", module) == []
    assert compile_cuda(nvcc, "sm_90", source) == ""


@pytest.mark.slow
def test_headers_may_be_included_together_twice_and_in_several_files(tmp_path):
    nvcc = find_nvcc()
    headers = {
        "dense.cuh": emit("mma.m16n8k16.f16.f16.f16.f16"),
        "dense_sm_90.cuh": emit("mma.m16n8k16.f16.f16.f16.f16", arch="sm_90"),
        "sparse.cuh": emit("mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32"),
        "wmma.cuh": emit(["wmma.mma.row.col.m16n16k16.f32.f32", "ldmatrix.m8n8.x4.b16", "movmatrix.m8n8.trans.b16"]),
    }
    for name, text in headers.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    lines = "".join(f'#include "{name}"\n' for name in [*headers, *headers])
    uses = (
        "using namespace warpfrag::mma_m16n8k16_row_col_f16_f16_f16_f16;\n"
        "__global__ void {name}(void* d, const void* a) {{\n"
        "    uint32_t fragment_a[4], fragment_b[2] = {{}}, fragment_d[2] = {{}};\n"
        "    load_a(fragment_a, a, 16, 1);\n"
        "    mma(fragment_d, fragment_a, fragment_b, fragment_d);\n"
        "    stmatrix_d_row(d, 8, fragment_d);\n"
        "}}\n"
    )
    files = []
    for name, more in (("first", "int main() {}\n"), ("second", "")):
        files.append(tmp_path / f"{name}.cu")
        files[-1].write_text(lines + uses.format(name=name) + more, encoding="utf-8")
    command = [str(nvcc), "-arch=sm_90", "-rdc=true", "-Werror", "all-warnings", "-o", str(tmp_path / "program")]
    run = subprocess.run([*command, *map(str, files)], capture_output=True, check=False, text=True)

    assert (run.returncode, run.stderr) == (0, "")


def test_the_assembler_advises_what_the_comments_say(tmp_path):
    ptxas, newest = find_ptxas("sm_90")
    instructions = [one for one in find(arch="sm_90", sparse=True) if first_version(one.form, "sm_90") <= newest]
    module = tmp_path / "sparse.ptx"
    lines, owners = numbered(
        [(None, ptx_header(instructions, "sm_90")), *((one, raw_kernel(one)) for one in instructions)]
    )
    module.write_text("\n".join(lines) + "\n", encoding="utf-8")
    advised = {owners[found.line] for found in advisories(ptxas, "sm_90", module)}

    assert advised == {one for one in instructions if advice(one.form)}
    assert len(advised) == 44


@pytest.mark.parametrize(("right", "wrong"), [("m16n8k16.row.col", "m16n8k16.col.row"), ("m16n8k16", "m16n8k32")])
def test_a_wrong_module_is_noticed(tmp_path, right, wrong):
    """Also by an assembler that generates no machine code."""
    ptxas, _ = find_ptxas("sm_80")
    module, source = tmp_path / "wrong.ptx", tmp_path / "wrong.cu"
    for path, lang in ((module, "ptx"), (source, "cuda")):
        text = emit("mma.m16n8k16.f32.f16.f16.f32", lang=lang, arch="sm_80", kernels=True)
        path.write_text(re.sub(rf"(mma\.sync\.aligned\.){right}", rf"\g<1>{wrong}", text), encoding="utf-8")

    assert assemble(ptxas, "sm_80", module)
    assert assemble(ptxas, virtual("sm_80"), module)
    assert "ptxas" in compile_cuda(find_nvcc(), "sm_80", source)


def test_absence_is_a_skip_or_a_failure(monkeypatch):
    monkeypatch.setattr("oracle.toolkit.REQUIRED", False)
    with pytest.raises(pytest.skip.Exception, match="no ptxas here"):
        absent("no ptxas here")
    monkeypatch.setattr("oracle.toolkit.REQUIRED", True)
    with pytest.raises(pytest.fail.Exception, match="no ptxas here"):
        absent("no ptxas here")
