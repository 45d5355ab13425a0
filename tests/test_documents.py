"""The five sections of NVIDIA's documents that warpfrag covers first, each as a separate test.

Each class is named after its section and restates what the section says: the formulas, the registers and their
types, and the order of elements inside a register. The formulas are written out here again, on purpose: a reader
can hold this file next to the document. g is the lane's group (lane >> 2), t its place in the group (lane & 3).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import warpfrag as wf

Formula = Callable[[int, int, int], tuple[int, ...]]  # (g, t, i) or (lane, q, i) -> coordinates

WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
WIDTH |= {"b1": 1, "e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4}


def registers(operand: Any) -> tuple[int, int, str]:
    """Registers per lane, elements per register, PTX type."""
    return operand.regs, operand.slots, operand.ptx_type


def check_formula(operand: Any, formula: Formula) -> None:
    """Element i of lane (g, t) is the one the formula says, in both directions."""
    for lane in range(32):
        for i in range(operand.regs * operand.slots):
            reg, slot = divmod(i, operand.slots)
            expected = formula(lane >> 2, lane & 3, i)
            place = operand.layout.at(lane=lane, reg=reg, slot=slot)
            assert place == expected
            assert operand.layout.where(**place._asdict()) == [(lane, reg, slot)]


def position_codes(operand: Any, plane: int) -> npt.NDArray[Any]:
    """A matrix whose codes are digit `plane` of the element's own number, in as many bits as the format has."""
    width = WIDTH[operand.format.name]
    number = np.arange(int(np.prod(operand.shape)), dtype=np.uint64).reshape(operand.shape)
    code = (number >> np.uint64(width * plane)) & np.uint64((1 << width) - 1)
    return code.astype(np.dtype(f"u{max(8, width) // 8}") if width != 6 else np.dtype("u1"))


def check_order(operand: Any, formula: Formula, *, container: int = 0, shift: int = 0) -> None:
    """Pack position-coded matrices: element i sits at bits `container * (i % slots) + shift` of register i / slots."""
    width = WIDTH[operand.format.name]
    container = container or width
    planes = -(-int(np.prod(operand.shape) - 1).bit_length() // width)
    assert planes >= 1
    for plane in range(planes):
        codes = position_codes(operand, plane)
        words = operand.pack(codes, raw=True)
        assert (words.shape, words.dtype) == ((32, operand.words), np.dtype(np.uint32))
        bits_of_register = 64 if width == 64 else 32
        for lane in range(32):
            values = [0] * operand.regs
            for i in range(operand.regs * operand.slots):
                code = int(codes[formula(lane >> 2, lane & 3, i)])
                values[i // operand.slots] |= code << (container * (i % operand.slots) + shift)
            expected = [(value >> low) & 0xFFFFFFFF for value in values for low in range(0, bits_of_register, 32)]
            assert words[lane].tolist() == expected


def check(operand: Any, formula: Formula) -> None:
    """Formula and element order of an operand whose elements fill their registers."""
    check_formula(operand, formula)
    check_order(operand, formula)


# the accumulator of every m16n8 shape: four values, rows g and g + 8, columns 2t and 2t + 1
def accumulator(g: int, t: int, i: int) -> tuple[int, int]:
    """Row and column of c_i and d_i."""
    return (g if i < 2 else g + 8), 2 * t + (i & 1)


class TestFragmentsOfMmaM16n8k32:
    """PTX ISA, "Matrix Fragments for mma.m16n8k32"."""

    @pytest.mark.parametrize("a", ["s4", "u4"])
    @pytest.mark.parametrize("b", ["s4", "u4"])
    @pytest.mark.parametrize("sat", ["", ".satfinite"])
    def test_4_bit_integers(self, a: str, b: str, sat: str) -> None:
        """A: two .b32 of eight elements; B: one .b32 of eight; C and D: four .s32."""
        mma = wf.get(f"mma.sync.aligned.m16n8k32.row.col{sat}.s32.{a}.{b}.s32")
        assert tuple(mma.shape) == (16, 8, 32)
        assert [str(x.format) for x in (mma.a, mma.b, mma.c, mma.d)] == [a, b, "s32", "s32"]
        assert [tuple(x.shape) for x in (mma.a, mma.b, mma.c, mma.d)] == [(16, 32), (32, 8), (16, 8), (16, 8)]
        assert registers(mma.a) == (2, 8, ".b32")
        assert registers(mma.b) == (1, 8, ".b32")
        assert registers(mma.c) == registers(mma.d) == (4, 1, ".s32")
        check(mma.a, lambda g, t, i: (g if i < 8 else g + 8, 8 * t + (i & 7)))
        check(mma.b, lambda g, t, i: (8 * t + i, g))
        check(mma.c, accumulator)
        check(mma.d, accumulator)

    @pytest.mark.parametrize(
        ("types", "c_type", "c_registers"),
        [
            *(((a, b), "s32", (4, 1, ".s32")) for a in ("s8", "u8") for b in ("s8", "u8")),
            *(((a, b), "f32", (4, 1, ".f32")) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
            *(((a, b), "f16", (2, 2, ".f16x2")) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
        ],
    )
    def test_8_bit_types(self, types: tuple[str, str], c_type: str, c_registers: tuple[int, int, str]) -> None:
        """A: four .b32 of four elements; B: two .b32 of four; C and D: four .s32 or .f32, or two .f16x2."""
        a, b = types
        mma = wf.get(f"mma.sync.aligned.m16n8k32.row.col.{c_type}.{a}.{b}.{c_type}")
        assert [str(x.format) for x in (mma.a, mma.b, mma.c, mma.d)] == [a, b, c_type, c_type]
        assert registers(mma.a) == (4, 4, ".b32")
        assert registers(mma.b) == (2, 4, ".b32")
        assert registers(mma.c) == registers(mma.d) == c_registers
        check(mma.a, self.a_of_bytes)
        check(mma.b, self.b_of_bytes)
        check(mma.c, accumulator)
        check(mma.d, accumulator)

    @pytest.mark.parametrize("a", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
    @pytest.mark.parametrize("b", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
    @pytest.mark.parametrize("kind", ["f8f6f4", "mxf8f6f4"])
    def test_8_6_and_4_bit_floats_in_bytes(self, a: str, b: str, kind: str) -> None:
        """The same fragments as for 8-bit types: e3m2 and e2m3 in bits 5..0 of their byte, e2m1 in bits 5..2."""
        words = "kind::f8f6f4" if kind == "f8f6f4" else "kind::mxf8f6f4.block_scale.scale_vec::1X"
        scale = "" if kind == "f8f6f4" else ".ue8m0"
        mma = wf.get(f"mma.sync.aligned.m16n8k32.row.col.{words}.f32.{a}.{b}.f32{scale}")
        shift = {"e2m1": 2}
        assert registers(mma.a) == (4, 4, ".b32")
        assert registers(mma.b) == (2, 4, ".b32")
        assert registers(mma.c) == registers(mma.d) == (4, 1, ".f32")
        check_formula(mma.a, self.a_of_bytes)
        check_formula(mma.b, self.b_of_bytes)
        check_order(mma.a, self.a_of_bytes, container=8, shift=shift.get(a, 0))
        check_order(mma.b, self.b_of_bytes, container=8, shift=shift.get(b, 0))
        check(mma.d, accumulator)

    @staticmethod
    def a_of_bytes(g: int, t: int, i: int) -> tuple[int, int]:
        """a_i: row g for i in 0..3 and 8..11, else g + 8; columns 4t + (i & 3), and 16 more from i = 8."""
        row = g if 0 <= i < 4 or 8 <= i < 12 else g + 8
        return row, 4 * t + (i & 3) + (16 if i >= 8 else 0)

    @staticmethod
    def b_of_bytes(g: int, t: int, i: int) -> tuple[int, int]:
        """b_i: rows 4t + (i & 3), and 16 more from i = 4; column g."""
        return 4 * t + (i & 3) + (16 if i >= 4 else 0), g


class TestSparseMmaM16n8k64With8BitTypes:
    """PTX ISA, "Matrix Fragments for sparse mma.m16n8k64 with .u8/.s8/.e4m3/.e5m2 type", and its metadata."""

    NAMES = (
        *(f"{{op}}.sync.aligned.m16n8k64.row.col.s32.{a}.{b}.s32" for a in ("s8", "u8") for b in ("s8", "u8")),
        *(f"{{op}}.sync.aligned.m16n8k64.row.col.f32.{a}.{b}.f32" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    )

    @staticmethod
    def stored(g: int, t: int, i: int) -> tuple[int, int]:
        """Stored element a_i: four of each register, 32 stored columns."""
        row = g if 0 <= i < 4 or 8 <= i < 12 else g + 8
        return row, 4 * t + (i & 3) + (16 if i >= 8 else 0)

    @staticmethod
    def place(row: int, chunk: int) -> tuple[int, int]:
        """Lane and lowest bit of a metadata field: row g in the even lane, row g + 8 in the odd one; then K."""
        return 4 * (row % 8) + 2 * (chunk // 8) + row // 8, 4 * (chunk % 8)

    @pytest.mark.parametrize("op", ["mma.sp", "mma.sp::ordered_metadata"])
    @pytest.mark.parametrize("name", NAMES)
    def test_fragments(self, name: str, op: str) -> None:
        """A: four .b32 of four stored elements, each register a range of eight columns; B: four .b32; C and D."""
        sp = wf.get(name.format(op=op))
        kind = ".s32" if ".s32." in name else ".f32"
        assert tuple(sp.shape) == (16, 8, 64)
        assert [tuple(x.shape) for x in (sp.a, sp.b, sp.c, sp.d)] == [(16, 32), (64, 8), (16, 8), (16, 8)]
        assert registers(sp.a) == (4, 4, ".b32")
        assert registers(sp.b) == (4, 4, ".b32")
        assert registers(sp.c) == registers(sp.d) == (4, 1, kind)
        check(sp.a, self.stored)
        check(sp.b, lambda g, t, i: (4 * t + (i & 3) + 16 * (i // 4), g))
        check(sp.c, accumulator)
        check(sp.d, accumulator)

    @pytest.mark.parametrize("op", ["mma.sp", "mma.sp::ordered_metadata"])
    @pytest.mark.parametrize("name", NAMES)
    def test_column_ranges_of_a(self, name: str, op: str) -> None:
        """Register r covers row g (even r) or g + 8 (odd r), columns 8t .. 8t+7, and 32 more for r = 2 and 3."""
        sp = wf.get(name.format(op=op))
        for lane in range(32):
            g, t = lane >> 2, lane & 3
            for r in range(4):
                first = 8 * t + (32 if r >= 2 else 0)
                assert sp.a.span(lane=lane, reg=r) == (g if r % 2 == 0 else g + 8, first, first + 7)

    @pytest.mark.parametrize("op", ["mma.sp", "mma.sp::ordered_metadata"])
    @pytest.mark.parametrize("name", NAMES)
    def test_metadata(self, name: str, op: str) -> None:
        """Selector 0 only; sixteen 4-bit fields per row; the examples; the word of each lane."""
        sp = wf.get(name.format(op=op))
        assert tuple(sp.selectors) == (0,)
        for selector in (1, 2, 3):
            with pytest.raises(wf.errors.IllegalInstruction):
                wf.get(name.format(op=op), selector=selector)
        assert sp.metadata.ptx_type == ".b32"
        assert sp.metadata.where(row=0, chunk=60 // 4, selector=0) == (2, 28)
        assert sp.metadata.where(row=13, chunk=28 // 4, selector=0) == (21, 28)
        codes = np.random.default_rng(64).choice(np.array([4, 8, 9, 12, 13, 14], np.uint8), (16, 16))
        expected = [0] * 32
        for row in range(16):
            for chunk in range(16):
                lane, bit = self.place(row, chunk)
                assert sp.metadata.where(row=row, chunk=chunk, selector=0) == (lane, bit)
                assert sp.metadata.at(lane=lane, bit=bit, selector=0) == (row, chunk)
                expected[lane] |= int(codes[row, chunk]) << bit
        words = sp.metadata.pack(codes, selector=0)
        assert (words.dtype, words.tolist()) == (np.dtype(np.uint32), expected)  # all 32 words are full
        assert np.array_equal(sp.metadata.unpack(words, selector=0), codes)

    def test_ordered_forms_with_kinds(self) -> None:
        """The same fragments and metadata for .kind::f8f6f4, with 6- and 4-bit types in bytes."""
        for a, shift in (("e4m3", 0), ("e3m2", 0), ("e2m3", 0), ("e2m1", 2)):
            name = f"mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.{a}.e5m2.f32"
            sp = wf.get(name)
            assert registers(sp.a) == (4, 4, ".b32")
            check_formula(sp.a, self.stored)
            check_order(sp.a, self.stored, container=8, shift=shift)
            assert sp.metadata.where(row=13, chunk=7, selector=0) == self.place(13, 7) == (21, 28)


class TestMmaM8n8k4:
    """PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type" and "... with .f64 ...".

    The f16 form is four products at once; product p is done by lanes 4p..4p+3 and 16+4p..16+4p+3.
    """

    @pytest.mark.parametrize("blayout", ["row", "col"])
    @pytest.mark.parametrize("alayout", ["row", "col"])
    @pytest.mark.parametrize(("d_type", "c_type"), [("f16", "f16"), ("f32", "f16"), ("f32", "f32")])
    def test_f16(self, alayout: str, blayout: str, d_type: str, c_type: str) -> None:
        """A and B: two .f16x2; C and D: four .f16x2 or eight .f32; all four layout pairs, D f32 with C f16 too."""
        mma = wf.get(f"mma.sync.aligned.m8n8k4.{alayout}.{blayout}.{d_type}.f16.f16.{c_type}")
        assert tuple(mma.shape) == (8, 8, 4)
        assert [tuple(x.shape) for x in (mma.a, mma.b, mma.c, mma.d)] == [(4, 8, 4), (4, 4, 8), (4, 8, 8), (4, 8, 8)]
        assert registers(mma.a) == registers(mma.b) == (2, 2, ".f16x2")
        assert registers(mma.c) == ((4, 2, ".f16x2") if c_type == "f16" else (8, 1, ".f32"))
        assert registers(mma.d) == ((4, 2, ".f16x2") if d_type == "f16" else (8, 1, ".f32"))
        check(mma.a, self.a_row if alayout == "row" else self.a_col)
        check(mma.b, self.b_row if blayout == "row" else self.b_col)
        check(mma.c, self.c_f16 if c_type == "f16" else self.c_f32)
        check(mma.d, self.c_f16 if d_type == "f16" else self.c_f32)

    @pytest.mark.parametrize("rounding", ["", ".rn", ".rz", ".rm", ".rp"])
    def test_f64(self, rounding: str) -> None:
        """A and B: one .f64; C and D: two .f64; one product, not four; low word of a register first."""
        mma = wf.get(f"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64{rounding}")
        assert tuple(mma.shape) == (8, 8, 4)
        assert [tuple(x.shape) for x in (mma.a, mma.b, mma.c, mma.d)] == [(8, 4), (4, 8), (8, 8), (8, 8)]
        assert registers(mma.a) == registers(mma.b) == (1, 1, ".f64")
        assert registers(mma.c) == registers(mma.d) == (2, 1, ".f64")
        assert [x.words for x in (mma.a, mma.b, mma.c, mma.d)] == [2, 2, 4, 4]
        check(mma.a, lambda g, t, i: (g, t))
        check(mma.b, lambda g, t, i: (t, g))
        check(mma.c, lambda g, t, i: (g, 2 * t + i))
        check(mma.d, lambda g, t, i: (g, 2 * t + i))
        codes = np.full((8, 4), 0x0123456789ABCDEF, np.uint64)
        assert mma.a.pack(codes, raw=True)[0].tolist() == [0x89ABCDEF, 0x01234567]

    @pytest.mark.parametrize("c_type", ["f16", "f32"])
    def test_lanes_of_each_product(self, c_type: str) -> None:
        """Threads 0-3 and 16-19 do the first product, 4-7 and 20-23 the second, and so on."""
        mma = wf.get(f"mma.sync.aligned.m8n8k4.row.col.{c_type}.f16.f16.{c_type}")
        for product, lanes in enumerate(([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15])):
            for operand in (mma.a, mma.b, mma.c, mma.d):
                held = {lane for lane in range(32) if operand.layout.at(lane=lane, reg=0, slot=0).mma == product}
                assert held == {*lanes, *(lane + 16 for lane in lanes)}

    # In these, lane = 4 * g + t: q = t is the lane's place in its group of four, and lanes from 16 on have g >= 4.
    @staticmethod
    def a_row(g: int, t: int, i: int) -> tuple[int, int, int]:
        """Row lane % 4, and 4 more for the upper lanes; column i."""
        return g % 4, t + 4 * (g >= 4), i

    @staticmethod
    def a_col(g: int, t: int, i: int) -> tuple[int, int, int]:
        """Row i, and 4 more for the upper lanes; column lane % 4."""
        return g % 4, i + 4 * (g >= 4), t

    @staticmethod
    def b_row(g: int, t: int, i: int) -> tuple[int, int, int]:
        """Row lane % 4; column i, and 4 more for the upper lanes."""
        return g % 4, t, i + 4 * (g >= 4)

    @staticmethod
    def b_col(g: int, t: int, i: int) -> tuple[int, int, int]:
        """Row i; column lane % 4, and 4 more for the upper lanes."""
        return g % 4, i, t + 4 * (g >= 4)

    @staticmethod
    def c_f16(g: int, t: int, i: int) -> tuple[int, int, int]:
        """Row lane % 4, and 4 more for the upper lanes; column i."""
        return g % 4, t + 4 * (g >= 4), i

    @staticmethod
    def c_f32(g: int, t: int, i: int) -> tuple[int, int, int]:
        """Row X or X + 4 with X = (lane & 1) + (i & 2); column (i & 4) + (lane & 2) + (i & 1)."""
        lane = 4 * g + t
        x = (lane & 1) + (i & 2)
        return g % 4, (x if lane < 16 else x + 4), (i & 4) + (lane & 2) + (i & 1)


class TestMmaM8n8k128:
    """PTX ISA, "Matrix Fragments for mma.m8n8k128"."""

    @pytest.mark.parametrize("operation", ["xor", "and"])
    def test_b1(self, operation: str) -> None:
        """A and B: one .b32 of 32 single bits, bit i is element i; C and D: two .s32."""
        mma = wf.get(f"mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.{operation}.popc")
        assert tuple(mma.shape) == (8, 8, 128)
        assert [tuple(x.shape) for x in (mma.a, mma.b, mma.c, mma.d)] == [(8, 128), (128, 8), (8, 8), (8, 8)]
        assert [str(x.format) for x in (mma.a, mma.b, mma.c, mma.d)] == ["b1", "b1", "s32", "s32"]
        assert registers(mma.a) == registers(mma.b) == (1, 32, ".b32")
        assert registers(mma.c) == registers(mma.d) == (2, 1, ".s32")
        check(mma.a, lambda g, t, i: (g, 32 * t + i))
        check(mma.b, lambda g, t, i: (32 * t + i, g))
        check(mma.c, lambda g, t, i: (g, 2 * t + i))
        check(mma.d, lambda g, t, i: (g, 2 * t + i))

    def test_one_bit(self) -> None:
        """A single one at row 5, column 93 of A is bit 29 of lane 22; in B, row 93 of column 5 is the same."""
        mma = wf.get("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc")
        a = np.zeros((8, 128), np.bool_)
        a[5, 93] = True
        expected = [1 << 29 if lane == 22 else 0 for lane in range(32)]
        assert mma.a.pack(a)[:, 0].tolist() == expected
        assert mma.b.pack(a.T)[:, 0].tolist() == expected

    @pytest.mark.parametrize(("operation", "since"), [("xor", "sm_75"), ("and", "sm_80")])
    def test_targets(self, operation: str, since: str) -> None:
        """.xor from sm_75, .and from sm_80."""
        name = f"mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.{operation}.popc"
        assert wf.get(name, arch=since).name == name
        before = {"sm_75": "sm_70", "sm_80": "sm_75"}[since]
        with pytest.raises(wf.errors.IllegalInstruction, match=before):
            wf.get(name, arch=before)


class TestWmmaApi:
    """PTX ISA, "Matrix Fragments for WMMA", and CUDA C++ guide, "Element Types and Matrix Sizes".

    shape -> registers of A and B per lane, and elements (CUDA's num_elements) of A, B and the accumulator.
    """

    # type of A and B -> shape -> ((A registers, B registers), (elements of A, of B, of the accumulator))
    FRAGMENTS = {  # noqa: RUF012 (a table of the document)
        "f16": {
            "m16n16k16": ((8, 8), (16, 16, 8)),
            "m32n8k16": ((8, 8), (16, 16, 8)),
            "m8n32k16": ((8, 8), (16, 16, 8)),
        },
        "bf16": {
            "m16n16k16": ((4, 4), (8, 8, 8)),
            "m32n8k16": ((8, 2), (16, 4, 8)),
            "m8n32k16": ((2, 8), (4, 16, 8)),
        },
        "s8": {
            "m16n16k16": ((2, 2), (8, 8, 8)),
            "m32n8k16": ((4, 1), (16, 4, 8)),
            "m8n32k16": ((1, 4), (4, 16, 8)),
        },
        "u8": {
            "m16n16k16": ((2, 2), (8, 8, 8)),
            "m32n8k16": ((4, 1), (16, 4, 8)),
            "m8n32k16": ((1, 4), (4, 16, 8)),
        },
        "tf32": {"m16n16k8": ((4, 4), (4, 4, 8))},
        "f64": {"m8n8k4": ((1, 1), (1, 1, 2))},
        "s4": {"m8n8k32": ((1, 1), (8, 8, 2))},
        "u4": {"m8n8k32": ((1, 1), (8, 8, 2))},
        "b1": {"m8n8k128": ((1, 1), (32, 32, 2))},
    }
    CASES = tuple((kind, shape) for kind, shapes in FRAGMENTS.items() for shape in shapes)
    # type of A and B -> types of C and D, with the registers of one lane
    ACCUMULATORS = {  # noqa: RUF012 (a table of the document)
        "f16": {"f16": (4, 2, ".f16x2"), "f32": (8, 1, ".f32")},
        "bf16": {"f32": (8, 1, ".f32")},
        "tf32": {"f32": (8, 1, ".f32")},
        "s8": {"s32": (8, 1, ".s32")},
        "u8": {"s32": (8, 1, ".s32")},
        "f64": {"f64": (2, 1, ".f64")},
        "s4": {"s32": (2, 1, ".s32")},
        "u4": {"s32": (2, 1, ".s32")},
        "b1": {"s32": (2, 1, ".s32")},
    }

    @staticmethod
    def layouts(kind: str) -> list[tuple[str, str]]:
        """Sub-byte types take A row-major and B column-major only; all others take all four pairs."""
        if kind in ("s4", "u4", "b1"):
            return [("row", "col")]
        return [(a, b) for a in ("row", "col") for b in ("row", "col")]

    @staticmethod
    def mma_name(kind: str, shape: str, layouts: tuple[str, str], d: str, c: str) -> str:
        """Return the name of wmma.mma: f16 has the types of D and C only, b1 starts with its operation."""
        head = "wmma.mma.xor.popc" if kind == "b1" else "wmma.mma"
        types = f"{d}.{c}" if kind == "f16" else f"{d}.{kind}.{kind}.{c}"
        return f"{head}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types}"

    def expected(self, kind: str, shape: str) -> dict[str, tuple[int, int, str]]:
        """Registers of A and B."""
        (a, b), (a_elements, b_elements, _) = self.FRAGMENTS[kind][shape]
        ptx_type = {"f16": ".f16x2", "f64": ".f64"}.get(kind, ".b32")
        return {"a": (a, a_elements // a, ptx_type), "b": (b, b_elements // b, ptx_type)}

    @pytest.mark.parametrize(("kind", "shape"), CASES)
    def test_mma(self, kind: str, shape: str) -> None:
        """Registers and elements of A, B, C and D of wmma.mma, for every layout pair and accumulator pair."""
        accumulators = self.ACCUMULATORS[kind]
        ab = self.expected(kind, shape)
        for layouts in self.layouts(kind):
            for d, d_registers in accumulators.items():
                for c, c_registers in accumulators.items():
                    mma = wf.get(self.mma_name(kind, shape, layouts, d, c))
                    assert f"m{mma.shape[0]}n{mma.shape[1]}k{mma.shape[2]}" == shape
                    assert (registers(mma.a), registers(mma.b)) == (ab["a"], ab["b"])
                    assert (registers(mma.c), registers(mma.d)) == (c_registers, d_registers)
                    elements = [x.regs * x.slots for x in (mma.a, mma.b, mma.c)]
                    assert tuple(elements) == self.FRAGMENTS[kind][shape][1]

    @pytest.mark.parametrize(("kind", "shape"), CASES)
    def test_load_and_store(self, kind: str, shape: str) -> None:
        """wmma.load.a, .b, .c and wmma.store.d move the same fragments, row- and column-major alike."""
        ab = self.expected(kind, shape)
        for a_layout, b_layout in self.layouts(kind):
            for operand, layout in (("a", a_layout), ("b", b_layout)):
                load = wf.get(f"wmma.load.{operand}.sync.aligned.{layout}.{shape}.global.{kind}")
                assert registers(getattr(load, operand)) == ab[operand]
        for c, c_registers in self.ACCUMULATORS[kind].items():
            for layout in ("row", "col"):
                load = wf.get(f"wmma.load.c.sync.aligned.{layout}.{shape}.global.{c}")
                store = wf.get(f"wmma.store.d.sync.aligned.{layout}.{shape}.global.{c}")
                assert registers(load.c) == registers(store.d) == c_registers
                assert load.c.layout == store.d.layout

    @pytest.mark.parametrize(("kind", "shape"), CASES)
    def test_sub_byte_types_are_row_col_only(self, kind: str, shape: str) -> None:
        """s4, u4 and b1 refuse the other three layout pairs; every other type takes all four."""
        d = next(iter(self.ACCUMULATORS[kind]))
        for layouts in [(a, b) for a in ("row", "col") for b in ("row", "col")]:
            name = self.mma_name(kind, shape, layouts, d, d)
            if layouts in self.layouts(kind):
                assert wf.get(name).name == name
            else:
                with pytest.raises(wf.errors.IllegalInstruction):
                    wf.get(name)

    @pytest.mark.parametrize(("kind", "shape"), CASES)
    def test_element_order(self, kind: str, shape: str) -> None:
        """Element i of a fragment sits at the bits of register i / slots its format's width says, low bits first."""
        (c_type, *_) = self.ACCUMULATORS[kind]
        mma = wf.get(self.mma_name(kind, shape, ("row", "col"), c_type, c_type))
        for operand in (mma.a, mma.b, mma.c, mma.d):

            def measured(g: int, t: int, i: int, operand: Any = operand) -> tuple[int, ...]:
                reg, slot = divmod(i, operand.slots)
                return tuple(operand.layout.at(lane=4 * g + t, reg=reg, slot=slot))

            check_order(operand, measured)

    def test_f16_fragments_hold_copies(self) -> None:
        """16 halves per lane in every shape: twice the elements of a 16 x 16 tile, four times those of an 8 x 16."""
        for shape, copies in (("m16n16k16", (2, 2)), ("m32n8k16", (1, 4)), ("m8n32k16", (4, 1))):
            mma = wf.get(f"wmma.mma.sync.aligned.row.col.{shape}.f32.f32")
            for operand, count in zip((mma.a, mma.b), copies, strict=True):
                assert 32 * operand.regs * operand.slots == count * operand.shape[0] * operand.shape[1]
                assert len(operand.layout.where(row=3, col=5)) == count
