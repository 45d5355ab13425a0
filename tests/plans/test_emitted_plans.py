"""Emitted PTX executed on the PTX machine: the registers and the memory are those of the plan."""

import math
from functools import cache
from random import Random

import numpy as np
import pytest

import warpfrag as wf
from tools.plans import SHARED_WORDS, sample_accesses, sample_plans
from tools.tiled_relayouts import tiled_pairs
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.relayout import Relayout

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
FEW = 12


def kernel(function: str, given: list[str], results: list[str], body: str, *, shared: bool) -> str:
    """Return a module with the function and a kernel that calls it; %own is the address of the thread's words."""
    registers = "".join(f".reg .b32 {name};\n" for name in (*given, *results) if name != "%base")
    returned = f"({', '.join(results)}), " if results else ""
    call = f"call {returned}run, ({', '.join(given)});"
    memory = f".shared .align 1024 .b32 image[{SHARED_WORDS}];\n" if shared else ""
    return f"""{HEAD}{function}
.visible .entry k(.param .u64 source, .param .u64 target) {{
.reg .b64 %source, %target, %offset, %own;
.reg .b32 %thread, %base, %word, %step, %end;
.reg .pred %more;
{registers}{memory}mov.u32 %thread, %tid.x;
ld.param.u64 %source, [source];
ld.param.u64 %target, [target];
{body.replace("CALL", call)}
ret;
}}"""


def own(name: str, words: int) -> str:
    return f"mul.wide.u32 %offset, %thread, {4 * words};\nadd.u64 %own, {name}, %offset;\n"


def moved(operation: str, names: list[str]) -> str:
    """Load or store a thread's words one after the other."""
    if operation == "ld":
        return "".join(f"ld.global.b32 {name}, [%own+{4 * at}];\n" for at, name in enumerate(names))
    return "".join(f"st.global.b32 [%own+{4 * at}], {name};\n" for at, name in enumerate(names))


def copied(operation: str) -> str:
    """Copy the whole image between global and shared memory, every thread some words."""
    ends = ("%word, [%own]", "[%base], %word") if operation == "ld" else ("%word, [%base]", "[%own], %word")
    spaces = ("global", "shared") if operation == "ld" else ("shared", "global")
    return f"""mov.u32 %base, image;
mad.lo.u32 %base, %thread, 4, %base;
mad.wide.u32 %own, %thread, 4, {"%source" if operation == "ld" else "%target"};
mov.u32 %step, %ntid.x;
shl.b32 %step, %step, 2;
cvt.u64.u32 %offset, %step;
mov.u32 %end, image;
add.u32 %end, %end, {4 * SHARED_WORDS};
{operation}_next:
ld.{spaces[0]}.b32 {ends[0]};
st.{spaces[1]}.b32 {ends[1]};
add.u32 %base, %base, %step;
add.u64 %own, %own, %offset;
setp.lt.u32 %more, %base, %end;
@%more bra {operation}_next;
bar.sync 0;
mov.u32 %base, image;
"""


def execute_relayout(plan: Relayout, words: np.ndarray) -> np.ndarray:
    given, results = [f"%a{at}" for at in range(plan.source.words)], [f"%d{at}" for at in range(plan.target.words)]
    body = own("%source", len(given)) + moved("ld", given) + "CALL\n" + own("%target", len(results))
    text = kernel(plan.emit("ptx", name="run"), given, results, body + moved("st", results), shared=False)
    found = np.zeros((*plan.target.threads, plan.target.words), np.uint32)
    wf.ptx.load(text)["k"].launch(1, math.prod(plan.source.threads), [words, found])
    return found


@cache
def relayouts() -> list[Relayout]:
    """Tiled pairs of mma, and of wgmma with an n that is not a power of two."""
    pairs = [pair for pair in tiled_pairs("wgmma") if pair.extents and pair.extents[1] in {48, 72, 96, 144}]
    pairs = [*Random(5).sample(pairs, FEW), *Random(6).sample([*tiled_pairs("mma", 64)], 2 * FEW)]
    return [pair.plan() for pair in pairs]


def check_emitted(plans: list[Relayout]) -> None:
    for number, plan in enumerate(plans):
        source = plan.source
        words = np.random.default_rng(number).integers(0, 1 << 32, (*source.threads, source.words), np.uint32)
        words = source.pack(source.unpack(words, raw=True), raw=True)  # equal copies, empty padding
        assert np.array_equal(execute_relayout(plan, words), plan(words)), plan


def test_emitted_relayouts_give_the_registers_of_the_plan():
    assert {type(op).__name__ for plan in relayouts() for op in plan.operations} >= {"Shuffle", "Permute", "Convert"}
    check_emitted(relayouts())


@pytest.mark.slow
def test_every_emitted_operation_gives_the_registers_of_the_plan():
    check_emitted(sample_plans())


def execute_access(plan: AccessPlan, given: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    names = [f"%a{at}" for at in range(plan.operand.words)]
    if plan.direction == "load":
        body = copied("ld") + "CALL\n" + own("%target", len(names)) + moved("st", names)
        text = kernel(plan.emit("ptx", name="run"), ["%base"], names, body, shared=True)
    else:
        clear = copied("ld").replace("ld.global.b32 %word, [%own];", "mov.u32 %word, 0;")
        body = clear + own("%source", len(names)) + moved("ld", names) + "CALL\nbar.sync 0;\n" + copied("st")
        text = kernel(plan.emit("ptx", name="run"), [*names, "%base"], [], body, shared=True)
    found = np.zeros(shape, np.uint32)
    wf.ptx.load(text)["k"].launch(1, math.prod(plan.operand.threads), [given, found])
    return found


@pytest.mark.parametrize("part", range(8))
def test_emitted_accesses_move_the_bytes_of_the_plan(part: int):
    random = np.random.default_rng(part)
    for plan in sample_accesses()[part::8]:
        shared = random.integers(0, 1 << 32, SHARED_WORDS, np.uint32)
        held = (*plan.operand.threads, plan.operand.words)
        if plan.direction == "load":
            assert np.array_equal(execute_access(plan, shared, held), plan.load(shared.view(np.uint8))), plan
        else:
            words = random.integers(0, 1 << 32, held, np.uint32)
            expected = plan.store(words, np.zeros(4 * SHARED_WORDS, np.uint8)).view(np.uint32)
            assert np.array_equal(execute_access(plan, words, shared.shape), expected), plan
