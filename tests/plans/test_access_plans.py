"""Plans between shared memory and fragments: each moves the right bytes, at the stated addresses and cost."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpfrag as wf
from instructions import of_a_warp
from oracle.toolkit import assemble, compile_cuda, find_newest_ptxas, find_nvcc, find_ptxas, virtual
from tools.plans import access_unit, sample_accesses
from warpfrag.errors import InvalidOperand
from warpfrag.plans.access_plan import AccessPlan, address_sum
from warpfrag.plans.loads import loads, search, stores
from warpfrag.plans.relayout import packed
from warpfrag.smem.shared_memory import Memory, bank_conflicts
from warpfrag.tensorcore.operand import Operand

F16 = wf.get("mma.m16n8k16.f32.f16.f16.f32")
S8 = wf.get("mma.m16n8k32.s32.s8.s8.s32")
STATIC = "static __device__ __forceinline__ void"
TWO = np.zeros((2, 32, 4), np.uint32)


@cache
def matrices() -> list[Operand]:
    """Every distinct fragment that is one matrix."""
    found: dict[Any, Operand] = {}
    for instruction in of_a_warp():
        if instruction.form.is_product:
            for role in "abcd":
                operand = getattr(instruction, role)
                if operand.layout.dims == ("row", "col"):
                    found.setdefault(
                        (operand.layout, operand.format, operand.spec.container, operand.spec.low), operand
                    )
    return list(found.values())


def memories(operand: Operand) -> list[Memory]:
    """Contiguous, padded and swizzled memories, in both orders."""
    found = []
    for order in ("row", "col"):
        tight = max(16, operand.layout.outs["col" if order == "row" else "row"] * operand.spec.container // 8)
        found += [Memory(order, tight), Memory(order, tight + 16), Memory(order, -(-tight // 128) * 128, 128, start=64)]
    return found


@cache
def every_load(operand: Operand, memory: Memory) -> list[AccessPlan]:
    return loads(operand, memory)


@cache
def every_store(operand: Operand, memory: Memory) -> list[AccessPlan]:
    return stores(operand, memory)


@cache
def sample() -> list[AccessPlan]:
    return sample_accesses()


def in_memory(operand: Operand, memory: Memory) -> tuple[Any, Any, Any]:
    """Return random codes, the registers that hold them, and a memory that contains them among random bytes."""
    random = np.random.default_rng(3)
    container = operand.spec.container
    most = 1 << operand.format.bits
    codes = random.integers(0, most - 1, operand.shape, np.uint64, endpoint=True)
    stored = codes << np.uint64(operand.spec.low)
    noise = random.integers(0, 256, memory.size(operand.shape, container) + 64, np.uint8)
    return stored, operand.pack(codes, raw=True), memory.write(noise, stored, container)


def warpgroups() -> list[Operand]:
    """Fragments that four warps hold, of each kind."""
    names = ("n64k16.f16.f16.f16", "n24k8.f32.tf32.tf32", "n8k32.f32.e4m3.e5m2", "n8k32.s32.s8.u8")
    dense = [wf.get(f"wgmma.mma_async.sync.aligned.m64{name}") for name in names]
    found = [operand for one in dense for operand in (one.a, one.d)]
    sparse = wf.get("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16")
    return [*found, sparse.a, sparse.a.tiled(col=2)]


@pytest.mark.parametrize(
    "operand", [*matrices(), *warpgroups()], ids=lambda one: f"{one.role}.{one.format}.{one.shape}.{one.slots}"
)
def test_every_way_moves_just_its_bytes(operand: Operand):
    plans = 0
    for memory in memories(operand):
        stored, words, shared = in_memory(operand, memory)
        for plan in every_load(operand, memory):
            assert np.array_equal(plan.load(shared), words)
            plans += 1
        for plan in every_store(operand, memory):
            before = np.random.default_rng(4).integers(0, 256, len(shared), np.uint8)
            assert np.array_equal(plan.store(words, before), memory.write(before, stored, operand.spec.container))
            plans += 1
    assert plans >= len(memories(operand)) or operand.spec.container < 8


def test_the_usual_loads_are_found_first():
    assert loads(F16.a, Memory("row", 128, 128))[0].name == "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    assert loads(F16.b, Memory("col", 128, 128))[0].name == "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
    assert loads(F16.b, Memory("row", 128, 128))[0].name == "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"
    two = loads(F16.b.tiled(col=2), Memory("col", 128, 128))[0]
    assert [access.instruction for access in two.accesses] == ["ldmatrix.sync.aligned.m8n8.x4.shared.b16"]
    assert loads(F16.d, Memory("row", 64))[0].name == "ld.shared.v2.b32"
    turned = [plan for plan in loads(F16.b, Memory("row", 128, 128)) if plan.transposes]
    assert turned[0].name == "ldmatrix.sync.aligned.m8n8.x2.shared.b16 + movmatrix.sync.aligned.m8n8.trans.b16"
    half = wf.get("mma.m16n8k16.f16.f16.f16.f16")
    assert stores(half.d, Memory("row", 32, 32))[0].name == "stmatrix.sync.aligned.m8n8.x2.shared.b16"


@pytest.mark.parametrize("memory", [Memory("row", 33), Memory("row", 48, start=1), Memory("col", 35)])
def test_no_way_gives_an_address_that_is_not_aligned(memory: Memory):
    assert loads(F16.a, memory) == stores(F16.a, memory) == []
    for plan in [*loads(S8.a, memory), *stores(S8.a, memory)]:
        assert {access.width for access in plan.accesses} == {1}


# ---- movers of bytes, and of elements of 4 and 6 bits: sm_100a and later

F8F6F4 = "mma.m16n8k32.kind::f8f6f4.f32"
FP8 = wf.get(f"{F8F6F4}.e4m3.e5m2.f32")
NARROW = {6: wf.get(f"{F8F6F4}.e3m2.e2m3.f32"), 4: wf.get(f"{F8F6F4}.e2m1.e2m1.f32")}
UNPACKS = {6: "b8x16.b6x16_p32", 4: "b8x16.b4x16_p64"}


def names(plans: list[AccessPlan]) -> list[str]:
    return [access.instruction.replace(".sync.aligned", "") for plan in plans for access in plan.accesses]


@pytest.mark.parametrize("mma", [S8, FP8, *NARROW.values()], ids=lambda mma: mma.name)
def test_bytes_across_the_memory_are_turned_by_m16n16(mma: Any):
    turned = "ldmatrix.m16n16.x2.trans.shared.b8"  # r(2q + h), byte j: M_q[4t + j][g + 8h]
    for operand, order, words in (
        (mma.a, "col", (0, 1, 2, 3)),
        (mma.b.tiled(col=2), "row", (0, 2, 1, 3)),  # 16 columns are two tiles: their registers take turns
    ):
        memory = Memory(order, 48)
        _, held, shared = in_memory(operand, memory)
        (plan,) = [plan for plan in loads(operand, memory) if "m16n16" in plan.name]
        assert names([plan]) == [turned]
        assert plan.accesses[0].words == words
        assert np.array_equal(plan.load(shared), held)
        assert plan == loads(operand, memory)[0]
        assert plan.targets[0] == "sm_100a"
        assert plan.conflicts == 0
    assert not [name for name in names(loads(mma.b, Memory("row", 16))) if "m16n16" in name]  # one tile has 8 columns
    assert not [name for name in names(loads(mma.a, Memory("row", 48))) if "m16n16" in name]


@pytest.mark.parametrize("bits", NARROW)
def test_packed_elements_are_unpacked_on_the_way(bits: int):
    mma = NARROW[bits]
    for operand, order, kind in (
        (mma.a, "row", "m8n16.x4"),
        (mma.b, "col", "m8n16.x2"),
        (mma.b.tiled(col=2), "col", "m8n16.x4"),
        (mma.a, "col", "m16n16.x2.trans"),
        (mma.b.tiled(col=2), "row", "m16n16.x2.trans"),
    ):
        memory = Memory(order, 64, 64)
        codes = np.random.default_rng(bits).integers(0, 1 << bits, operand.shape, np.uint64)
        shared = np.random.default_rng(1).integers(0, 256, 4096, np.uint8)  # what lies in the padding does not matter
        lines = codes if order == "row" else codes.T
        for at, line in enumerate(lines):
            for first in range(0, len(line), 16):
                whole = sum(int(code) << bits * place for place, code in enumerate(line[first : first + 16]))
                row, col = (at, first) if order == "row" else (first, at)
                start = memory.address(row=row, col=col, bits=8, shape=operand.shape)
                shared[start : start + 2 * bits] = list(whole.to_bytes(2 * bits, "little"))
        (plan,) = loads(operand, memory, packed=True)
        assert names([plan]) == [f"ldmatrix.{kind}.shared.{UNPACKS[bits]}"]
        assert np.array_equal(plan.load(shared), operand.pack(codes, raw=True))
        assert plan.shift == (2 if bits == 4 else 0)  # e2m1 lies in bits 2 to 5
        assert plan.targets[0] == "sm_100a"


def test_accumulators_packed_to_bytes_are_stored_by_m16n8():
    columns = [
        (plan, operand)
        for operand in packed(F16.d, FP8.a)
        for plan in stores(operand, Memory("col", 16))
        if "m16n8." in plan.name
    ]
    ((plan, operand),) = columns
    stored, words, _ = in_memory(operand, plan.memory)
    before = np.zeros(128, np.uint8)
    assert names([plan]) == ["stmatrix.m16n8.x1.trans.shared.b8"]
    assert np.array_equal(plan.store(words, before), plan.memory.write(before, stored, 8))
    two = [
        plan
        for one in packed(F16.d.tiled(col=4), FP8.a)
        for plan in stores(one, Memory("col", 16))
        if "m16n8." in plan.name
    ]
    assert "stmatrix.m16n8.x4.trans.shared.b8" in names(two)


def byte_plans() -> list[AccessPlan]:
    """Return a plan for each matrix move that sm_90 lacks."""
    found = [plan for one in packed(F16.d, FP8.a) for plan in stores(one, Memory("col", 16)) if "m16n8." in plan.name]
    found += loads(FP8.a, Memory("col", 48, 0, 64))[:1] + loads(S8.b.tiled(col=2), Memory("row", 32, 32))[:1]
    for mma in NARROW.values():
        for operand, order in ((mma.a, "row"), (mma.b, "col"), (mma.a, "col")):
            found += loads(operand, Memory(order, 64, 64), packed=True)
    return found


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_movers_of_bytes_compile_and_assemble(target: str, tmp_path: Path):
    plans = byte_plans()
    assert all(target in plan.targets for plan in plans)
    assert len({plan.name for plan in plans}) == 8
    ptxas, version = find_newest_ptxas(target)
    ptx = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64"]
    ptx += [plan.emit("ptx", name=f"plan{number}") for number, plan in enumerate(plans)]
    (tmp_path / "plans.ptx").write_text("\n".join(ptx), encoding="utf-8")
    assert assemble(ptxas, virtual(target), tmp_path / "plans.ptx") == []
    (tmp_path / "plans.cu").write_text(access_unit(plans), encoding="utf-8")
    assert compile_cuda(find_nvcc(), target, tmp_path / "plans.cu") == ""


def evaluated(plan: AccessPlan, access: Any) -> Callable[[int, int], int]:
    """A C expression, run as Python, for any lane."""
    text = re.sub(r"/\*.*\*/", "", plan.expression(access))
    kept = {0: 0, 32: 1, 64: 3, 128: 7}[plan.memory.swizzle]
    names = {"base": 0, "swizzle": lambda a: a ^ ((a // 128 - plan.memory.base_offset & kept) * 16)}
    return eval(f"lambda lane, thread: {text}", names)  # noqa: S307 (our own text)


@pytest.mark.parametrize("operand", [F16.a, F16.b, F16.b.tiled(col=2), F16.d, S8.a, *warpgroups()[1:3]])
def test_expressions_give_the_addresses(operand: Operand):
    seen = 0
    for memory in memories(operand):
        for plan in [*loads(operand, memory), *stores(operand, memory)]:
            for access in plan.accesses:
                expression = evaluated(plan, access)
                for lane, address in enumerate(access.addresses):
                    assert address is None or expression(lane, lane) == address
                    seen += 1
    assert seen > 1000


def test_conflicts_are_counted_by_matrix_and_by_part_of_the_warp():
    plain = loads(F16.a, Memory("row", 128))[0]
    assert (plain.passes, plain.conflicts) == (32, 28)
    assert str(plain) == "1 x ldmatrix.sync.aligned.m8n8.x4.shared.b16, 32 passes, 28 bank conflicts"
    padded = loads(F16.a, Memory("row", 144))[0]
    assert (padded.passes, padded.conflicts) == (4, 0)
    wide = loads(F16.d, Memory("row", 64))[0].accesses[0]
    assert wide.conflicts == bank_conflicts(wide.addresses, 8)


def test_four_warps_store_d_by_stmatrix_and_load_a_by_ldmatrix():
    wgmma = wf.get("wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16")
    plan = stores(wgmma.d, Memory("row", 128, 128))[0]
    assert str(plan) == "4 x stmatrix.sync.aligned.m8n8.x4.shared.b16, 64 passes, no bank conflicts"
    first = plan.accesses[0]
    # by hand: matrices 0 and 1 are rows 0 to 15 of the warp, 2 and 3 the next 16 bytes; 16-byte unit xor row
    by_hand = [(16 * warp + lane % 16) * 128 + (lane // 16 ^ lane % 8) * 16 for warp in range(4) for lane in range(32)]
    assert list(first.addresses) == by_hand
    plain = stores(wgmma.d, Memory("row", 128))[0]
    assert (plain.passes, plain.conflicts) == (4 * 16 * 8, 4 * 16 * 7)  # a matrix: eight rows in the same banks
    load = loads(wgmma.a, Memory("row", 32, 32))[0]
    assert str(load) == "1 x ldmatrix.sync.aligned.m8n8.x4.shared.b16, 16 passes, no bank conflicts"
    one = loads(F16.a, Memory("row", 32, 32))[0]
    assert (load.cost, load.passes) == (4 * one.cost, 4 * one.passes)
    bf16 = wf.get("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16")
    packed_d = bf16.a.tiled(col=4)  # D in pairs of bf16: what `relayout` gives for nothing
    assert stores(packed_d, Memory("row", 128, 128))[0].name == first.instruction
    assert loads(wgmma.a, Memory("col", 128, 128))[0].name == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    found = search(wgmma.d, "row", "store")
    assert [(plan.memory.pitch, plan.memory.swizzle) for plan in found] == [(144, 0), (128, 128)]


def test_a_search_finds_pitches_and_swizzles_without_conflicts():
    found = search(F16.a, "row")
    assert [(plan.memory.pitch, plan.memory.swizzle) for plan in found] == [(48, 0), (32, 32), (64, 64), (128, 128)]
    assert all(not plan.conflicts for plan in found)
    assert search(wf.get("mma.m16n8k128.s32.b1.b1.s32.and.popc").b, "row") == []  # no plan at all
    assert all("stmatrix" in plan.name for plan in search(wf.get("mma.m16n8k16.f16.f16.f16.f16").d, "row", "store"))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: loads(F16.a, Memory(), packed=True), "packed needs 4-bit or 6-bit elements in bytes"),
        (lambda: loads("a", Memory()), "expected an operand such as mma.b or mma.b.tiled"),
        (lambda: loads(F16.a, 128), "expected a wf.Memory, which describes the matrix in shared memory; got 128"),
        (lambda: loads(wf.get("ldmatrix.m8n8.x4.b16").d, Memory()), "not a single matrix .* it has matrix, row, col"),
        (lambda: loads(F16.a, Memory("row", 32))[0].load(np.zeros(8, np.uint8)), "the memory has 8 bytes"),
        (lambda: loads(F16.a, Memory("row", 32))[0].load(np.zeros(8)), "shared to be uint8"),
        (lambda: stores(F16.d, Memory("row", 32))[0].store(TWO, np.zeros(512, np.uint8)), "registers of one operand"),
        (lambda: loads(F16.a, Memory("row", 32))[0].emit("c"), "lang: expected one of cuda, ptx, got 'c'"),
        (lambda: loads(F16.a, Memory("row", 32))[0].emit(name="1"), "name: expected a function name, .* got '1'"),
        (lambda: loads(F16.d, Memory("row", 32))[0].load(np.zeros(64, np.uint8)), "the memory has 64 bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_refused(ask: Any, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        ask()


# ---- code


@cache
def every_way() -> list[AccessPlan]:
    """Return all plans of all operands, without duplicates of the same code."""
    found = {}
    for operand in (*matrices(), *warpgroups()):
        for memory in memories(operand):
            for plan in (*every_load(operand, memory), *every_store(operand, memory)):
                found.setdefault(plan.emit("ptx").split("\n", 2)[2], plan)
    return list(found.values())


@pytest.mark.slow
def test_every_way_compiles_and_assembles(tmp_path: Path):
    """One test for two targets, because all plans together take long."""
    for target, version, least in (("sm_90a", "8.0", 800), ("sm_100a", "8.6", 10)):
        nvcc, (ptxas, _) = find_nvcc(), find_ptxas(target)
        plans = [plan for plan in every_way() if target in plan.targets and (target == "sm_90a" or "b8" in plan.name)]
        assert len(plans) >= least
        cuda = [plan.emit("cuda", name=f"plan{at}").replace(STATIC, "__device__ void") for at, plan in enumerate(plans)]
        (tmp_path / "plans.cu").write_text("\n".join(["#include <cstdint>", *cuda]), encoding="utf-8")
        assert compile_cuda(nvcc, target, tmp_path / "plans.cu") == ""
        ptx = [f".version {version}", f".target {target}", ".address_size 64"]
        ptx += [plan.emit("ptx", name=f"plan{number}") for number, plan in enumerate(plans)]
        (tmp_path / "plans.ptx").write_text("\n".join(ptx), encoding="utf-8")
        assert assemble(ptxas, virtual(target), tmp_path / "plans.ptx") == []


@pytest.mark.slow
def test_kernels_that_run_ways_compile(tmp_path: Path):
    plans = sample()
    assert {plan.transposes for plan in plans} == {True, False}
    assert {access.slot is None for plan in plans for access in plan.accesses} == {True, False}
    (tmp_path / "plans.cu").write_text(access_unit(plans), encoding="utf-8")
    assert compile_cuda(find_nvcc(), "sm_90", tmp_path / "plans.cu") == ""


def run_ptx(text: str, thread: int) -> list[int]:
    """Return the addresses that a thread of an emitted function passes, by running its integer instructions."""
    registers = {"%base": 0, "%lane": thread % 32, "%thread": thread}
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"    (add|mad|shr|shl|and|xor)\.(?:lo\.)?\w+ (%t\d+), (.*);", line)
        if match:
            name, result, given = match.groups()
            args = [registers.get(one, 0) if one[0] == "%" else int(one, 0) for one in given.split(", ")]
            compute = {
                "add": sum,
                "mad": lambda a: a[0] * a[1] + a[2],
                "shr": lambda a: a[0] >> a[1],
                "shl": lambda a: a[0] << a[1],
                "and": lambda a: a[0] & a[1],
                "xor": lambda a: a[0] ^ a[1],
            }
            if len(args) > 1:
                registers[result] = compute[name](args)
        if address := re.search(r"\[(%\w+)\]", line):
            found.append(registers[address[1]])
    return found


def test_emitted_ptx_gives_the_addresses():
    seen = 0
    for plan in sample():
        text = plan.emit("ptx")
        for thread in range(len(plan.accesses[0].addresses)):
            for access, address in zip(plan.accesses, run_ptx(text, thread), strict=True):
                assert access.addresses[thread] in {None, address}
                assert address in access.addresses  # a lane whose address is not read repeats another's
                seen += 1
    assert seen > 4000


def test_addresses_that_no_sum_gives_are_refused():
    addresses = tuple(16 * (lane if lane != 7 else 8) for lane in range(32))
    with pytest.raises(InvalidOperand, match="addresses of this access are not a sum over bits"):
        address_sum(addresses, Memory("row", 32))


def test_emitted_cuda_is_what_a_person_would_write():
    text = loads(F16.b, Memory("row", 128, 128))[0].emit(name="load_b")
    operands = '"=r"(r1), "=r"(r2) : "r"(r0) : "memory"'
    assert "#include <cstdint>" in text
    assert text.splitlines()[5:] == [
        "static __device__ __forceinline__ void load_b(uint32_t (&out)[2], uint32_t base) {",
        '    uint32_t lane; asm("mov.u32 %0, %laneid;" : "=r"(lane));',
        "    uint32_t r0 = base + (lane & 15) * 128;",
        "    r0 = r0 ^ (r0 / 128 & 7) * 16;",
        "    uint32_t r1, r2;",
        f'    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%0, %1}}, [%2];" : {operands});',
        "    out[0] = r1;",
        "    out[1] = r2;",
        "}",
    ]


def test_ways_say_where_they_are_legal():
    half = wf.get("mma.m16n8k16.f16.f16.f16.f16")
    matrix, plain = stores(half.d, Memory("row", 48))[:2]
    assert (matrix.targets[0], plain.targets[0]) == ("sm_90", "sm_70")
    assert loads(F16.a, Memory("row", 48))[0].targets[0] == "sm_75"
