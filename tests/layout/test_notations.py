"""Layouts to and from the notations of other tools; oracle/test_notations.py checks their meaning in those tools."""

import json
import re
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from oracle import notations as oracle
from oracle.test_notations import OFFSET, THREES, layouts
from random_layouts import random_layouts
from warpfrag.layout import NOTATIONS

READ = [name for name, notation in NOTATIONS.items() if notation.is_read]
A = wf.get("mma.m16n8k16.f32.f16.f16.f32").a.layout
CUTE = "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))"
OPTIONS = {"cute": lambda layout: {"shape": layout.shape, "slots": layout.slots, "dims": layout.dims}}
READ_OTHERWISE = {"numpy": [THREES[1], OFFSET]}
"""Arrays do not say that three is a digit between others, nor that an axis that is missing is reg and not slot."""


@pytest.mark.parametrize("notation", READ)
def test_every_layout_that_is_written_is_read_back(notation):
    written = 0
    for layout, who in layouts().items():
        try:
            text = layout.to(notation)
        except wf.errors.InvalidOperand:
            continue  # oracle/test_notations.py lists those
        options = OPTIONS.get(notation, lambda _: {})(layout)
        if who not in READ_OTHERWISE.get(notation, []):
            assert wf.Layout.read(notation, text, **options) == layout, (who, text)
            written += 1
    assert written > 85


def test_a_layout_in_every_notation():
    assert A.to("cute") == CUTE
    assert A.to("triton") == (
        "#ttg.linear<{register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]],"
        " warp = [], block = []}> // slots = 2"
    )
    assert A.to("mlir") == (
        "affine_map<(lane, reg, slot) -> ((reg mod 2) * 8 + lane floordiv 4,"
        " (reg floordiv 2) * 8 + (lane mod 4) * 2 + slot)>"
    )
    assert A.to("c").splitlines() == [
        "// i = 2 * reg + slot",
        "int row = (i >> 1 & 1) * 8 + (lane >> 2);",
        "int col = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);",
    ]
    assert json.loads(A.to("json"))["ins"]["slot"] == [[2, [0, 1]]]
    matrix = np.arange(256).reshape(16, 16)
    indices = A.to("numpy")
    fragment = matrix[indices["row"], indices["col"]]
    assert (fragment.shape, fragment[5, 2, 1]) == ((32, 4, 2), matrix[A.at(lane=5, reg=2, slot=1)])


@pytest.mark.parametrize(
    "text",
    [
        "((4,8),(2,2,2)):((32,1),(16,8,128))",
        "((4, 8), (2, (2, 2))) : ((32, 1), (16, (8, 128)))",
        "Layout<Shape <Shape < _4,_8>,Shape < _2,_2,  _2>>,\n       Stride<Stride<_32,_1>,Stride<_16,_8,_128>>>",
        "using A = cute::Layout<Shape<Shape<Int<4>,_8>,Shape<_2,_2,_2>>,Stride<Stride<_32,C<1>>,Stride<_16,_8,_128>>>;",
        "((_4{},_8{}),(_2,_2,_2)):((_32,_1),(_16,_8,_128))",
        "(((2,2),(4,2)),(2,1,2,2)):(((32,64),(1,4)),(16,77,8,128))",
        "((4,8),((2,2,2))):((32,1),(16,8,128))",
    ],
)
def test_cute_is_read_as_people_write_it(text):
    assert wf.Layout.read("cute", text, shape=(16, 16), slots=2) == A


def test_a_mode_is_cut_where_a_register_ends():
    layout = wf.Layout.read("cute", "(4,6):(6,1)", shape=(6, 4), slots=3)
    assert layout.ins == {"lane": 4, "reg": 2, "slot": 3}
    assert layout.at(lane=1, reg=1, slot=2) == (5, 1)
    assert wf.Layout.read("cute", layout.to("cute"), shape=(6, 4), slots=3) == layout


def test_triton_is_read_as_people_paste_it():
    lines = """
     - register=1 -> (0, 1)
       register=2 -> (8, 0)
       register=4 -> (0, 8)
     - lane=1 -> (0, 2)
       lane=2 -> (0, 4)
       lane=4 -> (1, 0)
       lane=8 -> (2, 0)
       lane=16 -> (4, 0)
     - warp is a size 1 dimension
     - block is a size 1 dimension
    where out dims are: [dim0 (size 16), dim1 (size 16)]
    """
    bases = (
        "register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []"
    )
    alias = f"#linear = #ttg.linear<{{{bases}}}> // any comment"
    gluon = "gl.DistributedLinearLayout(reg_bases=[[0, 1], [8, 0], [0, 8]], lane_bases=[[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp_bases=[], block_bases=[], shape=[16, 16])"  # noqa: E501 (as it is printed)
    for text in (lines, alias, gluon):
        assert wf.Layout.read("triton", text, slots=2) == A
        assert wf.Layout.read("triton", text).slots == 1


FAULTS = [
    (
        "cute",
        "((_4,_8),(_2 _2)):((_32,_1),(_16,_8))",
        {},
        r"expected ',' or '\)' at character 14 after '\(\(_4,_8\),\(_2 '",
    ),
    ("cute", "((4,8),2", {}, r"expected ',' or '\)' at character 9 .*; got the end"),
    ("cute", "((4,8),x):((32,1),8)", {}, "expected a number at character 8 .*got 'x'"),
    ("cute", "((4,8),2):((32,1),8) o", {}, "expected the end of the text at character 22"),
    ("cute", "((4,8),(2,2)):((32,1),16)", {}, r"strides must be nested like sizes; got 16 for \(2, 2\)"),
    ("cute", "(32):(1)", {}, r"expected two parts, \(threads, values\); got 1"),
    ("cute", "(" * 30, {}, "at most 20 deep"),
    ("cute", "(1234567890,1):(1,1)", {}, "at most 9 digits"),
    ("cute", "(999999999,999):(1,1)", {}, "expected 1 to 1048576 thread-value pairs"),
    ("cute", "((4,8),0):((32,1),0)", {}, "expected 1 to 1048576 thread-value pairs, got 0"),
    ("cute", CUTE, {"shape": None}, r"has no matrix shape; pass it, as in shape=\(16, 8\)"),
    ("cute", CUTE, {"shape": 16}, r"shape must be the extents of the matrix, such as \(16, 8\); got 16"),
    ("cute", CUTE, {"dims": 5}, "expected the names of 2 coordinates"),
    ("triton", A.to("triton"), {"slots": "2"}, "the number of values per register, .* got '2'"),
    ("triton", A.to("triton"), {"shape": (16, 16, 1)}, r"shape must be 2 extents; got \(16, 16, 1\)"),
    ("numpy", {"row": [0, 1]}, {"shape": (2, 2)}, "shape must be 1 extents"),
    ("numpy", {"row": [[0], [1, 2]]}, {}, "got rows of unequal length"),
    ("cute", CUTE, {"shape": (16, 8)}, "reaches element 255, but 16x8 has 128"),
    ("cute", CUTE, {"shape": (16, 32)}, "only 256 of the 512 elements of 16x32 have a place"),
    ("cute", CUTE, {"shape": (16, 0)}, r"the size of shape\[1\] must be an integer in 1"),
    ("cute", CUTE, {"shape": "16x16"}, "shape must be the extents of the matrix"),
    ("cute", CUTE, {"slots": 3}, "cannot divide the values into registers of 3"),
    ("cute", CUTE, {"slots": 16}, "8 values do not fill a register of 16 slots"),
    ("cute", CUTE, {"slots": 0}, "slots, the number of values per register"),
    ("cute", CUTE, {"dims": ("row",)}, "expected the names of 2 coordinates"),
    ("cute", CUTE, {"dims": ("row", "class")}, "expected an index name such as lane or row, got 'class'"),
    ("cute", CUTE, {"shape": (4, 4, 16), "transposed": True}, "only a layout of two coordinates can be transposed"),
    ("cute", "((16,3),1):((1,16),0)", {"shape": (16, 3)}, "cannot divide the threads into warps of 32"),
    ("cute", "((8,4),(2,2)):((1,8),(8,64))", {"shape": (8, 16)}, "two digits of this layout move the same bit"),
    ("cute", "((32),(3)):((1),(32))", {"shape": (16, 6), "slots": 1}, ""),
    ("cute", "((32),(3)):((1),(16))", {"shape": (16, 4), "slots": 1}, "warpfrag cannot represent this layout"),
    ("cute", 7, {}, "expected a string, got 7"),
    ("cute", "(" + " " * 30_000, {}, "at most 20000 characters, got 30001"),
    ("triton", "#ttg.nvidia_mma<{versionMajor = 2}>", {}, "#ttg.nvidia_mma names a family of layouts and has no bases"),
    ("triton", "#ttg.linear<{lanes = [[0]]}>", {}, "expected one of register, lane, .* at character 14"),
    ("triton", "#ttg.linear<{lane = [[0, 1]], lane = []}>", {}, "expected each input only once"),
    ("triton", "#ttg.linear<{lane = [[0, 1], [1]]}>", {}, "one number per coordinate; got bases of 1, 2 numbers"),
    ("triton", "#ttg.linear<{lane = []}>", {}, "got no bases"),
    ("triton", "#ttg.linear<{lane = [[0, 1]], block = [[1, 0]]}>", {}, "block has bases"),
    ("triton", "#ttg.linear<{lane = [[1], [2], [4], [8], [16], [32]]}>", {}, "at most 32 lanes in a warp, got 64"),
    ("triton", "#ttg.linear<{lane = [[1]], warp = [[2]]}>", {}, "1 bases for the lane, but 32 lanes need 5"),
    ("triton", "#ttg.linear<{lane = [[0, 3]]}>", {}, "only 2 of the 4 elements of 1x4 have a place"),
    ("triton", "#ttg.linear<{lane = [[0, 1]]}>", {"shape": (1, 1)}, "the bases reach 1x2, but the shape is 1x1"),
    ("triton", "lane=1 -> (0, 1)\nlane=4 -> (0, 2)", {}, "expected the bits of lane in order, lane=2"),
    ("triton", "hello", {}, "expected #ttg.linear<{...}>, DistributedLinearLayout"),
    (
        "triton",
        A.to("triton"),
        {"transposed": True},
        "read triton: transposed is not an option; it takes shape, slots",
    ),
    ("json", "{", {}, "json: Expecting property name"),
    ("json", "[1]", {}, "json: expected {.*}, got"),
    (
        "json",
        '{"ins": {"lane": [[2, [9]]]}, "outs": {"row": 2}, "start": [0]}',
        {},
        "row has size 2 and cannot be moved by 9",
    ),
    ("json", '{"ins": {"lane": [[2, [1]], [2, [1]]]}, "outs": {"row": 2}, "start": [true]}', {}, "json: expected"),
    ("json", '{"ins": {"lane": [[9999, [0]], [9999, [0]]]}, "outs": {"row": 2}, "start": [0]}', {}, "at most 1048576"),
    ("numpy", {"row": [[0.5]]}, {}, "expected row to be an array of integers"),
    ("numpy", {"row": [0, 3, 3, 3]}, {}, r"not a linear map: {'lane': 3} has \[3\], expected \[0\]"),
    ("numpy", {"row": [0, 1], "col": [0]}, {}, r"must have the same shape; got row \(2,\), col \(1,\)"),
    ("numpy", {"row": [-1, 0]}, {}, "must be at least 0"),
    ("numpy", 3, {}, "expected an index array for each coordinate"),
    ("mlir", "affine_map<>", {}, "mlir can be written but not read: expected one of cute, triton, numpy, json"),
    ("cutlass", CUTE, {}, "no notation 'cutlass': expected one of cute"),
    (None, CUTE, {}, "no notation None"),
]


@pytest.mark.parametrize(("notation", "text", "options", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_named_and_pointed_at(notation, text, options, message):
    if notation == "cute":
        options = {"shape": (16, 16), "slots": 2} | options
    if not message:
        assert wf.Layout.read(notation, text, **options).is_onto
        return
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.Layout.read(notation, text, **options)


def test_what_a_notation_cannot_express_is_said():
    swizzled = wf.Layout.parse({"row": 8, "col": 8}, lane="c2+r1 c4 r1 r2 r4", reg="c1")
    started, back = A.fix(slot=1), A.inverse()
    for layout, notation, reason in [
        (swizzled, "cute", "two digits move the same bit, and strides are added, not xored"),
        (started, "cute", "it does not start at the first element"),
        (started, "triton", "it has a start other than element 0"),
        (back, "cute", "cute maps from threads and values, not from row, col"),
        (A.tiled(col=3), "triton", "it has a size that is not a power of two"),
        (A.fix(reg=0), "triton", "it has elements without a place"),
        (A.tiled(col=3).tiled(col=2), "c", "a digit that is not a bit must be the highest part"),
        (A, "tritonn", "no notation 'tritonn': expected one of cute, triton, mlir, c, numpy, json"),
    ]:
        with pytest.raises(wf.errors.InvalidOperand, match=re.escape(reason)):
            layout.to(notation)
    assert back.to("mlir").startswith("affine_map<(row, col) -> (")
    with pytest.raises(wf.errors.InvalidOperand, match="write mlir: transposed is not an option; it takes no options"):
        A.to("mlir", transposed=True)


def test_layouts_with_warps_keep_them():
    accumulator = wf.Layout.parse({"row": 64, "col": 8}, warp="r16 r32", lane="c2 c4 r1 r2 r4", reg="c1 r8")
    assert accumulator.to("cute") == "((_4,_8,_4),(_2,_2)):((_128,_1,_16),(_64,_8))"
    assert wf.Layout.read("cute", accumulator.to("cute"), shape=(64, 8)) == accumulator
    assert "warp = [[16, 0], [32, 0]]" in accumulator.to("triton")
    assert accumulator.to("mlir").startswith("affine_map<(warp, lane, reg, slot) -> (warp * 16 + (reg floordiv 2) * 8")
    assert "warp * 16" in accumulator.to("c")


def written(layout, notation):
    """Return the layout in a notation, or None if the notation cannot express it."""
    try:
        return layout.to(notation)
    except wf.errors.InvalidOperand:
        return None


@given(random_layouts())
def test_whatever_the_layout_its_texts_mean_it(layout):
    assert wf.Layout.read("json", layout.to("json")) == layout
    texts = {notation: written(layout, notation) for notation in NOTATIONS}
    triton = texts["triton"] and oracle.triton_bases(texts["triton"])
    affine, c = oracle.affine_map(texts["mlir"]), texts["c"] and oracle.c_statements(texts["c"])
    for place in layout.places():
        at, value = layout.at(**place._asdict()), place.slot + layout.slots * place.reg
        assert affine(*place) == at
        assert tuple(texts["numpy"][dim][tuple(place)] for dim in layout.dims) == at
        assert not c or c(lane=place.lane, i=value) == at
        assert not texts["cute"] or oracle.cute_element(texts["cute"], place.lane, value, layout.shape) == at
        assert (
            not triton
            or not any(triton.values())
            or (oracle.triton_element(triton, register=value, lane=place.lane) == at)
        )
    sizes = [*layout.ins.values(), *layout.shape]
    assert (texts["triton"] is not None) == (
        not any(layout.start) and not any(n & (n - 1) for n in sizes) and layout.lanes <= 32
    )
    assert (texts["cute"] is not None) == (layout.is_additive and not any(layout.start) and layout.lanes <= 32)
    if texts["cute"]:
        assert wf.Layout.read("cute", texts["cute"], shape=layout.shape, slots=layout.slots) == layout
    if texts["triton"] and prod(sizes) > 1:
        assert wf.Layout.read("triton", texts["triton"], slots=layout.slots) == layout


TEXTS = {
    "cute": [CUTE, "Layout<Shape<Shape<_4,_8>,_1>,Stride<Stride<_8,_1>,_0>>"],
    "triton": [A.to("triton"), wf.Layout.parse({"row": 8, "col": 8}, lane="c2+r1 c4 r1 r2 r4", reg="c1").to("triton")],
    "json": [A.to("json")],
}
PIECES = st.sampled_from([*"0123456789_,:()[]{}<>= -#/", "lane", "Shape<", "register", "->", "999999999", "\n", "é"])


@given(
    st.sampled_from([(name, text) for name, texts in TEXTS.items() for text in texts]),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3), PIECES), min_size=1, max_size=4),
)
def test_mangled_text_is_read_or_refused(notation_and_text, edits):
    notation, text = notation_and_text
    for at, length, piece in edits:
        at %= len(text) + 1  # noqa: PLW2901
        text = text[:at] + piece + text[at + length :]
    options = {"shape": (16, 16)} if notation == "cute" else {}
    try:
        layout = wf.Layout.read(notation, text, **options)
    except wf.WarpfragError:
        return
    assert layout == wf.Layout.read("json", layout.to("json"))


@given(st.text(max_size=60), st.sampled_from([*TEXTS]))
def test_any_text_is_read_or_refused(text, notation):
    try:
        layout = wf.Layout.read(notation, text, **({"shape": (2, 2)} if notation == "cute" else {}))
    except wf.WarpfragError:
        return
    assert layout.is_onto


def test_every_notation_is_documented():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "notations.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in NOTATIONS if f'.to("{name}")' not in text] == []
    assert [name for name in READ if f'.read("{name}"' not in text] == []
