"""From text to a program: typed attributes, named passes, and opcodes that are bound when state spaces are known."""

from dataclasses import FrozenInstanceError

import pytest

import warpfrag as wf
from small_kernel import kernel
from warpfrag.machine.ir.actions import Atomic, LaneOp, MemoryLoad, NoOp, Refused, Unbound
from warpfrag.machine.ir.scalar_types import F32, S32, U32
from warpfrag.machine.ops.opcode_lookup import ROWS, find
from warpfrag.machine.ops.opcode_rows import match, optional, row
from warpfrag.ptx.lowering.passes import PASSES, lower
from warpfrag.ptx.reader.parser import parse

pytestmark = pytest.mark.one_engine
KERNEL = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 result) twice(.param .b32 x)
{
    .reg .b32 %r<3>; .reg .b64 %rd;
    ld.param.u32 %r1, [x];
    cvta.param.u64 %rd, x;
    shl.b32 %r2, %r1, 1;
    st.param.b32 [result], %r2;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .f32 %f<5>;
    .shared .f32 total;
    ld.param.u64 %rd1, [out];
    ld.u32 %r1, [total];
    atom.add.f32 %f1, [total], %f2;
    atom.add.f32 %f1, [%rd1], %f2;
    mul.f32 %f3, %f1, %f2;
    add.f32 %f4, %f3, %f2;
    nanosleep.u32 20;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), twice, (a); ld.param.b32 %r2, [b]; }
    ret;
}
"""


@pytest.fixture(scope="module")
def steps():
    return lower(parse(KERNEL), "k").instructions


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mad.hi.cc.u32", {"half": "hi", "carry_out": True, "carry_in": False, "types": (U32,)}),
        ("madc.lo.s32", {"half": "lo", "carry_out": False, "carry_in": True, "types": (S32,)}),
        ("add.rz.ftz.sat.f32", {"rounding": "rz", "ftz": True, "sat": True, "types": (F32,)}),
        ("add.f32", {"rounding": None, "ftz": False, "sat": False, "space": "generic"}),
        ("div.full.ftz.f32", {"accuracy": "full", "ftz": True}),
        ("ld.volatile.shared::cta.v4.u32", {"space": "shared", "vector": 4, "ordering": "volatile"}),
        ("setp.ltu.and.f32", {"comparison": "ltu", "combine": "and"}),
        ("cvt.pack.sat.u8.s32.b32", {"packs": True, "narrow": ("u", 8)}),
        ("shf.l.wrap.b32", {"direction": "l", "wraps": True}),
        ("shf.r.clamp.b32", {"direction": "r", "wraps": False}),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", {"space": "shared"}),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", {"space": "global", "operation": "store"}),
    ],
)
def test_the_words_of_an_opcode_become_typed_attributes(name, expected):
    attributes = find(name, 3).attributes

    assert {key: getattr(attributes, key) for key in expected} == expected
    assert attributes.name == name
    with pytest.raises(FrozenInstanceError):
        attributes.ftz = True


def test_a_modifier_that_would_set_nothing_is_refused():
    with pytest.raises(ValueError, match="mad: expected modifiers that are attributes or hints, got colour"):
        row("mad", [], lambda _: NoOp(), "a test", colour=optional("red"))


def test_every_row_takes_its_own_first_spelling():
    for rows in ROWS.values():
        for item in rows:
            words = [choice.words[0] for choice in item.modifiers.values() if choice.is_required]
            types = [kinds[0].name for kinds in item.types]
            matched = match(item, ".".join([item.opcode, *words, *types]), 3)
            assert not isinstance(matched, str), matched


def test_passes_run_once_in_order():
    names = [run.__name__ for run in PASSES]

    assert len(set(names)) == len(names)
    assert names.index("resolve_state_spaces") < names.index("bind_opcodes") < names.index("contract_products")


def test_what_an_opcode_does_is_bound_after_its_state_space_is_known(steps):
    atomics = [step for step in steps if isinstance(step.action, Atomic)]
    loads = {step.text: step.action.space for step in steps if isinstance(step.action, MemoryLoad)}

    assert (
        [step.attributes.space for step in atomics] == [step.action.space for step in atomics] == ["shared", "generic"]
    )
    assert loads["ld.u32 %r1, [total]"] == "shared"
    assert loads["ld.param.u64 %rd1, [out]"] == "param"
    assert loads["ld.param.u32 %r1, [x]"] == "local"  # the parameters of a function
    assert next(step for step in steps if step.attributes.opcode == "cvta").attributes.space == "local"
    assert not any(isinstance(step.action, Unbound | Refused) for step in steps)


def test_contraction_reads_attributes(steps):
    add = next(step for step in steps if step.attributes.opcode == "add" and step.attributes.types == (F32,))
    mul = next(step for step in steps if step.attributes.opcode == "mul")

    assert add.action.fused == ("mul", False, False)
    assert mul.action == NoOp()
    assert next(step for step in steps if step.attributes.opcode == "nanosleep").action == NoOp(pauses=True)


def has_fused_sum(text: str) -> bool:
    """Return True if a sum of a kernel is fused with its product."""
    steps = wf.ptx.load(text)["k"].program.instructions
    return any(isinstance(step.action, LaneOp) and step.action.fused is not None for step in steps)


@pytest.mark.parametrize(
    ("between", "is_fused"),
    [
        ("add.u32 %r5, %r6, 1;", True),
        ("bar.sync 0;", True),
        ("bra.uni NEXT;\nNEXT:", True),
        ("@%p1 add.u32 %r5, %r6, 1;", True),
        ("div.full.f32 %f6, %f1, %f2;", True),
        ("@%p1 ld.global.b32 %r5, [%rd1];", False),
        ("@%p1 bar.sync 0;", False),
        ("membar.gl;", False),
        ("div.rn.f32 %f6, %f1, %f2;", False),
        ("sqrt.rn.f64 %rd4, %rd5;", False),
        ("div.u32 %r5, %r6, %r7;", False),
        ("div.u32 %r5, %r6, 7;", True),
        ("div.full.lo %f6, %f1, %f2;", False),  # has no type: it fails when it is executed
    ],
)
def test_contraction_sees_the_blocks_of_the_assembler(between, is_fused):
    """As in the code that ptxas 13.0 makes for sm_90; BlackScholes of NVIDIA's samples has a division there."""
    text = kernel(f"mul.f32 %f3, %f1, %f2;\n{between}\nadd.f32 %f4, %f3, %f5;\nst.global.f32 [%rd3], %f4;")

    assert has_fused_sum(text) == is_fused


def test_a_product_that_another_block_reads_is_not_fused():
    text = kernel(
        "mul.f32 %f3, %f1, %f2;\nadd.f32 %f4, %f3, %f5;\nst.global.f32 [%rd3], %f4;\n@%p1 bra NEXT;\n"
        "add.u32 %r5, %r6, 1;\nNEXT:\nst.global.f32 [%rd3], %f3;"
    )

    assert not has_fused_sum(text)


def test_a_product_that_has_other_uses_leaves_the_sum_to_the_second():
    text = kernel(
        "mul.f32 %f3, %f1, %f2;\nmul.f32 %f4, %f5, %f6;\nsub.f32 %f7, %f3, %f4;\n"
        "st.global.f32 [%rd3], %f3;\nst.global.f32 [%rd3], %f7;"
    )

    fused = [
        step for step in wf.ptx.load(text)["k"].program.instructions if getattr(step.action, "fused", None) is not None
    ]

    assert [step.text.split()[0] for step in fused] == ["sub.f32"]
