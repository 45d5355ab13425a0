"""The order of words: the orders that the assembler accepts.

`data/ptxas_orders.csv` holds random orders of the words of all kinds of instructions, with the verdict of ptxas 13.4,
so that the comparison needs no assembler; `python -m oracle.test_word_order` in `tests` writes it. Where there is an
assembler, thousands more are judged.
"""

import csv
import random
import tempfile
from itertools import product
from pathlib import Path

import pytest

import warpfrag as wf
from oracle.statements import judge, with_operands
from oracle.toolkit import find_newest_ptxas
from warpfrag.isa.instruction_names import tokens
from warpfrag.isa.legality import first_version, left_out

STORED = Path(__file__).resolve().parents[1] / "data" / "ptxas_orders.csv"
JUDGE = "sm_120a"  # the one target that takes every instruction of a warp
JUDGES = {JUDGE: 4000, "sm_90a": 600}  # and of a warpgroup; how many texts each is given
ORDERED = ({"row", "col"}, {"xor", "and", "popc"})


def kinds(target: str) -> list[list[wf.Instruction]]:
    """Return the instructions that a target must judge, grouped by the kinds of their words."""
    found: dict[object, list[wf.Instruction]] = {}
    for one in wf.find():
        form = one.form
        if form.is_warpgroup != (target != JUDGE):
            continue
        words = (form.op, form.kind, form.scale_vec, form.satfinite, form.bitop, bool(form.rounding), form.trans)
        found.setdefault((*words, bool(form.memory)), []).append(one)
    return list(found.values())


def is_type(word: str) -> bool:
    """Return True if a word is the type of a matrix."""
    return word.strip("besuftmxp_0123456789") == "" and word[0] in "bfstue" and word[:2] != "ue" and word[-1].isdigit()


def shuffled(one: wf.Instruction, chance: random.Random) -> str:
    """A name with its words in another order; mostly with the types, the layouts and xor.popc in their own."""
    op, words = one.op, one.name[len(one.op) + 1 :].split(".")
    if one.form.is_sparse:
        op, sparse = op.rsplit(".", maxsplit=1)
        words = [sparse, *words]
    if one.form.space and chance.random() < 0.6:
        words[words.index(one.form.space)] = chance.choice(one.form.operation.spaces)
        words = words if chance.random() < 0.7 else [word for word in words if word not in one.form.operation.spaces]
    if one.form.scale_vec and chance.random() < 0.3 and "scale_vec" not in one.name:
        words.append(f"scale_vec::{one.form.scale_vec}")
    if one.form.a == "f64" and not one.form.rounding and one.form.is_product and chance.random() < 0.3:
        words.append("rn")
    if chance.random() < 0.1:
        words.remove(chance.choice(words))
    mixed = chance.sample(words, len(words))
    for belongs in (is_type, *(group.__contains__ for group in ORDERED)):
        if chance.random() < 0.75:
            own = iter([word for word in words if belongs(word)])
            mixed = [next(own) if belongs(word) else word for word in mixed]
    if one.form.scale_type and chance.random() < 0.7:
        mixed.sort(key=lambda word: word == one.form.scale_type)  # to the end
    return ".".join([op, *mixed])


def draw(target: str, seed: int, count: int) -> dict[str, wf.Instruction]:
    """Return different random orders, of all kinds equally, each with the instruction whose operands belong to it."""
    chance, every = random.Random(seed), kinds(target)
    found: dict[str, wf.Instruction] = {}
    while len(found) < count:
        for members in every:
            one = chance.choice(members)
            text = shuffled(one, chance)
            found.setdefault(text, read(text) or one)
    return found


def read(text: str) -> wf.Instruction | None:
    """Return the instruction of a text that is complete PTX."""
    try:
        return wf.get(text) if not left_out(text) else None
    except wf.errors.IllegalInstruction:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("target", JUDGES)
def test_random_orders_are_judged_as_ptxas_judges_them(target, tmp_path, record_property):
    ptxas, version = find_newest_ptxas(target)
    count = JUDGES[target]
    drawn = draw(target, 2, count)
    verdicts = judge([with_operands(text, one) for text, one in drawn.items()], ptxas, target, version, tmp_path)
    taken = {text for text, verdict in zip(drawn, verdicts, strict=True) if verdict}

    assert {text for text in drawn if read(text)} == taken
    assert count // 3 < len(taken) < count * 19 // 20
    record_property("assembler: orders of words judged", len(drawn))


def test_stored_orders_are_judged_as_ptxas_judged_them():
    with STORED.open(encoding="utf-8", newline="") as file:
        verdicts = {row["text"]: row["taken"] == "yes" for row in csv.DictReader(file)}
    assert len(verdicts) >= 800
    assert 200 < sum(verdicts.values()) < len(verdicts) - 200
    assert {text for text in verdicts if read(text)} == {text for text, taken in verdicts.items() if taken}
    for text, taken in verdicts.items():
        if taken:  # the same words, however many there are, and none invented
            one = wf.get(text)
            assert set(tokens(one.name)) - set(one.form.operation.may_lack) <= set(tokens(text))


def write_stored(folder: Path) -> None:
    """Query the assembler for some orders, and store its answers."""
    with STORED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["text", "taken"])
        for target, count in JUDGES.items():
            ptxas, version = find_newest_ptxas(target)
            drawn = draw(target, 1, count // 5)
            verdicts = judge([with_operands(text, one) for text, one in drawn.items()], ptxas, target, version, folder)
            writer.writerows([text, "yes" if taken else "no"] for text, taken in zip(drawn, verdicts, strict=True))


# --- spellings of public kernels that 0.1 refused

FP = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
ORDERED_SPARSE = "mma.sp::ordered_metadata.sync.aligned"


def public_spellings() -> dict[str, str]:
    """Return a spelling and its canonical name."""
    found = {}
    for op, num in product(("ldmatrix", "stmatrix"), ("x1", "x2", "x4")):
        plain, trans = (f"{op}.sync.aligned.m8n8.{num}.{word}shared.b16" for word in ("", "trans."))
        found[f"{op}.sync.aligned.{num}.m8n8.shared.b16"] = plain  # CUTLASS, FlashAttention, vLLM
        found[f"{op}.sync.aligned.{num}.trans.m8n8.shared.b16"] = trans  # CUTLASS
        found[f"{op}.sync.aligned.trans.m8n8.{num}.shared.b16"] = trans  # FlashInfer, SageAttention
        found[f"{op}.sync.aligned.{num}.m8n8.shared.b16.trans"] = trans  # DeepGEMM
        found[f"{op}.sync.aligned.m8n8.trans.{num}.shared.b16"] = trans
    for a, b in product(FP, FP):  # CUTLASS, sparse GEMM of sm_120
        for d in ("f16", "f32"):
            types = f"{d}.{a}.{b}.{d}"
            name = f"{ORDERED_SPARSE}.m16n8k64.row.col.kind::f8f6f4.{types}"
            found[f"mma.sync.aligned.kind::f8f6f4.sp::ordered_metadata.m16n8k64.row.col.{types}"] = name
        types = f"f32.{a}.{b}.f32.ue8m0"
        name = f"{ORDERED_SPARSE}.m16n8k64.row.col.kind::mxf8f6f4.block_scale.{types}"
        kind = "kind::mxf8f6f4.block_scale.scale_vec::1X"
        found[f"mma.sync.aligned.{kind}.sp::ordered_metadata.m16n8k64.row.col.{types}"] = name
    for scale, size in (("ue8m0", "2X"), ("ue4m3", "4X")):
        words, types = f"kind::mxf4nvf4.block_scale.scale_vec::{size}", f"f32.e2m1.e2m1.f32.{scale}"
        name = f"{ORDERED_SPARSE}.m16n8k128.row.col.{words}.{types}"
        found[f"mma.sync.aligned.{words}.sp::ordered_metadata.m16n8k128.row.col.{types}"] = name
    for layout, role in product(("row", "col"), "ab"):  # kernels written by hand: the shape before the layout
        for shape, kind in (("m16n16k8", "tf32"), ("m16n16k16", "f16"), ("m16n16k16", "s8")):
            name = f"wmma.load.{role}.sync.aligned.{layout}.{shape}.global.{kind}"
            found[f"wmma.load.{role}.sync.aligned.{shape}.global.{layout}.{kind}"] = name
    for types in ("m16n16k8.f32.tf32.tf32.f32", "m16n16k16.f32.f32", "m16n16k16.s32.s8.s8.s32"):
        shape, rest = types.split(".", maxsplit=1)
        name = f"wmma.mma.sync.aligned.row.col.{shape}.{rest}"
        found[f"wmma.mma.sync.aligned.{shape}.row.col.{rest}"] = name
    for kind in ("f16", "f32", "s32"):
        name = f"wmma.store.d.sync.aligned.row.m16n16k16.global.{kind}"
        found[f"wmma.store.d.sync.aligned.m16n16k16.global.row.{kind}"] = name
    found["movmatrix.sync.trans.aligned.m8n8.b16"] = "movmatrix.sync.aligned.m8n8.trans.b16"
    return found


def test_spellings_of_public_kernels_are_taken():
    spellings = public_spellings()
    assert len(spellings) >= 97
    for text, name in spellings.items():
        assert wf.get(text) is wf.get(name)
        assert wf.get(text).name == name
        assert left_out(text) == ()


def test_spellings_of_public_kernels_assemble(tmp_path):
    ptxas, version = find_newest_ptxas(JUDGE)
    statements = [with_operands(text, wf.get(text)) for text in public_spellings()]
    assert all(judge(statements, ptxas, JUDGE, version, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_70", "sm_72", "sm_75", "sm_80", "sm_90a", "sm_101a", "sm_107a", "sm_120a"])
def test_the_first_version_is_the_first_that_the_assembler_takes(target, tmp_path):
    """Every listed instruction, including its state spaces, in the stated PTX version and not in the previous one."""
    ptxas, newest = find_newest_ptxas(target)
    versions = [(major, minor) for major, last in ((5, 0), (6, 5), (7, 8), (8, 8), (9, 4)) for minor in range(last + 1)]
    by_version: dict[tuple[int, int], list[wf.Instruction]] = {}
    for listed in wf.find(arch=target):
        if listed.name.startswith("tcgen05"):
            continue  # tests/oracle/test_tcgen05.py
        usual = listed.form.space
        names = [
            listed.name,
            *(listed.name.replace(f".{usual}.", ending) for ending in (".", ".shared::cta.") if usual),
        ]
        for one in map(wf.get, names):
            by_version.setdefault(first_version(one.form, target), []).append(one)
    assert max(by_version) <= newest
    for version, instructions in by_version.items():
        statements = [with_operands(one.name, one) for one in instructions]
        assert all(judge(statements, ptxas, target, version, tmp_path))
        before = versions[versions.index(version) - 1]
        assert not any(judge(statements, ptxas, target, before, tmp_path))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_stored(Path(folder))
