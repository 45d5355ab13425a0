"""Calls that need more than a jump: recursive functions, functions by address, driver functions."""

import pytest

import warpfrag as wf
from small_kernel import run

pytestmark = pytest.mark.both_engines

FIBONACCI = """
.func (.param .b32 result) fib(.param .b32 given, .param .b64 seen)
{
.local .align 4 .b8 own[4];
.reg .b32 %a<6>; .reg .b64 %b<4>; .reg .pred %q;
ld.param.u32 %a1, [given];
ld.param.u64 %b1, [seen];
ld.u32 %a4, [%b1];
add.u32 %a4, %a4, 1;
st.u32 [%b1], %a4;
mov.u64 %b2, own;
st.local.u32 [%b2], %a1;
mov.u32 %a2, %a1;
setp.lt.u32 %q, %a1, 2;
@%q bra DONE;
{ .param .b32 p; .param .b64 s; .param .b32 r;
sub.u32 %a2, %a1, 1;
st.param.b32 [p], %a2; st.param.b64 [s], %b1;
call.uni (r), fib, (p, s);
ld.param.b32 %a2, [r]; }
{ .param .b32 p; .param .b64 s; .param .b32 r;
ld.local.u32 %a3, [%b2];
sub.u32 %a3, %a3, 2;
st.param.b32 [p], %a3; st.param.b64 [s], %b1;
call (r), fib, (p, s);
ld.param.b32 %a3, [r]; }
add.u32 %a2, %a2, %a3;
DONE:
st.param.b32 [result], %a2;
ret;
}
"""
CALL_FIBONACCI = """
.local .align 4 .b8 count[4];
mov.u64 %rd4, count;
cvta.local.u64 %rd5, %rd4;
st.local.u32 [count], 0;
and.b32 %r5, %r1, 7;
{ .param .b32 p; .param .b64 s; .param .b32 r;
st.param.b32 [p], %r5; st.param.b64 [s], %rd5;
call.uni (r), fib, (p, s);
ld.param.b32 %r6, [r]; }
ld.local.u32 %r7, [%rd4];
mad.lo.u32 %r6, %r7, 1000, %r6;
st.global.u32 [%rd3], %r6;
"""


def test_functions_that_call_themselves_keep_registers_and_local_memory():
    out, _ = run(CALL_FIBONACCI, before=FIBONACCI, block=40)

    def fib(n):
        left, right = (fib(n - 1), fib(n - 2)) if n > 1 else ((n, 0), (0, 0))
        return left[0] + right[0], left[1] + right[1] + 1

    assert out.tolist() == [fib(lane % 8)[0] + 1000 * fib(lane % 8)[1] for lane in range(40)]


def test_a_function_that_never_comes_back_is_stopped():
    again = ".func again(.reg .b32 %a) { call.uni again, (%a); ret; }"
    with pytest.raises(wf.WarpfragError, match="calls are nested more than 1024 deep"):
        run("call.uni again, (5);", before=again)
    deep = FIBONACCI.replace("setp.lt.u32 %q, %a1, 2", "setp.lt.u32 %q, %a1, 0")
    with pytest.raises(wf.WarpfragError, match=f"need more than {512 * 80} bytes of local memory"):
        run(CALL_FIBONACCI, before=deep)


BY_ADDRESS = """
.func (.param .b32 r) twice(.param .b32 x)
{ .reg .b32 %a<2>; ld.param.b32 %a1, [x]; shl.b32 %a1, %a1, 1; st.param.b32 [r], %a1; ret; }
.func (.param .b32 r) square(.param .b32 x)
{ .reg .b32 %a<2>; ld.param.b32 %a1, [x]; mul.lo.u32 %a1, %a1, %a1; st.param.b32 [r], %a1; ret; }
.func other(.param .b64 x) { ret; }
.global .align 8 .u64 table[3] = {twice, square, other};
"""
CALL_BY_ADDRESS = """
and.b32 %r5, %r1, 1;
mul.wide.u32 %rd4, %r5, 8;
mov.u64 %rd5, table;
add.u64 %rd5, %rd5, %rd4;
ld.global.u64 %rd6, [%rd5+{offset}];
{{ .param .b32 p; .param .b32 r;
st.param.b32 [p], %r1;
{prototype}
call (r), %rd6, (p), {name};
ld.param.b32 %r6, [r]; }}
st.global.u32 [%rd3], %r6;
"""


@pytest.mark.parametrize(
    "prototype", ["fits : .callprototype (.param .b32 _) _ (.param .b32 _);", "fits: .calltargets twice, square;"]
)
def test_functions_are_called_by_address(prototype):
    body = CALL_BY_ADDRESS.format(offset=0, prototype=prototype, name="fits")
    out, _ = run(body, before=BY_ADDRESS)
    assert out.tolist() == [lane * lane if lane % 2 else 2 * lane for lane in range(64)]

    with pytest.raises(
        wf.WarpfragError, match=r"line \d+: call by thread \(1, 0, 0\) .* is not the address of a function that matches"
    ):
        run(body.replace("%rd5+0", "%rd5+8"), before=BY_ADDRESS)


PICK = """
.func (.param .b32 r) pick(.param .align 8 .b8 x[12], .param .b32 index)
{
.reg .b32 %a<4>; .reg .b64 %b<4>;
ld.param.b32 %a1, [index]; mul.wide.u32 %b1, %a1, 4; mov.b64 %b2, x; add.u64 %b1, %b2, %b1;
ld.param.b32 %a2, [%b1]; cvta.param.u64 %b3, %b1; ld.u32 %a3, [%b3]; add.u32 %a2, %a2, %a3;
st.param.b32 [r], %a2; ret;
}
"""


def test_the_address_of_a_parameter_can_be_taken():
    out, _ = run(
        "rem.u32 %r5, %r1, 3;\n{ .param .align 8 .b8 p[12]; .param .b32 i; .param .b32 r;\nst.param.v2.b32 [p], {5, 6};"
        "st.param.b32 [p+8], %r1; st.param.b32 [i], %r5;\ncall (r), pick, (p, i);\nld.param.b32 %r6, [r]; }\n"
        "st.global.u32 [%rd3], %r6;",
        before=PICK,
    )
    assert out.tolist() == [2 * (5, 6, lane)[lane % 3] for lane in range(64)]


def text(name, words):
    data = [*words.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


PRINT = """
.local .align 8 .b8 list[40];
setp.ne.u32 %p1, %r1, 33;
@%p1 bra QUIET;
mov.u64 %rd4, list; cvta.local.u64 %rd5, %rd4;
st.local.u32 [list], %r1; st.local.f64 [list+8], 0dBFF8000000000000; st.local.u64 [list+16], 0xFFFFFFFFFFFFFFFF;
mov.u64 %rd6, word; cvta.global.u64 %rd6, %rd6; st.local.u64 [list+24], %rd6; st.local.u32 [list+32], 65;
mov.u64 %rd6, form; cvta.global.u64 %rd6, %rd6;
{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd6; st.param.b64 [a], %rd5;
call.uni (r), vprintf, (f, a); ld.param.b32 %r5, [r]; }
QUIET:
"""


def test_printf_is_kept():
    before = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    before += text("form", "%04d: %6.2f %lx %s%c 100%%\n") + text("word", "text")
    _, launched = run(PRINT, before=before, grid=2)

    assert launched.printed == "0033:  -1.50 ffffffffffffffff textA 100%\n" * 2
    assert run("")[1].printed == ""


def test_a_failed_assertion_says_where():
    before = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
    before += text("m", "x > 0") + text("f", "a.cu") + text("n", "k")
    body = (
        "setp.ne.u32 %p1, %r1, 40;\n@%p1 bra GOOD;\n{ .param .b64 m0; .param .b64 f0; .param .b32 l0; .param .b64 n0;"
    )
    body += ".param .b64 s0;\n"
    for name in "mfn":
        body += f"mov.u64 %rd4, {name}; cvta.global.u64 %rd5, %rd4; st.param.b64 [{name}0], %rd5;\n"
    body += "st.param.b32 [l0], 12; st.param.b64 [s0], 1;\ncall.uni __assertfail, (m0, f0, l0, n0, s0); }\nGOOD:"
    with pytest.raises(
        wf.WarpfragError, match=r"a.cu:12: k: thread \(40, 0, 0\) of block .*: assertion `x > 0` failed"
    ):
        run(body, before=before)


TAKE = """
.func (.param .b32 r) take(.param .b32 x)
{
.reg .b32 %a<4>; .reg .b64 %b<4>;
ld.param.b32 %a1, [x];
alloca.u64 %b1, 400, 16;
stacksave.u64 %b2;
alloca.u64 %b3, 10;
stackrestore.u64 %b2;
alloca.u64 %b3, 8;
st.local.u32 [%b1+396], %a1;
st.local.u64 [%b3], 7;
ld.local.u32 %a2, [%b1+396];
st.param.b32 [r], %a2;
ret;
}
"""


def test_a_function_gives_its_stack_back():
    """A thousand calls of 408 bytes exceed the stack."""
    out, _ = run(
        "mov.u32 %r6, 0; mov.u32 %r7, 0;\nLOOP:\n{ .param .b32 p; .param .b32 r; st.param.b32 [p], %r6;\n"
        "call.uni (r), take, (p); ld.param.b32 %r5, [r]; }\nadd.u32 %r7, %r7, %r5;\nadd.u32 %r6, %r6, 1;\n"
        "setp.lt.u32 %p1, %r6, 1000;\n@%p1 bra LOOP;\nst.global.u32 [%rd3], %r7;",
        before=TAKE, block=32,
    )  # fmt: skip
    assert out.tolist() == [999 * 1000 // 2] * 32


def test_malloc_gives_every_thread_its_own():
    before = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
    body = (
        "{ .param .b64 n; .param .b64 r; st.param.b64 [n], %rd4; call.uni (r), malloc, (n); ld.param.b64 %rd5, [r]; }\n"
    )
    use = (
        "st.u32 [%rd5], %r1;\nbar.sync 0;\nld.u32 %r5, [%rd5];\n"
        "{ .param .b64 q; st.param.b64 [q], %rd5; call.uni free, (q); }\nst.global.u32 [%rd3], %r5;"
    )
    out, _ = run(f"mov.u64 %rd4, 4;\n{body}{use}", before=before, grid=2)
    assert out.tolist() == [*range(64)] * 2

    none, _ = run(f"mov.u64 %rd4, 0x1000000;\n{body}cvt.u32.u64 %r5, %rd5;\nst.global.u32 [%rd3], %r5;", before=before)
    assert not none.any()


HEAP = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
MALLOC = (
    "mov.u64 %rd4, 40;\n{ .param .b64 n; .param .b64 r; st.param.b64 [n], %rd4; call.uni (r), malloc, (n);"
    " ld.param.b64 %rd5, [r]; }\nst.u32 [%rd5+36], %r1;\nld.u32 %r5, [%rd5+36];\nst.global.u32 [%rd3], %r5;\n"
)
FREE = "{ .param .b64 q; st.param.b64 [q], %rd5; call.uni free, (q); }\n"


@pytest.mark.parametrize("checks", ["memory", "all"])
@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("", None),
        ("mov.u64 %rd5, 0;\n" + FREE, None),  # free(NULL)
        ("ld.u32 %r5, [%rd5+36];\n", "is in memory that was freed"),
        ("st.u32 [%rd5], %r1;\n", "is in memory that was freed"),
        (FREE, "has already been freed"),
        ("add.u64 %rd5, %rd3, 0;\n" + FREE, "is not an address that malloc returned"),
    ],
)
def test_memory_that_was_freed_is_not_touched(checks, after, words):
    _, launched = run(MALLOC + FREE + after, before=HEAP, checks=checks)

    assert launched.verdict == ("clean" if words is None else "findings")
    for finding in launched.findings:
        assert (finding.kind, finding.check) == ("freed", "memory")
        assert words in finding.text
    unchecked, launched = run(MALLOC + FREE + after, before=HEAP)  # as on a GPU, nobody notices
    assert launched.verdict is None
    assert unchecked.tolist() == [*range(64)]


INCREMENT = """
.func (.param .b32 result) more(.param .b32 given)
{
.reg .b32 %a;
ld.param.b32 %a, [given]; add.u32 %a, %a, 1; st.param.b32 [result], %a; ret;
}
.func (.param .b32 result) first(.param .b64 place)
{
.reg .b32 %a; .reg .b64 %b;
ld.param.b64 %b, [place]; ld.b32 %a, [%b]; st.param.b32 [result], %a; ret;
}
"""
INCREMENTED = """{{ .param .b32 p; .param .b32 r;
st.param.b32 [p], {};
call.uni (r), more, (p);
ld.param.b32 %r6, [r]; }}
st.global.u32 [%rd3], %r6;"""
FIRST = """.local .align 8 .b8 words[16]; mov.u64 %rd4, words; cvta.local.u64 %rd4, %rd4; st.b32 [%rd4+4], %r1;
{{ .param .b64 p; .param .b32 r; add.u64 %rd4, %rd4, {};
st.param.b64 [p], %rd4;
call.uni (r), first, (p);
ld.param.b32 %r6, [r]; }}
st.global.u32 [%rd3], %r6;"""


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        (INCREMENTED.format("%r1"), False),
        (INCREMENTED.format("%r7"), True),
        (FIRST.format(4), False),
        (FIRST.format(8), True),
    ],
)
def test_values_that_were_never_written_are_followed_through_calls(body, is_found):
    _, result = run(body, before=INCREMENT, block=40, checks="uninitialised")
    assert [finding.kind for finding in result.findings] == ["uninitialised"] * is_found
