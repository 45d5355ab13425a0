"""tcgen05 against the assembler's verdicts, the manual's table of shapes, and layouts stated a second time."""

import gzip
import random
import re
from collections import Counter
from pathlib import Path

import pytest

import warpfrag as wf
from oracle import tcgen05_formulas as formulas
from oracle.toolkit import assemble, find_newest_ptxas
from warpfrag.errors import ParseError
from warpfrag.isa.tcgen05_forms import listed_forms
from warpfrag.isa.tcgen05_spelling import read_spelling
from warpfrag.isa.tmem_layouts import access, copied, placement

VERDICTS = Path(__file__).parent.parent / "data" / "tcgen05_accepts.txt.gz"
SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
TYPED = {"sm_100a": 14902, "sm_103a": 14618, "sm_110a": 14902}


def verdicts():
    """Return the targets, and for each spelling the targets that accept it."""
    lines = gzip.decompress(VERDICTS.read_bytes()).decode().splitlines()
    targets = lines[0].split(": ")[1].split(",")
    taken = ()
    for line in lines[1:]:
        if line.startswith("= "):
            taken = tuple(target for target, digit in zip(targets, line[2:], strict=True) if digit == "1")
        else:
            yield line, taken


def judged(text):
    """Return the targets that accept a text according to warpfrag."""
    try:
        return read_spelling(text).targets
    except ParseError:
        return ()


def test_every_verdict_of_the_assembler():
    everything = list(verdicts())

    assert len(everything) == 4678
    assert [text for text, taken in everything if set(judged(text)) != set(taken)] == []


def test_every_refusal_has_a_reason():
    refused = [text for text, taken in verdicts() if "sm_100a" not in taken]

    assert len(refused) > 1000
    for text in refused[::29]:
        with pytest.raises(wf.errors.IllegalInstruction) as error:
            wf.get(text, "sm_100a")
        assert len(error.value.reason) > 20


def shuffled(text, chance):
    """A text with its words in another order; those of the operation itself keep their place."""
    name, _, operands = text.partition(" ")
    words = name.rstrip(";").split(".")
    fixed = 2 + (words[2:3] == ["ws"]) + (words[2:3] in (["red"], ["spcompress"])) + (words[3:4] == ["spcompress"])
    rest = words[fixed:]
    chance.shuffle(rest)
    return ".".join(words[:fixed] + rest) + (f" {operands}" if operands else ";")


def test_words_in_any_order_are_judged_as_the_assembler_judges_them(tmp_path):
    ptxas, _ = find_newest_ptxas("sm_107a")
    chance = random.Random(5)
    legal = [text for text, taken in verdicts() if taken]
    texts = [shuffled(text, chance) for text in chance.sample(legal, 450)]
    texts += [re.sub(r"\.(sync|b32|kind::\w+|cta_group::1)", "", text, count=1) for text in texts[:60]]
    head = ".version 9.4\n.target sm_107a\n.address_size 64\n"
    registers = ".reg .b32 r<260>; .reg .b64 d<10>; .reg .b16 h<4>; .reg .pred p<4>;"
    named = [re.sub(r"\bsm\b", f"sm{at}", text) for at, text in enumerate(texts)]
    lines = [f".entry k{at}() {{ {registers} .shared .b8 sm{at}[64]; {text} }}" for at, text in enumerate(named)]
    module = tmp_path / "orders.ptx"
    module.write_text(head + "\n".join(lines) + "\n")
    wrong = {complaint.line - 4 for complaint in assemble(ptxas, "sm_107a", module)}

    assert 0 < len(wrong) < len(texts) - 400
    assert [text for at, text in enumerate(texts) if (at in wrong) == ("sm_107a" in judged(text))] == []


def test_every_shape_of_the_manual_is_found():
    counted = Counter(target for form in listed_forms() if form.is_typed for target in form.targets)

    assert {target: counted[target] for target in TYPED} == TYPED
    assert len({form.name for form in listed_forms()}) == len(listed_forms())
    for form in list(listed_forms())[::997]:
        assert wf.get(form.name).form == form


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        (
            "tcgen05.mma.cta_group::1.kind::f16",
            {"m": 128, "n": 12, "a": "f16", "d": "f32"},
            "n must be 8..256 in steps of 8",
        ),
        ("tcgen05.mma.cta_group::1.kind::f16", {"m": 256, "n": 16, "a": "f16", "d": "f32"}, "m must be one of 64, 128"),
        ("tcgen05.mma.cta_group::2.kind::f16", {"m": 256, "n": 24, "a": "f16", "d": "f32"}, "in steps of 16"),
        ("tcgen05.mma.cta_group::1.kind::f16", {"m": 64, "n": 8, "a": "bf16", "d": "f16"}, "a must be one of f16"),
        ("tcgen05.mma.cta_group::1.kind::f16", {"m": 64, "n": 8, "a": "e4m3", "d": "f32"}, "a must be one of f16,"),
        ("tcgen05.mma.ws.cta_group::1.kind::i8", {"m": 32, "n": 32, "a": "s8"}, "n must be one of 64, 128, 256"),
        ("tcgen05.mma.cta_group::1.kind::f16", {"m": 64, "a": "f16", "d": "f32"}, "n is missing"),
        ("mma.m16n8k16.f32.f16.f16.f32", {"m": 16}, "the name already has a shape and types"),
    ],
)
def test_illegal_shapes_are_refused_with_a_reason(name, shape, reason):
    with pytest.raises(wf.errors.IllegalInstruction, match=reason):
        wf.get(name, **shape)


def one_of_each():
    """A product of every data path, kind and sparsity."""
    found = {}
    for form in listed_forms():
        if form.is_typed:
            key = (placement(form)[0], form.kind, form.is_sparse)
            if key not in found or form.shape.n in (48, 64):
                found[key] = form
    return list(found.values())


def test_accumulators_and_multiplicands_lie_where_the_figures_say():
    letters = set()
    for form in one_of_each():
        t = wf.get(form.name)
        m, n, _ = form.shape
        which = formulas.letter(m, form.blocks, sparse=form.is_sparse, ws=form.spelling.is_weight_stationary)
        letters.add(which)
        for row in range(0, m, 5):
            for col in range(0, n, 7):
                block, lane, column = formulas.accumulator(which, row, col, m, n)
                first = t.d.layout.where(row=row, col=col)[0]
                assert (getattr(first, "block", 0), first.tlane, first.column) == (block, lane, column)
            bits = t.a.spec.container
            for col in range(t.a.shape[1]):
                first = t.a.layout.where(row=row, col=col)[0]
                assert first[-3:] == (
                    formulas.accumulator(which, row, 0, m, n)[1],
                    col * bits // 32,
                    col % (32 // bits),
                )
    assert letters == set("ABCDEFG")


def test_metadata_lies_where_the_formulas_say():
    sparse = [form for form in one_of_each() if form.is_sparse]
    assert len(sparse) > 10
    for form in sparse:
        t = wf.get(form.name)
        m, n, k = form.shape
        which = formulas.letter(m, form.blocks, sparse=True, ws=form.spelling.is_weight_stationary)
        for row in range(0, m, 3):
            lane = formulas.accumulator(which, row, 0, m, n)[1]
            for chunk in range(k // t.pattern.chunk):
                place = t.metadata.where(row=row, chunk=chunk)
                expected = formulas.metadata(form.kind, lane, chunk * t.pattern.chunk)
                assert (place.tlane, place.column, 4 * place.slot) == expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("op", ["ld", "st"])
def test_loads_and_stores_of_every_repeat(shape, packed, op):
    word = {"ld": ".pack::16b", "st": ".unpack::16b"}[op] if packed else ""
    repeats = [1 << bit for bit in range(8)]
    done = 0
    for repeat in repeats:
        try:
            spelling = read_spelling(f"tcgen05.{op}.sync.aligned.{shape}.x{repeat}{word}.b32")
        except ParseError:
            continue
        if spelling.problem:
            continue
        done += 1
        layout = access(spelling)
        regs = layout.regs
        for warp, lane, reg in [(0, 0, 0), (3, 31, regs - 1), (1, 5, regs // 2), (2, 18, regs // 3), (0, 23, regs - 1)]:
            row, column = formulas.loaded(shape, lane, reg, repeat)
            for slot in range(layout.slots):
                place = layout.at(warp=warp, lane=lane, reg=reg, slot=slot)
                assert place == (32 * warp + row, 2 * column + slot if packed else column, 0)
    assert done == {"16x128b": 7, "16x256b": 6}.get(shape, 8)


def test_copies_reach_the_lanes_that_the_manual_lists():
    shapes = ["128x256b", "128x128b", "4x256b", "32x128b.warpx4", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23"]
    for shape in shapes:
        layout = copied(read_spelling(f"tcgen05.cp.cta_group::1.{shape}"))
        for row in range(layout.outs["row"]):
            lanes = {place.tlane for place in layout.where(row=row, word=1)}
            assert lanes >= set(formulas.copied(shape, row))
            assert shape == "4x256b" or lanes == set(formulas.copied(shape, row))


def test_scale_factors_lie_where_the_manual_says():
    t = wf.get("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", m=128, n=192, k=64, scale_type="ue4m3")
    for row in range(128):
        for byte in range(4):
            first = t.scale_a.layout.where(row=row, byte=byte)[0]
            assert first == formulas.scale(row, byte, 128)
    assert t.scale_b.columns == 8
    for col in range(192):
        assert t.scale_b.layout.where(byte=2, col=col)[0] == formulas.scale(col, 2, 192)


def test_a_load_says_which_thread_holds_an_element():
    t = wf.get("tcgen05.mma.cta_group::1.kind::f16", m=128, n=256, a="bf16", b="bf16", d="f32")
    ld = wf.get("tcgen05.ld.sync.aligned.16x256b.x8.b32")
    held = t.d.through(ld, column=64)
    assert ld.d.layout.at(warp=0, lane=5, reg=3, slot=0) == (9, 3, 0)
    assert held.at(warp=1, lane=22, reg=1) == (37, 69)
    assert held.where(row=37, col=69) == [(1, 22, 1, 0)]
    assert held.where(row=37, col=5) == []
    assert t.d.through(ld, base_lane=16).at(warp=0, lane=0, reg=0) == (16, 0)
    for wrong in ({"column": 200}, {"column": 3}, {"base_lane": 8}):
        with pytest.raises(wf.errors.InvalidOperand):
            t.d.through(ld, **wrong)
    with pytest.raises(wf.errors.InvalidOperand, match="expected a tcgen05.ld"):
        t.d.through(t)


# CuTe's layouts, printed by its Python package without a GPU


def modes(text):
    """The (size, stride) pairs of a layout in CuTe's notation, the first mode first, flattened."""
    shape, stride = text.split("):(")
    sizes, strides = ([int(number) for number in re.findall(r"\d+", part)] for part in (shape, stride))
    return list(zip(sizes, strides, strict=True))


def offset(pairs, index):
    """Return the offset of an index counted through the modes."""
    total = 0
    for size, stride in pairs:
        index, digit = divmod(index, size)
        total += digit * stride
    return total


def cute_lines(*kinds):
    lines = (Path(__file__).parent.parent / "data" / "cute_tcgen05.csv").read_text().splitlines()[1:]
    return [line.split(";") for line in lines if line.split(";")[0] in kinds]


def test_fragments_in_tensor_memory_are_those_of_cute():
    """CuTe counts m before n, and an address as lane << 16 | column in 32-bit units; narrower types count elements."""
    types = {"f16": "bf16", "tf32": "tf32", "f8f6f4": "e4m3"}
    lines = cute_lines("d", "a")
    assert len(lines) > 140
    for role, kind, group, m, n, text in lines[::2]:
        t = wf.get(f"tcgen05.mma.cta_group::{group}.kind::{kind}", m=int(m), n=int(n), a=types[kind], d="f32")
        operand = t.d if role == "d" else t.a
        pairs = modes(text)
        if role == "a" and (group, m) == ("2", "128"):
            continue  # CuTe lists 128 lanes: 64 rows, and their copies
        rows, cols = operand.shape[0] // int(group), operand.shape[1]
        for row in range(0, rows, 13):
            for col in range(0, cols, 11):
                place = operand.layout.where(row=row, col=col)[0]
                slots = operand.slots
                address = (place.tlane << 16) * slots + place.column * slots + place.slot
                assert offset(pairs, row + rows * col) == address, (role, kind, group, m, n, row, col)


def test_registers_of_loads_and_stores_are_those_of_cute():
    """CuTe counts the places of one warp lane by lane, each with all its columns."""
    lines = cute_lines("ld", "st")
    assert len(lines) == 148
    for op, shape, repeat, packed, text, _ in lines:
        word = {"ld": ".pack::16b", "st": ".unpack::16b"}[op] if packed == "1" else ""
        layout = access(read_spelling(f"tcgen05.{op}.sync.aligned.{shape}.{repeat}{word}.b32"))
        pairs = modes(text)
        values = layout.regs * layout.slots
        for lane in (0, 1, 6, 17, 31):
            for value in range(0, values, max(1, values // 8)):
                place = layout.at(warp=0, lane=lane, reg=value // layout.slots, slot=value % layout.slots)
                taken = offset(pairs, lane + 32 * value)
                per_lane = layout.outs["column"]
                assert taken == place.tlane * per_lane + place.column, (op, shape, repeat, packed, lane, value)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("SM100_TMEM_LOAD_16dp256b8x", "tcgen05.ld.sync.aligned.16x256b.x8.b32"),
        ("cute::SM100_TMEM_STORE_32dp32b4x_16b", "tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32"),
        ("SM100_UTCCP_4x32dp128bit_1cta", "tcgen05.cp.cta_group::1.32x128b.warpx4"),
        ("SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, 256, 128>", "tcgen05.mma.cta_group::2.kind::f16"),
        ("llvm.nvvm.tcgen05.wait.ld", "tcgen05.wait::ld.sync.aligned"),
        (
            'asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;"',
            "tcgen05.mma.cta_group::1.kind::f16",
        ),
    ],
)
def test_names_elsewhere_lead_here(name, meaning):
    assert wf.get(name).name == meaning


@pytest.mark.parametrize("name", ["tcgen05.ld.32x32b.x16.b32", "tcgen05.wait::ld", "tcgen05.alloc.cta_group::1.b32"])
def test_a_short_form_drops_sync_and_aligned(name):
    full = wf.get(name)
    assert ".sync.aligned" in full.name
    assert full.name.replace(".sync.aligned", "") == name
    with pytest.raises(wf.errors.IllegalInstruction, match="needs sync"):  # in source both must be there
        wf.get(f"{name} operands;")


def test_a_name_that_fits_several_lists_them():
    with pytest.raises(wf.errors.IllegalInstruction, match="matches 6 tcgen05 instructions") as error:
        wf.get("UTCHMMA")
    assert "tcgen05.mma.cta_group::1.kind::f16" in error.value.nearest
    names = wf.aliases("tcgen05.mma.cta_group::1.kind::i8")
    assert (names["cute"], names["sass"]["sm_100a"]) == ("SM100_MMA_S8_SS", "UTCIMMA")
