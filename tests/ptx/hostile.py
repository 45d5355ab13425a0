"""Hostile kernels that no programmer would write, each with minimal PTX around it.

They reach below and beyond memory, misalign, deadlock, recurse without end, call what does not fit, print and allocate
without measure, exit where others wait, nest and repeat, and give instructions operands of every wrong kind. What each
should do is no matter here: it has to end with a WarpfragError or not at all, in both engines alike.
"""

# ruff: noqa: E501 (a kernel is a line)
import random
from functools import cache
from itertools import product
from typing import NamedTuple

from warpfrag.machine.ops.opcode_lookup import ROWS

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
DECLARED = """.reg .b64 %d<12>; .reg .b32 %r<12>; .reg .b16 %h<4>; .reg .pred %p<4>; .reg .f32 %f<4>; .reg .f64 %g<4>;
  .reg .b128 %q; .reg .b8 %b; .reg .v2 .b32 %v;
  .local .align 16 .b8 loc[64]; .shared .align 16 .b8 tile[64];
  ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; setp.eq.u32 %p1, %r0, 3;"""
RANDOM_INSTRUCTIONS = 200


class HostileKernel(NamedTuple):
    """A module and how it is launched."""

    name: str
    text: str
    checks: tuple[str, ...] = ()
    limit: int = 3000


def entry(body: str, before: str = "") -> str:
    """A module with a kernel of this body."""
    return f"{HEAD}{before}\n.visible .entry k(.param .u64 out)\n{{\n  {DECLARED}\n  {body}\n  st.global.u32 [%d0], %r1;\n}}\n"


# --- addresses: of every space, below, beyond and misaligned, with an offset and in a register
PLACES = ("-4", "-8", "-16", "-1", "1", "2", "60", "64", "4096", "0x7FFFFFFFFFFFFFF0", "0x1000000000000", "0xFFFFFFFC")
ACCESSES = {
    "ld": "ld{space}.u32 %r1, {place};",
    "wide": "ld{space}.v4.u32 {{%r1, %r2, %r3, %r4}}, {place};",
    "st": "st{space}.u64 {place}, %d0;",
    "atom": "atom{space}.add.u32 %r1, {place}, 1;",
    "cas": "atom{space}.cas.b64 %d1, {place}, 1, 2;",
    "red": "red{space}.max.s32 {place}, 1;",
}
MATRICES = {
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r1, %r2, %r3, %r4}}, {place};",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x2.shared.b16 {place}, {{%r1, %r2}};",
    "copy": "cp.async.ca.shared.global {place}, [%d0], 16;",
    "source": "cp.async.cg.shared.global [tile], {place}, 16;",
    "mbarrier": "mbarrier.init.shared.b64 {place}, 1;",
    "wmma": "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}}, {place};",
}
SPACES = {".shared": "tile", ".local": "loc", ".global": "%d0", "": "%d0", ".param": "out", ".const": "table"}


def addresses() -> list[tuple[str, str]]:
    """Accesses to wild addresses: from a variable and through a register, generic if no space is written."""
    table = ".const .align 8 .b8 table[16] = {1, 2, 3}; .global .align 8 .b8 vector[16];"
    cases = []
    for number, ((name, access), (space, base), place) in enumerate(product(ACCESSES.items(), SPACES.items(), PLACES)):
        if name in {"atom", "cas", "red"} and space in {".local", ".param", ".const"}:
            continue
        if number % 3 == 0:
            body = access.format(space=space, place=f"[{base} + {place}]")
        else:
            start = (
                f"mov.u64 %d1, {base};" if base not in {"out", "loc"} or number % 2 else f"cvta.local.u64 %d1, {place};"
            )
            written = "" if start.startswith("cvta") else space
            body = f"{start} add.u64 %d1, %d1, {place}; @%p0 {access.format(space=written, place='[%d1]')}"
        cases.append((f"{name}{space} {place} {number}", entry(body, table)))
    for name, access in MATRICES.items():
        cases += [
            (f"{name} {place}", entry(access.format(place=f"[{'%d0' if name == 'source' else 'tile'} + {place}]")))
            for place in PLACES[::2]
        ]
    return cases[::2]


# --- control: loops without end, labels in wrong places, exits where others wait
CONTROL = (
    "A: bra A;",
    "A: @%p0 bra A; bra A;",
    "@%p0 bra A; B: bra B; A: bra A;",
    "A: { A: bra A; }",
    "{ A: } bra A;",
    "bra.uni k;",
    "bra %r1;",
    "bra out;",
    "@%r1 bra A; A:",
    "@!%p0 exit; bar.sync 0;",
    "@%p0 ret; bar.sync 0; @%p1 exit; bar.sync 1;",
    "exit; bar.sync 0;",
    "@%p0 bra A; bar.sync 0; A: bar.sync 0;",
    "@%p0 bar.sync 0;",
    "@%p0 bar.sync 0; @!%p0 bar.sync 1;",
    "@%p0 bra A; bar.sync 1; bra B; A: bar.sync 2; B:",
    "bar.sync 16;",
    "bar.sync -1;",
    "bar.sync %r0;",
    "bar.sync %r0, %r0;",
    "bar.sync 0, 33;",
    "bar.sync 0, 0;",
    "bar.sync 0, 1024;",
    "bar.sync 0, 4294967264;",
    "bar.arrive 0, 64; bar.arrive 0, 64; bar.sync 0, 64;",
    "bar.arrive 0;",
    "bar.red.popc.u32 %r1, 0, %p0;",
    "@%p0 bar.red.and.pred %p2, 0, !%p0;",
    "bar.red.popc.u32 %p1, 0, %p0;",
    "bar.warp.sync 0;",
    "bar.warp.sync 0xFFFFFFFF; @%p0 bar.warp.sync 0xFFFFFFFF;",
    "@%p0 bar.warp.sync 0x80000000;",
    "@%p0 bra A; bar.warp.sync -1; bra B; A: bar.warp.sync -1; B:",
    "barrier.sync 3; barrier.cta.sync.aligned 3;",
    "shfl.sync.idx.b32 %r1, %r0, 5, 31, 0;",
    "@%p0 shfl.sync.idx.b32 %r1, %r0, 5, 31, -1;",
    "@%p0 bra A; shfl.sync.down.b32 %r1|%p2, %r0, %r0, %r0, -1; A:",
    "shfl.sync.bfly.b32 %r1, %r0, 4294967295, 99999, 15;",
    "vote.sync.ballot.b32 %r1, %p0, %r0;",
    "@%p0 vote.sync.all.pred %p2, %p1, -1;",
    "activemask.b32 %r1; @%p0 activemask.b32 %r2;",
    "match.any.sync.b32 %r1, %r0, %r0; match.all.sync.b64 %r1|%p2, %d0, 0;",
    "redux.sync.add.s32 %r1, %r0, 5; redux.sync.min.u32 %r2, %r0, 0;",
    "elect.sync %r1|%p2, 0; elect.sync _|%p2, -1;",
    "T: .branchtargets A, B; brx.idx %r0, T; A: B:",
    "T: .branchtargets A; brx.idx 0, T; A: bra A;",
    "T: .branchtargets NOWHERE; brx.idx 0, T;",
    "T: .branchtargets T; brx.idx 0, T;",
    "brx.idx 0, A; A:",
    "trap;",
    "@%p1 trap; brkpt;",
    "nanosleep.u32 4294967295; A: nanosleep.u32 0; bra A;",
    "A: ld.volatile.global.u32 %r1, [%d0]; setp.ne.u32 %p2, %r1, 77; @%p2 bra A;",
    "A: atom.global.cas.b32 %r1, [%d0], 1, 2; setp.ne.u32 %p2, %r1, 1; @%p2 bra A;",
    "mbarrier.init.shared.b64 [tile], 1; A: mbarrier.test_wait.parity.shared.b64 %p2, [tile], 0; @!%p2 bra A;",
    "mbarrier.init.shared.b64 [tile], 0;",
    "mbarrier.init.shared.b64 [tile], 1048576;",
    "mbarrier.arrive.shared.b64 _, [tile]; mbarrier.arrive.shared.b64 %d1, [tile], 7;",
    "mbarrier.try_wait.shared.b64 %p2, [tile], %d1;",
    "mbarrier.pending_count.b64 %r1, -1;",
    "mbarrier.inval.shared.b64 [%d0];",
    "mbarrier.expect_tx.shared.b64 [tile], 99999999999;",
    "cp.async.wait_group -1; cp.async.commit_group; cp.async.wait_all;",
    "cp.async.ca.shared.global [tile], [%d0], 5;",
    "cp.async.ca.shared.global [tile], [%d0], 16, %r0;",
    "cp.async.ca.shared.global [tile], [%d0], 16, -1;",
    "cp.async.ca.shared.global [%d0], [tile], 16;",
    "wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 99;",
    "setmaxnreg.inc.sync.aligned.u32 9999;",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1}, {%r1, %r2, %r3, %r4};",
    "@%p0 mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2};",
    "@%p0 bra A; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0; A:",
    "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d0], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, %r0;",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [0x2000000000000000], 16;",
)

# --- calls, by what is declared before the kernel and what it does
FUNCTIONS = """.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.extern .func (.param .b64 r) malloc (.param .b64 n); .extern .func free (.param .b64 p);
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.func (.param .b32 r) twice (.param .b32 x) { .reg .b32 a; ld.param.b32 a, [x]; add.s32 a, a, a; st.param.b32 [r], a; ret; }
.func plain () { ret; }
.func again () { call again; ret; }
.func left (); .func right () { call left; ret; } .func left () { call right; ret; }
.func (.param .b32 r) deep (.param .b32 x) { .reg .b32 a; .reg .pred p; .param .b32 y; .param .b32 z; ld.param.b32 a, [x];
  add.s32 a, a, -1; st.param.b32 [y], a; setp.eq.s32 p, a, 0; @p bra E; call (z), deep, (y); ld.param.b32 a, [z]; E:
  st.param.b32 [r], a; ret; }
.func (.param .align 8 .b8 r[24]) large (.param .align 8 .b8 x[24]) { .reg .b64 a; ld.param.b64 a, [x+16]; st.param.b64 [r+16], a; }
.func wide (.param .align 16 .b8 x[600000]) { ret; }
.func bodyless (.param .b32 x);"""
CALLS = (
    "call again;",
    "call again, ();",
    "@%p0 call again;",
    "call left;",
    "call plain; call.uni plain; @%p1 call plain;",
    "call k;",
    "call nowhere;",
    "call bodyless, (%r1);",
    "call (%r1), twice, (%r0); @%p0 call (%r1), twice, (%r1);",
    "call (%r1), twice, (5); call (_), twice, (%r0); call (%r1), twice, (%tid.x);",
    "call (%r1), twice;",
    "call twice, (%r0);",
    "call (%r1, %r2), twice, (%r0);",
    "call (%r1), twice, (%r0, %r0);",
    "call (%d1), twice, (%d0);",
    "call (%r1), twice, (%p0);",
    "call (%r1), twice, ({%r0, %r0});",
    "call (%r1), twice, (1.5);",
    "call (%r1), twice, (out);",
    "call (%r1), twice, (loc);",
    "call (loc), twice, (loc + 4);",
    "call (tile), twice, (%r0);",
    "{ .param .b32 x; .param .b32 r; st.param.b32 [x], 5; call (r), twice, (x); ld.param.b32 %r1, [r]; }",
    "{ .param .b32 x; .param .b32 r; call (r), twice, (x - 4); }",
    "{ .param .b16 x; .param .b32 r; call (r), twice, (x); }",
    "{ .param .b32 x; .param .b32 r; st.param.b32 [x], 900; call (r), deep, (x); ld.param.b32 %r1, [r]; }",
    "{ .param .b32 x; .param .b32 r; st.param.b32 [x], 0; call (r), deep, (x); ld.param.b32 %r1, [r]; }",
    "{ .param .align 8 .b8 x[24]; .param .align 8 .b8 r[24]; call (r), large, (x); ld.param.b64 %d1, [r+16]; }",
    "{ .param .align 8 .b8 x[16]; .param .align 8 .b8 r[24]; call (r), large, (x); }",
    "call (%d1), large, (%d2);",
    "call wide, (%r0);",
    "mov.u64 %d1, plain; call %d1, ();",
    "mov.u64 %d1, plain; add.u64 %d1, %d1, 1; call %d1, ();",
    "call %d9, ();",
    "call %r1, (); call %p0, ();",
    "mov.u64 %d1, twice; call (%r1), %d1, (%r0);",
    "T: .calltargets plain, nowhere; mov.u64 %d1, plain; call %d1, (), T;",
    "T: .calltargets nowhere; call %d1, (), T;",
    "call (%r1), twice, (%r0), T;",
    "call;",
    "call ();",
    "call 5;",
    "call [%d0];",
    "ret; call again;",
    "A: call plain; bra A;",
)

# --- printf, malloc and alloca
FORMATS = (
    "%999999999d", "%.999999999f", "%*d", "%.*f", "%-5d|%+5d|% d|%05d|%#x|%#o", "%s", "%s%s%s%s%s%s", "%p%10p", "%c%5c%-5c",
    "%n", "%a", "%", "%%%", "%5", "%ll", "%lld%hhd%hd%zu", "%hhu%X%o%i", "%e%G%F%g", "%05f%5.3s%.0f", "%1$d", "%z", "%\\t",
    "%00000000000000000000000000000000005d", "%-+ #0*.*lld",
)  # fmt: skip
HEAP = (
    "{ .param .b64 n; .param .b64 p; st.param.b64 [n], SIZE; call (p), malloc, (n); ld.param.b64 %d1, [p]; st.u64 [%d1], 1; }",
    "A: call (%d1), malloc, (SIZE); setp.ne.u64 %p2, %d1, 0; @%p2 bra A;",
    "call (%d1), malloc, (SIZE); call free, (%d1); call free, (%d1); ld.u32 %r1, [%d1 + 4];",
    "call malloc, (SIZE);",
    "alloca.u64 %d1, SIZE; st.local.u32 [%d1], 7; cvta.local.u64 %d2, %d1; ld.u32 %r1, [%d2];",
    "A: alloca.u64 %d1, SIZE; st.local.u32 [%d1], 7; bra A;",
    "stacksave.u64 %d1; alloca.u64 %d2, SIZE, 16; stackrestore.u64 %d1; st.local.u32 [%d2 + SIZE], 1;",
    "mov.u64 %d3, SIZE; alloca.u64 %d1, %d3, 8; ld.local.u32 %r1, [%d1 + 16380]; stackrestore.u64 %d3; alloca.u64 %d1, 8;",
)
SIZES = ("0", "1", "16384", "8388608", "1099511627776", "-1", "-16", "0x7FFFFFFFFFFFFFFF")
ALIGNMENTS = ("0", "3", "-1", "4096", "%d0", "1.5")


def texts() -> list[tuple[str, str]]:
    """Kernels that use text, and memory that they allocate."""
    cases = []
    for number, form in enumerate(FORMATS):
        data = ", ".join(str(byte) for byte in form.encode()) + ", 0"
        body = "cvta.local.u64 %d2, 0; mov.u64 %d1, form; st.local.u64 [loc], -5; st.local.u64 [loc + 8], %d1;"
        body += f" st.local.u64 [loc + 16], 0x7FF0000000000000; call (%r1), vprintf, (%d1, {('%d2', '0', '%d1')[number % 3]});"
        cases.append((f"printf {form}", entry(body, f"{FUNCTIONS}\n.global .align 1 .b8 form[] = {{{data}}};")))
    bodies = (
        "call (%r1), vprintf, (0, 0);",
        "call (%r1), vprintf, (%d0, %d0); call vprintf, (%d0, %d0);",
        "call (%r1), vprintf, (%r0, %d0);",
        "call (%r1), vprintf, (%d0);",
        "A: call (%r1), vprintf, (%d0, 0); bra A;",
        "call __assertfail, (%d0, 0, 7, -1, 1);",
        "@%p1 call __assertfail, (%d0, 0, 7, -1, 1);",
        "call __assertfail, (%d0);",
    )
    cases += [(f"system {body}", entry(body, FUNCTIONS)) for body in bodies]
    cases += [(f"{body} {size}", entry(body.replace("SIZE", size), FUNCTIONS)) for body, size in product(HEAP, SIZES)]
    return cases + [(f"alloca {align}", entry(f"alloca.u64 %d1, 8, {align};")) for align in ALIGNMENTS]


# --- the reader: modules that are nothing but trouble
DEEP = 3000
MODULES = (
    "\n", HEAD, f"{HEAD}.entry k;", f"{HEAD}.entry k() {{", f"{HEAD}}}", f"{HEAD}/* never closed", f'{HEAD}.file "x', f"{HEAD}\x00",
    f"{HEAD}.entry k() {{ ret; }}\n.entry k() {{ ret; }}", f"{HEAD}.func f() {{ }} .func f() {{ }} .entry k() {{ call f; }}",
    f"{HEAD}.entry k() {'{' * DEEP}", f"{HEAD}.entry k() {{ {'{' * 60}{'}' * 60} ret; }}", f"{HEAD}.global .u32 x = {'(' * DEEP}1;",
    f"{HEAD}.global .u32 x = {'-' * DEEP}1;", f"{HEAD}.global .u32 x = {'0?1:' * DEEP}1;", f"{HEAD}.global .u32 x = {'1+' * DEEP}1;",
    f"{HEAD}.global .u32 x[] = {'{' * DEEP}", f"{HEAD}.global .u32 x = {'9' * 9000};", f"{HEAD}.global .f64 x = {'9' * 9000}.5;",
    f"{HEAD}.global .f32 x = 1e{'9' * 9000};", f"{HEAD}.global .u32 x = 7 / 0; .entry k() {{ }}",
    f"{HEAD}.global .align 3 .u32 x;", f"{HEAD}.global .align 0 .u32 x;", f"{HEAD}.global .align 4611686018427387904 .u32 x;",
    f"{HEAD}.global .u32 x[4611686018427387904]; .entry k() {{ }}", f"{HEAD}.global .u32 x[65536][65536][65536]; .entry k() {{ }}",
    f"{HEAD}.shared .u32 x[99999999]; .entry k() {{ }}", f"{HEAD}.const .b8 x[65537]; .entry k() {{ }}",
    f"{HEAD}.entry k(.param .b8 x[99999]) {{ }}", f"{HEAD}.entry k(.param .u64 x, .param .u64 x) {{ }}", f"{HEAD}.entry k(.param .u32 x[]) {{ }}",
    f"{HEAD}.entry k() {{ .local .b8 x[999999]; }}", f"{HEAD}.entry k() {{ .reg .b32 %r<1048577>; }}", f"{HEAD}.entry k() {{ .reg .b32 %r<-1>; }}",
    f"{HEAD}.entry k() {{ .reg .b32 a; .reg .b32 a; }}", f"{HEAD}.entry k() {{ .reg .b32 %r<4>; .reg .b32 %r<4>; }}",
    f"{HEAD}.entry k() {{ .reg .b32 %r<4>; mov.u32 %r4, 1; }}", f"{HEAD}.entry k() {{ .reg .b32 %r<4>; mov.u32 %r01, 1; }}",
    f"{HEAD}.entry k() {{ .reg .v4 .f64 %v; }}", f"{HEAD}.entry k() {{ .reg .v8 .b32 %v; }}", f"{HEAD}.entry k() {{ .reg .b99 %v; }}", f"{HEAD}.global .v8 .f64 x; .entry k() {{ }}",
    f"{HEAD}.entry k() {{ mov.{'u' * DEEP} a, b; }}", f"{HEAD}.entry {'k' * 100000}() {{ ret; }}", f"{HEAD}.entry k() {{ {';' * 100000} }}",
    f"{HEAD}.entry k() {{ {'ret; ' * 4000} }}", f"{HEAD}.entry k() {{ {' '.join(f'L{i}: bra L{i + 1};' for i in range(500))} L500: }}",
    f"{HEAD}.entry k() .maxntid 0 {{ ret; }}", f"{HEAD}.entry k() .reqntid 4294967296 {{ ret; }}", f"{HEAD}.entry k() .maxntid 1, 2, 3, 4, 5 {{ ret; }}",
    f"{HEAD}.entry k() .reqntid {{ ret; }}", f"{HEAD}.entry k() .pragma {{ ret; }}", f"{HEAD}.alias a, b; .entry k() {{ call a; }}",
    f"{HEAD}.alias a, a; .entry k() {{ call a; }}", f"{HEAD}.global .u64 x = x; .global .u64 y = generic(y) + 1; .entry k() {{ }}",
    f"{HEAD}.global .u64 x = nowhere; .entry k() {{ }}", f"{HEAD}.global .u8 x = 0x0(x); .entry k() {{ }}", f"{HEAD}.global .u32 x[2] = {{1, 2, 3}}; .entry k() {{ }}",
    f"{HEAD}.global .samplerref s = {{ a =", f"{HEAD}.global .texref t; .entry k() {{ .reg .b64 d; mov.u64 d, t; }}",
    f"{HEAD}.reg .b32 g; .local .b32 l; .entry k() {{ mov.u32 g, 5; st.local.u32 [l], g; }}", f"{HEAD}.param .b32 p; .entry k() {{ }}",
    f"{HEAD}.entry k() {{ .reg .b64 %d<3>; ld.param.u64 %d1, %d0; }}", f"{HEAD}.const .u32 c = 5; .entry k() {{ st.const.u32 [c], 1; }}",
    f"{HEAD}.const .u32 c = 5; .entry k() {{ .reg .b64 d; mov.u64 d, c; st.global.u32 [d], 1; }}", f"{HEAD}.section .x {{ {{ }}", f"{HEAD}.target",
    ".version 8.7\n.target sm_99999\n.entry k() { ret; }", ".version 99999999999999999999.1\n", ".version 8.7\n.target \n", HEAD * 2,
)  # fmt: skip

# --- instructions with operands of every kind
OPERANDS = ("%r0", "%r1", "%d0", "%d1", "%h1", "%p1", "!%p0", "%f1", "%g1", "%q", "%b", "%v", "%v.x", "_", "%tid.x", "%clock64", "%tid",
            "5", "-1", "1.5", "0f7FC00000", "0x8000000000000000", "[%d0]", "[%r0]", "[tile]", "[loc]", "[out]", "[5]", "tile", "loc",
            "out", "k", "L", "{%r1, %r2}", "{%r1}", "{%d1, %d2}", "{%r1, %r2, %r3, %r4}", "{}", "{_, %r1}", "{5, %r1}",
            "{{%r1}}", "%r1|%p1", "_|_", "%r1 + 4", "(%r1)", "[%d0, {%r1, %r2}]", "WARP_SZ", "%r99", "nowhere")  # fmt: skip


def random_instruction(seed: int) -> str:
    """An instruction with words that fit one of its rows, and operands that need not fit."""
    source = random.Random(seed)
    row = source.choice(ROWS[source.choice(sorted(ROWS))])
    words = [row.opcode]
    chosen = [modifier for modifier in row.modifiers.values() if modifier.is_required or source.random() < 0.3]
    words += [source.choice(sorted(modifier.words)) for modifier in chosen if modifier.words]
    words += [source.choice(kinds).name for kinds in row.types]
    count = source.choice([0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6])
    guard = source.choice(["", "", "@%p0 ", "@!%p1 "])
    return f"{guard}{'.'.join(words)} {', '.join(source.choice(OPERANDS) for _ in range(count))};"


@cache
def kernels() -> list[HostileKernel]:
    """All hostile kernels, always in the same order; every other one is launched with its accesses checked."""
    cases = addresses()
    cases += [(body, entry(body)) for body in CONTROL]
    cases += [(body, entry(body, FUNCTIONS)) for body in CALLS]
    cases += texts()
    cases += [(f"module {number}", f"{text}\n") for number, text in enumerate(MODULES)]
    cases += [(body, entry(f"L: {body}")) for body in map(random_instruction, range(RANDOM_INSTRUCTIONS))]
    return [
        HostileKernel(name, text, (("memory", "barriers") if at % 2 else ())) for at, (name, text) in enumerate(cases)
    ]
