"""wgmma mistakes, planted by hand as kernels make them, are among the first three findings."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import warpfrag as wf
from diagnosis.asking import diagnose
from warpfrag.formats.codes import from_codes
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.random_operands import random_matrix

WG = "wgmma.mma_async.sync.aligned."
SP = "wgmma.mma_async.sp.sync.aligned."
FORMS = [
    f"{WG}m64n64k16.f32.f16.f16",
    f"{WG}m64n32k16.f32.bf16.bf16",
    f"{WG}m64n24k8.f32.tf32.tf32",
    f"{WG}m64n32k32.f32.e4m3.e5m2",
    f"{WG}m64n32k32.s32.s8.u8",
    f"{WG}m64n16k256.s32.b1.b1.and.popc",
    f"{SP}m64n32k32.f32.f16.f16",
    f"{SP}m64n32k64.s32.s8.s8",
    f"{WG}m64n64k16.f16.f16.f16",
]
NOISE = 4096  # random bytes of a kernel's other data, before and after a tile


class Product:
    """Random operands: registers, and a larger tile of B, partly read, in memory full of other data."""

    def __init__(self, name: str) -> None:
        self.mma = mma = wf.get(name)
        random = np.random.default_rng(5)
        codes = {role: random_matrix(mma, role, random) for role in "abc"}
        self.values = {role: from_codes(mma.operands[role].format, codes[role]) for role in "abc"}
        self.more = {}
        self.a_codes = codes["a"]
        if mma.pattern:
            self.a_codes, fields = mma.compress(codes["a"], raw=True)
            self.more["metadata"] = mma.metadata.pack(fields)
            for one in mma.selectors[1:]:
                other = random.choice(list(mma.pattern.rising), fields.shape)
                self.more["metadata"] |= mma.metadata.pack(other, selector=one)
        self.a, self.c = mma.a.pack(self.a_codes, raw=True), mma.c.pack(codes["c"], raw=True)
        self.tiles = {"a": self._tile(mma.a, self.a_codes, random), "b": self._tile(mma.b, codes["b"], random)}

    def _tile(self, operand, codes, random):
        k = operand.shape[1 if operand.role == "a" else 0]
        steps = max(1, 1024 // (k * operand.format.bits))  # as many as fill 128 bytes
        first = operand.descriptors(k=k * steps, start=NOISE)[steps // 2]
        descriptor = replace(first, leading=first.leading or 2048, stride=first.stride or 1024)
        memory = operand.memory(descriptor)
        size = memory.size(operand.shape, operand.format.bits) + 16 * NOISE
        shared = memory.write(random.integers(0, 256, size, np.uint8), codes, operand.format.bits)
        return wf.Shared(shared, descriptor)

    def run(self, *, a=None, b=None, c=None, metadata=None, **immediates):
        a = self.a if a is None else a
        return wf.execute(
            self.mma,
            a,
            b or self.tiles["b"],
            self.c if c is None else c,
            metadata=self.more.get("metadata") if metadata is None else metadata,
            immediates=Immediates(**immediates),
        )

    def check(self, kind, operand, d, *, text="", staged=False, **more):
        """Check that one of the first three findings has this kind, and the text if the mistake has only one."""
        observed = self.mma.d.unpack(d) if staged else d
        a = self.tiles["a"] if staged else self.values["a"]
        found = diagnose(self.mma, observed, a, self.tiles["b"], self.values["c"], **{**self.more, **more})
        named = [(one.kind, one.operand, one.text if text else "") for one in found[:3]]
        assert (kind, operand, text) in named, (self.mma.name, kind, operand, text, found)


@cache
def product(name):
    return Product(name)


def changed(tile, **fields):
    return replace(tile, descriptor=replace(tile.descriptor, **fields))


def wrong_tiles(tile):
    """Return common wrong descriptors, and the name of each mistake."""
    right = tile.descriptor
    words = {0: "no swizzle", 32: "swizzle 32", 64: "swizzle 64", 128: "swizzle 128"}
    yield "leading and stride byte offset swapped", changed(tile, leading=right.stride, stride=right.leading)
    for swizzle, word in words.items():
        if swizzle != right.swizzle:
            yield f"read with {word} instead of {words[right.swizzle]}", changed(tile, swizzle=swizzle)
    for by in (16, 32, -32):
        yield f"start off by {by} bytes", changed(tile, start=right.start + by)
    for offset in (1, 3) if right.swizzle else ():
        yield f"base offset {offset} instead of 0", changed(tile, base_offset=offset)
    yield "stride byte offset divided by 16 twice", changed(tile, stride=right.stride // 16 // 16 * 16)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_wrong_descriptors_of_b_and_of_a(name):
    one, turn = product(name), FORMS.index(name)  # some of the mistakes: the next forms have the others
    right = one.run()
    planted = 0
    for number, (text, tile) in [*enumerate(wrong_tiles(one.tiles["b"]))][turn % 3 :: 3]:
        d = one.run(b=tile)
        if not np.array_equal(d, right):
            one.check("descriptor", "b", d, text=text, staged=number % 2 == 1)
            planted += 1
    assert planted >= 1
    for text, tile in [*wrong_tiles(one.tiles["a"])][turn % 4 :: 4]:
        d = one.run(a=tile)
        if not np.array_equal(d, right):
            one.check("descriptor", "a", d, text=text, staged=True)


def test_an_offset_in_bytes_where_units_are_counted():
    one = product(FORMS[5])  # few columns: what is read lies within the memory
    right = one.tiles["b"]
    d = one.run(b=changed(right, stride=16 * right.descriptor.stride))
    one.check("descriptor", "b", d, text="stride byte offset in bytes, not in units of 16")


@pytest.mark.parametrize("name", FORMS)
def test_registers_warps_signs_and_what_is_added(name):
    one, turn = product(name), FORMS.index(name)
    right, a, c = one.run(), one.a, one.c
    order = np.arange(one.mma.d.words) ^ 1
    lanes = (a[[1, 2, 3, 0]], a[[2, 1, 0, 3]], np.roll(a, 1, axis=1))  # one of them in turn
    planted = [
        ("lanes", "a", one.run(a=lanes[turn % 3])),
        ("registers", "a", one.run(a=a[..., [1, 0, *range(2, a.shape[-1])]])),
        ("lanes", "d", right[([0, 1, 3, 2], [1, 1, 1, 1])[turn // 2 % 2]]),
        ("registers", "d", right[..., order]),
        ("lanes", "c", one.run(c=c[[0, 2, 1, 3]])),
        ("registers", "c", one.run(c=c[..., order])),
        ("c", "c", one.run(scale_d=False)),
    ]
    if one.mma.a.format.is_float:
        planted += [("sign", "a", one.run(negate=(True, False))), ("sign", "b", one.run(negate=(False, True)))]
    for kind, operand, d in planted[turn % 2 :: 2]:  # the next form has the others
        if not np.array_equal(d, right):
            one.check(kind, operand, d)
    one.check("c", "c", right, scale_d=False)
    assert diagnose(one.mma, right, one.values["a"], one.tiles["b"], one.values["c"], **one.more).correct


SPARSE = ["n32k32.f32.f16.f16", "n8k32.f16.f16.f16", "n16k32.f32.bf16.bf16", "n8k16.f32.tf32.tf32"]  # two selectors
SPARSE += ["n32k64.s32.s8.s8", "n8k64.f32.e4m3.e5m2"]


@pytest.mark.parametrize("name", [f"{SP}m64{name}" for name in SPARSE])
def test_metadata_and_selectors(name):
    one = product(name)
    e = one.more["metadata"]
    for selector in one.mma.selectors[1:]:
        one.check("selector", "metadata", one.run(selector=selector))
    for wrong in (e[[1, 0, 2, 3]], np.roll(e, 1, axis=1), e << np.uint32(16) | e >> np.uint32(16)):
        one.check("metadata", "metadata", one.run(metadata=wrong))
    staged = diagnose(one.mma, one.run(), one.tiles["a"], one.tiles["b"], one.values["c"], **one.more)
    assert staged.correct


@pytest.mark.parametrize("name", FORMS[:2])
@pytest.mark.parametrize("trans", [False, True])
def test_transposition_missing_or_set(name, trans):
    one = product(name)
    B = one.values["b"]
    tile = one.mma.b.store(B, one.mma.b.descriptors(trans=trans, swizzle=32)[0], trans=trans)
    memory = np.concatenate([tile.memory, np.zeros(1 << 15, np.uint8)])
    d = one.run(b=replace(tile, memory=memory, trans=not trans))
    found = diagnose(one.mma, d, one.values["a"], tile, one.values["c"])

    assert ("transposed", "b") in [(finding.kind, finding.operand) for finding in found[:3]]
    assert str(found[0]) == f"B: trans-b {'missing' if trans else 'set'}: read {'K' if trans else 'MN'}-major"


def test_a_tile_stored_otherwise_than_the_descriptor_says():
    one = product(FORMS[0])
    b, B = one.mma.b, one.values["b"]
    told = b.descriptors(swizzle=32)[0]
    for matrix, text in (
        (B.T, "stored with no swizzle, in lines of 32 bytes"),  # K-major, but the swizzle was forgotten
        (B, "stored row by row, without the descriptor's atoms"),  # as it came from global memory
    ):
        flat = np.ascontiguousarray(matrix).view(np.uint8).reshape(-1)
        found = diagnose(one.mma, one.run(b=wf.Shared(flat, told)), one.values["a"], B, one.values["c"])
        assert ("descriptor", "b", text) in [(one.kind, one.operand, one.text) for one in found[:3]]


@pytest.mark.parametrize("name", [f"{WG}m64n64k16.f32.f16.f16", f"{WG}m64n32k32.f32.e4m3.e5m2"])
def test_what_lies_beyond_a_tile_need_not_be_known(name):
    one = product(name)
    tile = one.mma.b.store(one.values["b"])
    memory = np.random.default_rng(8).integers(0, 60, tile.memory.size + 4096).astype(np.uint8)
    memory[: tile.memory.size] = tile.memory
    for fields, text in (({"start": 16}, "start off by 16 bytes; "), ({"start": 32}, "start off by 32 bytes; ")):
        d = one.run(b=replace(changed(tile, **fields), memory=memory))
        found = diagnose(one.mma, d, one.values["a"], one.values["b"], one.values["c"])
        assert found[0].text.startswith(text)
        assert found[0].text.endswith(" columns match; the others read beyond the memory")
    noise = np.random.default_rng(9).integers(0, 1 << 30, one.c.shape).astype(np.uint32)
    assert diagnose(one.mma, noise, one.values["a"], one.values["b"], one.values["c"]) == []


def test_each_warp_laid_out_like_another_operand_of_mma():
    one = product(f"{WG}m64n32k32.f32.e4m3.e5m2")
    pairs = wf.get("mma.m16n8k16.f32.f16.f16.f32").a.tiled(col=2)  # as if elements had 16 bits
    parts = one.a_codes.reshape(4, 16, 32)
    words = np.stack([pairs.pack(part.astype(np.uint16), raw=True) for part in parts])
    joined = (words.view(np.uint16).reshape(4, 32, 4, 4).astype(np.uint8)).view(np.uint32)[..., 0]
    one.check("layout", "a", one.run(a=np.ascontiguousarray(joined)))


def test_batches_and_one_operand():
    one = product(FORMS[0])
    (a, b), A, C = (one.a, one.tiles["b"]), one.values["a"], one.values["c"]
    wrong = changed(b, start=b.descriptor.start + 16)
    mixed = np.stack([one.run(), one.run(b=wrong)])
    assert diagnose(one.mma, mixed, A, b, C) == []
    twice = np.stack([one.run(b=wrong)] * 2)
    assert str(diagnose(one.mma, twice, A, b, C)[0]) == "B: start off by 16 bytes"

    assert str(diagnose(one.mma.a, a[[0, 1, 3, 2]], A)[0]) == "A: warps 2 and 3 swapped"
    assert diagnose(one.mma.d, one.run(), one.mma.d.unpack(one.run())).correct


def test_wrong_input_is_refused_with_what_was_expected():
    w, mma = wf.get(FORMS[0]), wf.get("mma.m16n8k16.f32.f16.f16.f32")
    sp, s8 = wf.get(f"{SP}m64n32k32.f32.f16.f16"), wf.get(f"{WG}m64n32k32.s32.s8.u8")
    A, B, D = (np.zeros(operand.shape) for operand in (w.a, w.b, w.d))
    tile = w.b.store(B)
    for given, more, message in (
        ((w, D[:8], A, B), {}, r"expected a matrix \(..., 64, 64\) or registers, uint32\[..., 4, 32, 32\]"),
        ((w, D, A, changed(tile, stride=0)), {}, "makes elements of the tile overlap"),
        ((w, D, A, changed(tile, start=1 << 17)), {}, "reach|byte"),
        ((w, D, A, B), {"negate": True}, "negate: expected two booleans"),
        ((w, D, A, B), {"scale_d": 0}, "scale_d: expected True or False"),
        ((w.a, w.a.pack(A), tile), {}, "expected only its registers and the matrix that they should hold"),
        ((w.b, D, B), {}, "is in shared memory"),
        ((mma, np.zeros((16, 8)), np.zeros((16, 16)), tile), {}, "reads its operands from registers"),
        ((mma, np.zeros((16, 8)), np.zeros((16, 16)), np.zeros((16, 8))), {"scale_d": False}, "apply only to wgmma"),
        ((sp, np.zeros((64, 32)), sp.a.store(np.zeros((64, 16))), np.zeros((32, 32))), {}, "needs the metadata"),
        ((s8, np.zeros((64, 32), int), np.zeros((64, 32), int), np.zeros((32, 32), int)), {"negate": (True, False)},
         "only float types can be negated"),
    ):  # fmt: skip
        with pytest.raises(wf.WarpfragError, match=message):
            diagnose(*given, **more)
