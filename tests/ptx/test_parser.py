"""Reading PTX: compiler output, hand-written inline asm, and text that is not PTX."""

import random
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.ir.program import ModuleVariable
from warpfrag.ptx.lowering.call_graph import statements
from warpfrag.ptx.lowering.passes import lower
from warpfrag.ptx.reader.lexer import tokens
from warpfrag.ptx.reader.parser import Parser, parse
from warpfrag.ptx.reader.syntax import (
    Address,
    ArgumentList,
    BracedList,
    FloatLiteral,
    IntegerLiteral,
    ResultPair,
    SymbolRef,
)

DATA = Path(__file__).parent.parent / "data" / "ptx"
FILES = sorted(DATA.glob("*.ptx"))
HEAD = ".version 8.7\n.target sm_90a, debug\n.address_size 64\n"
EVERYTHING = (
    HEAD
    + """
# 1 "preprocessed.cu"
.file 1 "a.cu", 1234, 56
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .func noresult(.reg .b32 %given) ;
.weak .global .align 16 .b8 text[8] = {72, 0x69, 0b1, 017, -1};
.global .u64 pointers[2] = {generic(text)+4, text};
.const .align 8 .f64 pi = 0d400921FB54442D18;
.visible .global .attribute(.managed) .f32 both[2][2] = {{1.5, 2.0}, {-0f3F800000, 1e3}};
.extern .shared .align 128 .b8 dynamic[];
.shared .v4 .f32 vector;
/* a comment
   of two lines */
.visible .entry kernel(
    .param .align 8 .b8 blob[24],
    .param .u64 .ptr .global .align 16 pointer, .param .f32 scale
)
.maxntid 128, 1, 1
.minnctapersm 2
.pragma "nounroll";
{
    .reg .pred %p<3>, q;
    .reg .b32 %r<10>, t;
    .reg .b64 %rd<3>; .reg .f32 %f1;
    .loc 1 2 3, function_name $L__tmp1+2, inlined_at 1 2 3
$L__tmp1:
    @!%p1 bra.uni DONE;
    { .reg .b32 t; .reg .pred q;
    AGAIN: add.s32 t, %r1, (1+2)*4-WARP_SZ;  setp.lt.and.s32 %p1|q, t, -7, !%p2; @q bra AGAIN; }
    { AGAIN: bra AGAIN2; AGAIN2: }
    mov.b64 {%r1, _}, %rd1;
    ld.global.v2.u32 {%r2, %r3}, [%rd1+-16];
    st.shared.b32 [dynamic + 4], 0f3F800000;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
    call.uni (%r5), vprintf, (%rd1, %rd2);
    mov.u32 %r6, %tid.x;
    .pragma "something else";
DONE:
    ret;
}
.section .debug_info { .b8 1, 2 .b32 .debug_abbrev }
"""
)


@pytest.mark.one_engine
def test_a_module_with_everything():
    source = parse(EVERYTHING)
    kernel = source.functions[-1]

    assert (source.version, source.target, source.address_size) == ((8, 7), "sm_90a", 64)
    assert [function.name for function in source.functions] == ["vprintf", "noresult", "kernel"]
    assert kernel.directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,)}
    assert [(one.name, one.type, one.align, one.dims, one.pointer) for one in kernel.parameters] == [
        ("blob", "b8", 8, (24,), False), ("pointer", "u64", 0, None, True), ("scale", "f32", 0, None, False),
    ]  # fmt: skip
    text, pointers, pi, both, dynamic, vector = source.variables
    assert text.initial == (
        IntegerLiteral(72),
        IntegerLiteral(0x69),
        IntegerLiteral(1),
        IntegerLiteral(15),
        IntegerLiteral(-1),
    )
    assert pointers.initial == (SymbolRef("text", 4), SymbolRef("text"))
    assert pi.initial == (FloatLiteral(0x400921FB54442D18, 64),)
    assert both.initial[2] == FloatLiteral(0xBF800000, 32)
    assert (dynamic.dims, dynamic.linkage, vector.vector) == ((0,), "extern", 4)
    found = {one.opcode: one for one in statements(kernel.body)}
    assert found["bra.uni"].guard == SymbolRef("%p1")
    assert found["bra.uni"].negated
    assert found["add.s32"].operands[2] == IntegerLiteral(3 * 4 - 32)
    assert found["setp.lt.and.s32"].operands[0] == ResultPair(SymbolRef("%p1"), SymbolRef("q"))
    assert found["ld.global.v2.u32"].operands[1] == Address(SymbolRef("%rd1", -16))
    assert found["call.uni"].operands == (
        ArgumentList((SymbolRef("%r5"),)),
        SymbolRef("vprintf"),
        ArgumentList((SymbolRef("%rd1"), SymbolRef("%rd2"))),
    )
    bulk = next(one for name, one in found.items() if name.startswith("cp.async.bulk"))
    assert bulk.operands[1] == Address(SymbolRef("%rd1"), (BracedList((SymbolRef("%r2"), SymbolRef("%r3"))),))
    assert bulk.line == EVERYTHING[: EVERYTHING.index("cp.async.bulk")].count("\n") + 1


FEATURES = (
    HEAD
    + """
.common .global .align 4 .b32 common;
.visible .global .align 8 .b64 counted[] = {1, 2, 3};
.global .align 8 .u8 pieces[3] = {0xFF(counted), 0xFF00(generic(counted)+256), 7};
.global .texref texture;
.global .samplerref sampler = {addr_mode_0 = clamp_to_edge, filter_mode = linear};
.extern .const .align 4 .b32 elsewhere;
.func (.param .b32 r) base(.param .b32 x) { .reg .b32 a; ld.param.b32 a, [x]; st.param.b32 [r], a; ret; }
.alias other, base;
.func dead(.param .b64 p) .noreturn;
.visible .func (.param .align 16 .b8 r[16]) big(.param .align 8 .b8 x[24]) { st.param.v2.b64 [r], {1, 2}; ret; }
.weak .entry k(.param .u64 out)
.reqnctapercluster 2, 1, 1
.explicitcluster
.blocksareclusters
.maxnreg 64
{
    .reg .b32 %r<8>; .reg .pred %p<3>; .reg .b64 %rd<4>; .reg .b128 %q; .reg .f32 %f<9>;
    ld.param.u64 %rd1, [out];
    { LBL: mov.u32 %r1, 0; setp.eq.u32 %p1|_, %r1, 1; @%p1 bra LBL; }
    { LBL: mov.u32 %r2, 0; setp.eq.u32 _|%p1, %r2, 1; @!%p1 bra NEXT; NEXT: }
    mov.u32 %r3, 1;
    TS: .branchtargets A, B;
    brx.idx.uni %r3, TS;
A: mov.b32 %r4, 100;
B: ld.global.v8.f32 {%f0, _, %f2, %f3, _, _, %f6, %f7}, [%rd1];
    { .param .b32 p; .param .b32 r; st.param.b32 [p], 5; call.uni (r), other, (p); ld.param.b32 %r5, [r]; }
    mov.b32 %r6, pieces; add.u32 %r5, %r5, %r4;
    st.global.f32 [%rd1], %f7; st.global.u32 [%rd1+4], %r5;
    ret;
}
"""
)


def test_rare_directives_are_read_and_the_kernel_runs():
    program = lower(parse(FEATURES), "k")
    address = program.variables["counted"].address
    out = np.arange(8, dtype=np.float32)
    wf.ptx.load(FEATURES)["k"].launch(2, 1, [out])

    assert program.variables["counted"] == ModuleVariable(address, 24, "global", "b64", (3,), np.arange(1, 4).tobytes())
    assert [*program.variables["pieces"].initial] == [address & 255, (address + 256 >> 8) & 255, 7]
    assert program.directives["explicitcluster"] == ()
    assert program.directives["reqnctapercluster"] == (2, 1, 1)
    assert (out[0], out.view(np.uint32)[1]) == (7, 5)


@pytest.mark.one_engine
def test_variables_start_with_their_values():
    program = lower(parse(EVERYTHING), "kernel")
    pointers = program.variables["pointers"]

    assert pointers.address % 8 == 0
    assert int.from_bytes(pointers.initial[:8], "little") == program.variables["text"].address + 4
    assert program.variables["both"].initial == np.array([1.5, 2.0, -1.0, 1000.0], np.float32).tobytes()
    assert [one.offset for one in program.parameters] == [0, 24, 32]
    assert program.parameter_bytes == 36


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 2: expected '.version', got the end"),
        (".version 5.0\n.target sm_50", "line 1: expected PTX 6.0 to 9.4, got 5.0"),
        (".version x", "expected a version"),
        (".version 8.0\n", "expected a .target"),
        (f"{HEAD}.visible .entry k(", "line 4: expected a .param, got the end"),
        (f"{HEAD}.visible .entry k()\n{{ add.s32 %r1 %r2; }}", "line 5: expected ';', got '%r2'"),
        (f"{HEAD}.entry k() {{ .reg .b32 ; }}", "the name of a .reg"),
        (f"{HEAD}.entry k() {{ .reg .b32 %r<99999999>; }}", "up to 1048576 registers in .reg, got 99999999"),
        (f"{HEAD}.global .b32 x = {{ 1", "expected '}'"),
        (f"{HEAD}.entry k() {{ ld.u32 %r1, [%rd1; }}", "expected ']'"),
        (f"{HEAD}\x00", "expected PTX, got the character"),
        (f"{HEAD}{'{' * 100}", "expected a module directive"),
        (f"{HEAD}.entry k() {'{' * 100}", "at most 64 nested braces"),
        (".version 8.0\n.target sm_80\n.address_size 16\n", "expected .address_size 32 or 64, got 16"),
    ],
)
def test_what_is_no_ptx_is_refused_with_its_line(text, message):
    with pytest.raises(wf.WarpfragError, match=message):
        wf.ptx.load(text or " \n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.s32 %r1, %r2, %r3;", "line 5: expected a declared name, got '%r1'"),
        (".reg .b32 %r<4>; add.s32 %r1, %r2;", "expected a result and 2 sources for add.s32"),
        (".reg .b32 %r<4>; @%r1 ret;", "expected a predicate after @, got %r1"),
        ("bra NOWHERE;", "expected a label, got 'NOWHERE'"),
        ("A: A: ret;", "duplicate label A"),
        (".reg .b99 %x;", "the type of a register, got .b99"),
        (".reg .b32 %r<4>; lop3.b32 %r1, %r2, %r3, %r1, %r2;", "expected a constant"),
        (".reg .b32 %r<4>; add.s32 5, %r2, %r3;", "expected a register as the result"),
    ],
)
def test_what_cannot_be_decoded_is_refused_with_its_line(body, message):
    with pytest.raises(wf.WarpfragError, match=message):
        wf.ptx.load(f"{HEAD}.entry k()\n{{ {body} }}")["k"].launch(1, 32)


@pytest.mark.one_engine
def test_every_name_of_a_kernel_is_found():
    assert len(FILES) >= 10
    for file in FILES:
        module = wf.ptx.load(file)
        assert [*module]
        assert all(module[name].program.instructions for name in module)


def written():
    """Return the PTX of stored kernels by name: a few of those in the archive."""
    yield from ((file.stem, file.read_text(encoding="utf-8")) for file in FILES)
    with zipfile.ZipFile(DATA / "kernels.zip") as kernels:
        for name in ("hopper", "matrix", "t_att_90", "t_sort_80", "t_mm_fp8_90"):
            yield name, kernels.read(f"{name}.ptx").decode()


@pytest.mark.slow
@pytest.mark.one_engine
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in written()])
def test_reading_agrees_with_pyptx(text):
    oracle = pytest.importorskip("pyptx.parser", reason="pyptx is not installed")
    ours = [one.opcode.split(".", maxsplit=1)[0] for function in parse(text).functions if function.body is not None
            for one in statements(function.body)]  # fmt: skip

    assert ours == re.findall(r"opcode='(\w+)'", repr(oracle.parse(text)))


def mutated(text, source):
    """Return a text with some characters, words and lines changed, deleted or duplicated."""
    for _ in range(source.randint(1, 4)):
        start = source.randrange(len(text))
        length = source.choice([1, 2, 8, 40, 300])
        other = source.randrange(len(text))
        piece = source.choice(
            ["", text[other : other + length], source.choice("{}[]();,.:@!%|<>=+-09fx$\n"), "99999999999"]
        )
        text = text[:start] + piece + text[start + source.choice([0, 1, length]) :]
    return text


@pytest.mark.parametrize("seed", range(40))
def test_mutated_files_are_read_or_refused(seed):
    source = random.Random(seed)
    file = source.choice([one for one in FILES if one.stat().st_size < 9000])
    text = mutated(file.read_text(encoding="utf-8"), source)
    out = np.zeros(4096, np.uint32)
    said = ""
    try:
        module = wf.ptx.load(text + "\n")
        for name in module:
            kernel = module[name]
            args = [out if one.size == 8 else np.zeros(one.size, np.uint8).tobytes() for one in kernel.parameters]
            kernel.launch(1, 128, args, shared=64, options=wf.ptx.LaunchOptions(limit=3000))
    except wf.WarpfragError as error:
        said = str(error)

    assert len(said) <= 2000  # nothing but our own error may come, and it can be read


STATEMENTS = """.version 8.0
.target sm_90
.visible .entry k()
{
	.reg .b32 %r<9>;
	mov.u32 	%r1, 0x1F;  // slow: a comment
	mov.u32 %r1, %tid.x;
$L__BB0_1:
	@!%p1 bra 	$L__BB0_1;
	ld.global.v2.u32 	{%r1, _}, [%rd1+-8];
	mad.lo.s32 %r1, -5, 0f3F800000, WARP_SZ;
	st.shared.u32 	[%r1], -1;
	.loc	1 12 20                         // add.py:12:20
	// a comment; no statement
	@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 16 ];
	shfl.sync.bfly.b32 	%r1|%p1, %r2, 1, 31, -1;
	wgmma.fence.sync.aligned;
	mul.hi.u64 %rd1, %rd1, -3689348814741910323;
	mov.u64 %rd1, 0d3FF0000000000000;
$L__BB0_2:                              // a loop
	bar.sync 	0;
	setp.ne.and.s32 %p1, %r1, 0, !%p1;
$L__BB0_3:
	.branchtargets $L__BB0_1, $L__BB0_2;
$L__BB0_4:
$L__BB0_5:
	{ mov.b32 %r2, 1 + 2;
	add.s32 %r1, %r1,
	%r2; }
	ret;
}
"""


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "mov.u32 %r1, 1 2;\n",
        "mov.u32 %r1, 0f12;\n",
        "@%p1 bra $L__BB0_1\n",
        "mov.u32 %r1, [4;\n",
        "mov.u32 %r1,;\n",
        "mov.u32 {%r1, %r2, %r3;\n",
        "mov.u32 %r1|, %r3;\n",
        "mov.u32 %r1; %r3,\n",
        "mov.u32 %r1 %r3;\n",
        "} $L:\nret;\n{\n",
        "ld.u32 %r1, [%r1+4;\n",
        "ld.u32 %r1, [%r1], {%r2]};\n",
        "mov.u32 %r1, {};\nmov.u32 %r1, }\n",
        "$L: $L\n",
        "}\n.loc 1 2\n$M:\n",
    ],
)
def test_malformed_statements_are_rejected(bad):
    text = STATEMENTS.replace("\tst.", f"\t{bad}\tst.") if bad else STATEMENTS

    assert outcome(text).startswith("ModuleSyntax") == (not bad)


def outcome(text, read=parse):
    """Return everything that was parsed, or the error."""
    try:
        return repr(read(text))
    except wf.errors.PtxError as error:
        return str(error)


def read_at_once(text):
    """Return a module whose bodies are parsed immediately."""
    return Parser(tokens(text)).module()


@pytest.mark.one_engine
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in written()])
def test_bodies_that_compilers_write_are_read_when_asked_for(text):
    bodies = [function.body for function in Parser(tokens(text, whole_bodies=True)).module().functions if function.body]

    assert bodies
    assert all(body._read for body in bodies)
    assert outcome(text) == outcome(text, read_at_once)
    assert not any(body._read for body in bodies if body.items)


BODIES = {
    "": True,
    "L: ret; // }\n": True,
    "{ { ret; } }": True,
    "{" * 20 + "}" * 20: False,
    "{ ret; ": None,
    "ret; } }": None,
    "/* a comment */ ret;": False,
    "add.s32 %r1, WARP_SZ, 1;": True,
    "add.s32 %r1, WARP_SZ+1, 1;": False,
    "ld.u32 %r1, [WARP_SZ];": False,
    "add.s32 %r1, 0x1F, -17;": True,
    "add.s32 %r1, 0xFFFFFFFFFFFFFFFFU, 9999999999999999999;": True,
    "add.s32 %r1, 0x1FFFFFFFFFFFFFFFF, 1;": None,
    "add.s32 %r1, 017, 1;": False,
    "add.s32 %r1, 08, 1;": None,
    "add.s32 %r1, 1+2, 1;": False,
    "add.f64 %d1, 0d3FF0000000000000, 0.5;": True,
    "add.f64 %d1, 1.5.5, 1;": None,
    "setp.eq.s32 %p1|%q, %r1, !%p2;": True,
    "setp.eq.s32 WARP_SZ|%q, %r1, 1;": None,
    "setp.eq.s32 5|%q, %r1, 1;": None,
    "ld.u32 %r1, [%rd1+-8];": True,
    "ld.u32 %r1, [%rd1 + 8U];": True,
    "ld.u32 %r1, [%rd1+8+8];": False,
    "ld.u32 %r1, [{%r1}, %r2];": None,
    "ld.u32 %r1, [%r1, {0, %r2}];": True,
    "ld.u32 %r1, [];": None,
    "mov.b64 %r1, {};": False,
    "mov.b64 {%r1, {%r2}}, %rd1;": False,
    "mov.b64 {%r1, _,}, %rd1;": False,
    "mov.b64 %r1, %r2,;": None,
    "mov.b64 %r1 %r2;": None,
    "mov.b64;": True,
    "@%p1 @%p2 ret;": None,
    "@!%p1 ret;": True,
    "call.uni (r), f, (p, q);": True,
    "call f, (5);": False,
    "mov.u32 %r1, (%r2);": True,
    "mov.u32 %r1, (2);": False,
    "T: .branchtargets A, B;": True,
    ".branchtargets A, B;": None,
    "P: .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]);": True,
    "P: .callprototype (1a);": None,
    "A::b: ret;": False,
    "A : ret;": True,
    ".reg .b32 %r<9>, %t;": True,
    ".reg .b32 %r<1048577>;": None,
    ".reg.pred p;": True,
    ".reg .align %r;": None,
    ".reg .param %r;": None,
    ".reg .v4 .f32 %v;": True,
    ".param .b32 p<4>;": None,
    ".param .align 8 .b8 p[16];": True,
    ".local .align 3 .b8 p[16];": None,
    ".local .align 8 .b8 p[16] = {1};": False,
    ".shared .b32 x[2][2];": False,
    ".loc 1 2 3\nret;": True,
    ".loc 1 2 }\nret;": False,
    ".loc 1 2 ?a `\nret;": None,
    ".loc\t1 2 3, function_name $L+2, inlined_at 1 2 3 // c\nret;": True,
    ".location 1\nret;": None,
    '.pragma "nounroll";': True,
    '.pragma "nounroll"': None,
    ".unknown;": None,
    "# 1 no line\n": None,
    "ret": None,
    "mov.u32 %r1, $;": True,
    "mov.u32 %r1, %;": None,
    "é: ret;": None,
}
"""Bodies, and whether they may wait; None where they are refused."""


@pytest.mark.one_engine
@pytest.mark.parametrize("body", BODIES)
def test_bodies_wait_only_where_they_are_right(body):
    text = f"{HEAD}.entry k()\n{{ {body} }}\n"
    at_once = outcome(text, read_at_once)
    kinds = [token.kind for token in tokens(text, whole_bodies=True)] if BODIES[body] is not None else []

    assert outcome(text) == at_once
    assert at_once.startswith("ModuleSyntax") == (BODIES[body] is not None)
    assert ("body" in kinds) == bool(BODIES[body])


@pytest.mark.one_engine
@pytest.mark.parametrize("seed", range(40))
def test_mutated_files_are_read_alike_at_once_and_later(seed):
    source = random.Random(seed)
    file = source.choice([one for one in FILES if one.stat().st_size < 9000]).read_text(encoding="utf-8")
    texts = [mutated(file, source) for _ in range(10)]

    assert [outcome(text) for text in texts] == [outcome(text, read_at_once) for text in texts]


@pytest.mark.one_engine
@pytest.mark.parametrize(
    "text", [".global .b32 x[2] = {};", ".section .empty {}", '.pragma "a" { ret; } ;', ".file 1 { }"]
)
def test_braces_that_are_no_body(text):
    assert outcome(HEAD + text) == outcome(HEAD + text, read_at_once)
