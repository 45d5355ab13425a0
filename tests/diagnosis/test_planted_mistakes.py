"""Mistakes planted by hand, in registers and in instruction names, are among the first three findings.

Nothing here reads the list of mistakes that diagnose searches: each is made as a kernel would make it.
"""

from functools import cache

import numpy as np
import pytest

import warpfrag as wf
from diagnosis.asking import diagnose
from slow_cases import sampled
from warpfrag.formats.codes import from_codes
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.execute import execute_registers
from warpfrag.tensorcore.random_operands import random_matrix
from warpfrag.tensorcore.registry import instruction_of

LANE = np.arange(32)
SP, OSP = "mma.sp.", "mma.sp::ordered_metadata."
MX = "mma.m16n8k64.kind::mxf4"
MX8 = "mma.m16n8k32.kind::mxf8f6f4.block_scale"
ARCHS = {"kind": "sm_120", "m8n8k4.row.col.f32": "sm_70", "mma.m16n8k16.f32.bf16": "sm_80"}
MATRICES = [
    "mma.m16n8k16.f32.f16.f16.f32",
    "mma.m16n8k8.f16.f16.f16.f16",
    "mma.m16n8k16.f32.bf16.bf16.f32",
    "mma.m16n8k8.f32.tf32.tf32.f32",
    "mma.m16n8k32.s32.s8.u8.s32",
    "mma.m16n8k64.s32.s4.s4.s32",
    "mma.m16n8k32.f32.e4m3.e4m3.f32",
    "mma.m16n8k16.f64.f64.f64.f64",
    f"{SP}m16n8k32.f32.f16.f16.f32",
    "wmma.mma.row.col.m16n16k16.f32.f32",
]
SPARSE = [
    f"{SP}m16n8k16.f32.f16.f16.f32",
    f"{OSP}m16n8k32.f32.f16.f16.f32",
    f"{SP}m16n8k32.f32.bf16.bf16.f32",
    f"{SP}m16n8k16.f32.bf16.bf16.f32",
    f"{SP}m16n8k16.f32.tf32.tf32.f32",
    f"{SP}m16n8k8.f32.tf32.tf32.f32",
    f"{SP}m16n8k32.s32.s8.s8.s32",
    f"{OSP}m16n8k64.s32.u4.s4.s32",
    f"{SP}m16n8k64.s32.s8.s8.s32",
    f"{OSP}m16n8k64.f32.e4m3.e4m3.f32",
]
SIGNED = [
    "mma.m16n8k16.s32.s8.s8.s32",
    "mma.m16n8k32.s32.s8.u8.s32",
    "mma.m8n8k16.s32.u8.u8.s32",
    "mma.m16n8k32.s32.u4.s4.s32",
    "mma.m16n8k64.s32.s4.s4.s32",
    "mma.m8n8k32.s32.u4.u4.s32",
    f"{SP}m16n8k32.s32.s8.s8.s32",
    f"{OSP}m16n8k128.s32.u4.u4.s32",
    "wmma.mma.row.col.m16n16k16.s32.s8.s8.s32",
]
SCALED = [
    f"{MX}.block_scale.f32.e2m1.e2m1.f32.ue8m0",
    f"{MX}nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
    *(f"{MX8}.f32.{types}.f32.ue8m0" for types in ("e4m3.e4m3", "e5m2.e3m2", "e2m1.e4m3", "e2m3.e2m3", "e3m2.e5m2")),
    f"{MX}nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
]
ARITHMETIC = [
    ("mma.m16n8k16.f32.f16.f16.f32", "sm_80"),
    ("mma.m16n8k8.f32.f16.f16.f32", "sm_75"),
    ("mma.m16n8k16.f16.f16.f16.f16", "sm_80"),
    ("mma.m16n8k16.f32.bf16.bf16.f32", "sm_90"),
    ("mma.m16n8k32.f16.e4m3.e4m3.f16", "sm_89"),
    ("mma.m16n8k8.f32.tf32.tf32.f32", "sm_80"),
    ("mma.m16n8k4.f32.tf32.tf32.f32", "sm_80"),
    ("mma.m16n8k32.f32.e4m3.e5m2.f32", "sm_89"),
    ("mma.m8n8k4.row.col.f32.f16.f16.f32", "sm_90"),
]


class Product:
    """A product with random operands: its matrices, and registers in which mistakes can be planted."""

    def __init__(self, name: str) -> None:
        self.arch = next((arch for part, arch in ARCHS.items() if part in name), "sm_90")
        form = wf.get(name).form
        self.mma = mma = instruction_of(form, self.arch if form.is_wmma else "")
        random = np.random.default_rng(11)
        codes = {role: random_matrix(mma, role, random) for role in "abc"}
        self.given = {role.upper(): from_codes(mma.operands[role].format, codes[role]) for role in "abc"}
        self.words = {role: mma.operands[role].pack(codes[role], raw=True) for role in "bc"}
        self.more = {}
        if mma.pattern:
            stored, fields = mma.compress(codes["a"], raw=True)
            legal = list(mma.pattern.rising)
            self.more["metadata"] = mma.metadata.pack(fields)
            for one in mma.selectors[1:]:  # other lanes hold what others read
                self.more["metadata"] |= mma.metadata.pack(random.choice(legal, fields.shape), selector=one)
            codes["a"] = stored
        self.words["a"] = mma.a.pack(codes["a"], raw=True)
        if "scale_a" in mma.operands:
            low, high = (120, 134) if mma.scale_a.format == "ue8m0" else (40, 72)
            for role in ("scale_a", "scale_b"):
                self.more[role] = random.integers(low, high, (32, 4)).astype(np.uint8).view(np.uint32)[:, 0]

    def run(self, mma=None, arch=None, c=None, **changed):
        """Return D's registers, with some registers changed or another instruction executed."""
        words = {**self.words, **self.more, **changed}
        if c is not None:
            words["c"] = c
        chosen = {name: words.pop(name) for name in ("selector", "byte_id", "thread_id") if name in words}
        return execute_registers(mma or self.mma, words, Immediates(**chosen), arch=arch or self.arch)

    def findings(self, d, *, as_matrix):
        observed = self.mma.d.unpack(d) if as_matrix else d
        return diagnose(self.mma, observed, **self.given, **self.more, arch=self.arch)

    def check(self, planted):
        """Check that every (kind, operand, registers of D) is found; changes without effect are omitted."""
        right = self.run()
        seen = set()
        for number, (kind, operand, d) in enumerate(planted):
            if np.array_equal(d, right):
                continue
            found = self.findings(d, as_matrix=number % 2 == 0)
            assert (kind, operand) in [(one.kind, one.operand) for one in found[:3]], (self.mma.name, number, found)
            seen.add((kind, operand))
        return seen


@cache
def product(name):
    return Product(name)


def swap_registers(operand, words):
    """Swap the first register with the next one that is not its copy."""
    elements = [operand.layout.at(lane=0, reg=reg) for reg in range(operand.regs)]
    other = next(reg for reg, element in enumerate(elements) if element != elements[0])
    order = [{0: other, other: 0}.get(reg, reg) for reg in range(operand.regs)]
    return words.reshape(32, operand.regs, -1)[:, order].reshape(words.shape)


def of_matrix(change):
    """Return a change of the matrix as a change of its registers."""

    def changed(operand, words):
        codes = operand.unpack(words, raw=True)
        return operand.pack(change(codes).reshape(codes.shape), raw=True)

    return changed


def turn_blocks(codes):
    rows, cols = codes.shape[-2:]
    return codes.reshape(rows // 8, 8, cols // 8, 8).transpose(0, 3, 2, 1)


def by_lane(operand, words):
    """Every lane holds consecutive elements of memory; for D, the registers are read as such."""
    codes = operand.unpack(words, raw=True).reshape(-1)
    elements = [operand.layout.at(**place._asdict()) for place in operand.layout.places()]
    order = np.array([row * operand.shape[-1] + col for row, col in elements])
    moved = codes[order if operand.role == "d" else np.argsort(order)]
    return operand.pack(moved.reshape(operand.shape), raw=True)


NIBBLES, FOUR, HALF = np.uint32(0x0F0F0F0F), np.uint32(4), np.uint32(16)
CHANGES = {
    "registers": [swap_registers, lambda operand, words: words[:, ::-1] if operand.regs == operand.words else words],
    "lanes": [
        lambda _, words: np.roll(words, 1, axis=0),
        lambda _, words: np.roll(words, -1, axis=0),
        lambda _, words: words[LANE ^ 8],
        lambda _, words: words[LANE ^ 19],
        lambda _, words: words[LANE % 4 * 8 + LANE // 4],
        lambda _, words: words[[1, 0, *range(2, 32)]],
    ],
    "halves": [
        lambda _, words: words << HALF | words >> HALF,
        lambda _, words: (words & NIBBLES) << FOUR | words >> FOUR & NIBBLES,
        lambda _, words: words.byteswap(),
    ],
    "transposed": [of_matrix(np.transpose), of_matrix(lambda codes: codes.reshape(codes.shape[::-1]).T)],
    "blocks": [of_matrix(turn_blocks)],
    "layout": [by_lane, of_matrix(lambda codes: np.roll(codes, 1, axis=0))],
}  # fmt: skip


@pytest.mark.parametrize("kind", sampled(CHANGES, 4))
def test_registers_lanes_and_matrices_in_another_order(kind):
    seen, families = set(), 0
    for number, name in enumerate(MATRICES):
        one, some = product(name), CHANGES[kind]
        first = number % len(some)  # which change of the kind, and with which operands, differs from family to family
        change = pick(kind, some[first:] + some[:first])
        found = one.check([(kind, role, changed(one, role, change)) for role in ("ac", "bd", "ab", "cd")[number % 4]])
        families += bool(found)
        seen |= found
    assert families >= 8
    assert seen == {(kind, role) for role in "abcd"}


def changed(product, role, change):
    """Return D's registers after a change of an operand's registers."""
    operand = product.mma.operands[role]
    if role == "d":
        return change(operand, product.run())
    return product.run(**{role: change(operand, product.words[role])})


def pick(kind, some):
    """Return the first change of an operand that is possible and has an effect."""

    def change(operand, words):
        if (kind == "registers" and operand.regs == 1) or (kind == "blocks" and any(n % 8 for n in operand.shape)):
            return words
        return next((made for made in (one(operand, words) for one in some) if not np.array_equal(made, words)), words)

    return change


OTHERS = [  # an operand filled by the rule of another instruction's
    ("mma.m16n8k16.f32.f16.f16.f32", "a", "mma.m16n8k8.f32.f16.f16.f32", "a", {"col": 2}),
    ("mma.m16n8k16.f32.f16.f16.f32", "b", "mma.m16n8k8.f32.f16.f16.f32", "b", {"row": 2}),
    ("mma.m16n8k16.f32.bf16.bf16.f32", "a", "mma.m16n8k16.s32.s8.s8.s32", "a", {}),
    ("mma.m16n8k8.f32.tf32.tf32.f32", "a", "mma.m16n8k8.f32.f16.f16.f32", "a", {}),
    ("mma.m16n8k16.f32.bf16.bf16.f32", "b", "mma.m16n8k16.s32.s8.s8.s32", "b", {}),
    ("mma.m16n8k32.s32.s8.u8.s32", "a", "mma.m16n8k16.f32.f16.f16.f32", "a", {"col": 2}),
    ("mma.m16n8k32.f32.e4m3.e4m3.f32", "a", "mma.m16n8k16.f32.f16.f16.f32", "a", {"col": 2}),
    ("mma.m16n8k64.s32.s4.s4.s32", "a", "mma.m16n8k32.s32.s8.s8.s32", "a", {"col": 2}),
    ("mma.m16n8k16.f64.f64.f64.f64", "a", "mma.m16n8k8.f64.f64.f64.f64", "a", {"col": 2}),
    ("mma.m16n8k16.f64.f64.f64.f64", "b", "mma.m16n8k16.f32.f16.f16.f32", "b", {}),
    ("mma.m16n8k8.f16.f16.f16.f16", "a", "mma.m16n8k4.f32.tf32.tf32.f32", "a", {"col": 2}),
    (f"{SP}m16n8k32.f32.f16.f16.f32", "a", "mma.m16n8k8.f32.f16.f16.f32", "a", {"col": 2}),
    ("mma.m16n8k16.f32.f16.f16.f32", "b", "mma.m16n8k16.s32.s8.s8.s32", "b", {}),
    ("mma.m16n8k16.f32.f16.f16.f32", "d", "mma.m16n8k8.f32.tf32.tf32.f32", "a", {}),
]


def test_the_layout_of_another_shape_or_type():
    families = set()
    for name, role, other, its, tiles in OTHERS:
        one = product(name)
        operand = one.mma.operands[role]
        layout = getattr(wf.get(other), its).layout.tiled(**{"row": 1, "col": 1, **tiles})
        places = [*operand.layout.places()]
        numbers = [(place.lane, place.reg * operand.slots + place.slot) for place in places]
        wrong = [layout.at(lane=lane, reg=at // layout.slots, slot=at % layout.slots) for lane, at in numbers]
        codes = operand.unpack(one.run() if role == "d" else one.words[role], raw=True)
        moved = np.empty_like(codes)
        for place, element in zip(places, wrong, strict=True):
            own = tuple(operand.layout.at(**place._asdict()))
            if role == "d":
                moved[tuple(element)] = codes[own]
            else:
                moved[own] = codes[tuple(element)]
        words = operand.pack(moved, raw=True)
        d = words if role == "d" else one.run(**{role: words})
        families |= {name} if one.check([("layout", role, d)]) else set()
    assert len(families) >= 8


def test_d_read_with_another_layout():
    found = [product(name).check([("layout", "d", by_lane(product(name).mma.d, product(name).run()))])
             for name in [*MATRICES, *SPARSE[:2], *SCALED[:1]]]  # fmt: skip
    assert sum(map(bool, found)) >= 8


def trans(words):
    """Return the words of ldmatrix with a wrong .trans, or without a required one: each word is transposed."""
    return np.concatenate([wf.execute("movmatrix.m8n8.trans.b16", words[:, [at]]) for at in range(words.shape[1])], 1)


def test_ldmatrix_with_the_wrong_trans():
    names = [name for name in MATRICES if not {"tf32", "f64"} & {*name.split(".")}] + SIGNED[:2]
    found = [
        product(name).check([("blocks", role, product(name).run(**{role: trans(product(name).words[role])}))])
        for name in names
        if "wmma" not in name
        for role in "ab"
    ]
    assert sum(map(bool, found)) >= 16


def test_signed_for_unsigned():
    for name in SIGNED:
        one = product(name)
        form = one.mma.form
        planted = []
        for roles in ("a", "b", "ab"):
            other = {role: f"{'su'[getattr(form, role)[0] == 's']}{getattr(form, role)[1:]}" for role in roles}
            words = name.split(".")
            for role in roles:
                words["ab".index(role) - 3 if words[-1] == "s32" else -1] = other[role]
            if name.startswith("wmma") and len(roles) == 1:
                continue  # wmma has one type for both
            planted.append(("sign", roles[0], one.run(mma=instruction_of(wf.get(".".join(words)).form, one.mma.arch))))
        assert one.check(planted)


@pytest.mark.slow
def test_selector_and_metadata():
    selectors = set()
    for name in SPARSE:
        one = product(name)
        e = one.more["metadata"]
        planted = [("selector", "metadata", one.run(selector=other)) for other in one.mma.selectors[1:2]]
        selectors |= {name} if planted else set()
        planted += [
            ("metadata", "metadata", one.run(metadata=changed))
            for changed in (e << np.uint32(16) | e >> np.uint32(16), np.roll(e, 1), np.full_like(e, 0x44444444))
            if legal(one, changed)
        ]
        assert ("metadata", "metadata") in one.check(planted)
    assert len(selectors) >= 8  # the others have one


def legal(one, metadata):
    try:
        one.run(metadata=metadata)
    except wf.errors.InvalidSparsity:
        return False
    return True


@pytest.mark.slow
def test_ids_and_words_of_scale_factors():
    for name in SCALED:
        one = product(name)
        mma, s = one.mma, one.more["scale_a"]
        planted = [("selector", "scale_a", one.run(byte_id=(other, 0))) for other in mma.scale_a.byte_ids[1:2]]
        planted += [("selector", "scale_b", one.run(thread_id=(0, other))) for other in mma.scale_b.thread_ids[1:2]]
        planted += [
            ("halves", "scale_a", one.run(scale_a=s.byteswap())),
            ("lanes", "scale_b", one.run(scale_b=np.roll(one.more["scale_b"], 1))),
        ]
        assert len(one.check(planted)) >= 3


@pytest.mark.slow
def test_c_missing_twice_or_added_again():
    for name in [*MATRICES, "mma.m8n8k4.row.col.f32.f16.f16.f32"]:
        one = product(name)
        c, C = one.mma.c, one.given["C"]
        with np.errstate(over="ignore", invalid="ignore"):
            twice = c.pack(C + C)
        planted = [("c", "c", one.run(c=np.zeros_like(one.words["c"]))), ("c", "c", one.run(c=twice))]
        if one.mma.c.format == one.mma.d.format:
            planted.append(("c", "d", one.run(c=one.run())))
        assert ("c", "c") in one.check(planted)


@pytest.mark.parametrize(("name", "arch"), ARITHMETIC)
def test_the_arithmetic_of_another_architecture(name, arch):
    one = product(name)
    assert one.check([("arch", "d", one.run(arch=arch))])


def test_a_correct_result_is_called_so():
    for name in [*MATRICES, *SPARSE, *SIGNED, *SCALED]:
        one = product(name)
        assert one.findings(one.run(), as_matrix=True).correct
