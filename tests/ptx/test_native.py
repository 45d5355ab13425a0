"""The compiled engine compared with the interpreter: every compiled instruction, on random and special codes."""

import numpy as np
import pytest

import warpfrag as wf
from slow_cases import sampled
from warpfrag import disk_cache
from warpfrag.errors import SlowArithmetic
from warpfrag.machine.jit import llvm_compiler
from warpfrag.machine.jit.lane_ops import LOWERINGS
from warpfrag.machine.jit.pending_mma import group_by_operands
from warpfrag.machine.ops.opcode_lookup import find

pytestmark = pytest.mark.one_engine  # each launch names its own

LANES = 4096
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def names(*patterns):
    """All spellings of patterns such as "shl.{b16,b32}"."""
    for pattern in patterns:
        head, brace, rest = pattern.partition("{")
        if not brace:
            yield pattern
            continue
        choices, _, tail = rest.partition("}")
        for choice in choices.split(","):
            yield from names(head + choice + tail)


GROUPS = {
    "sums": ["{add,sub}.{u16,s16,u32,s32,u64,s64}", "{min,max}.{u16,s16,u32,s32,u64,s64}", "{abs,neg}.{s16,s32,s64}"],
    "products": [
        "mul.lo.{u16,s16,u32,s32,u64,s64}", "{mul,mad}.{hi,wide}.{u16,s16,u32,s32}", "mad.lo.{u16,s16,u32,s32,u64,s64}",
        "{div,rem}.{u16,s16,u32,s32,u64,s64}",
    ],
    "bits": [
        "{and,or,xor}.{b16,b32,b64,pred}", "not.{b16,b32,b64,pred}", "cnot.{b16,b32,b64}", "shl.{b16,b32,b64}",
        "shr.{b16,b32,b64,u16,s16,u32,s32,u64,s64}", "shf.{l,r}.{clamp,wrap}.b32", "{popc,clz,brev}.{b32,b64}",
        "bfe.{u32,s32,u64,s64}", "bfi.{b32,b64}", "prmt.b32", "szext.{clamp,wrap}.u32",
        "cvta.{global,shared,local}.u64",
        "cvta.to.{global,shared}.u64",
    ],
    "floats": [
        "{add,sub,mul}.rn.{f32,f64}", "{add,sub,mul}.rn{.ftz,.sat,.ftz.sat}.f32", "{fma,mad}.rn.{f32,f64}",
        "fma.rn{.ftz,.sat,.ftz.sat}.f32", "div.rn.{f32,f64}", "{rcp,sqrt}.rn.{f32,f64}", "{abs,neg}.{f32,f64,ftz.f32}",
        "{min,max}{,.ftz,.NaN}.f32",
    ],
    "the special function unit": [
        "{rcp,rsqrt,sqrt,ex2,lg2,sin,cos}.approx{,.ftz}.f32", "tanh.approx.f32", "div.{full,approx}{,.ftz}.f32",
    ],
    "comparisons": [
        "setp.{eq,ne,lt,le,gt,ge}.{u16,s16,u32,s32,u64,s64}", "setp.{eq,ne}.{b16,b32,b64}",
        "setp.{lo,ls,hi,hs}.{u32,u64}",
        "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f32,f64}", "setp.{lt,geu}.ftz.f32",
        "setp.{lt,gt}.{and,or,xor}.{s32,f32}", "selp.{b16,b32,b64,u32,s64,f32,f64}",
    ],
    "conversions": [
        *(f"cvt.{to}.{one}" for to in ("u8", "s8", *INTEGERS) for one in ("u8", "s8", *INTEGERS)),
        "cvt.rn.{f32,f64}.{u8,s8,u16,s16,u32,s32}", "cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u8,s8,u16,s16,u32,s32,u64,s64}.f32",
        "cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32,u64,s64}.f64", "cvt.f32.{f16,bf16}",
        "cvt.rn.{f16,bf16,f16x2,bf16x2}.f32", "cvt.rn.f32.f64", "cvt.rna.tf32.f32",
    ],
}  # fmt: skip


def codes(seed):
    """Return random codes, small numbers, and the special floats of both widths."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 1 << 64, LANES, dtype=np.uint64)
    small = rng.integers(0, 70, LANES, dtype=np.uint64)
    plain = rng.normal(size=LANES) * 2.0 ** rng.integers(-40, 40, LANES)
    tiny = (rng.normal(size=LANES) * 2.0 ** rng.integers(-75, -50, LANES)).astype(np.float32).view(np.uint32)
    near = [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3EFFFFFF, 0x3F000000, 0x3F800000]
    far = [0x4EFFFFFF, 0x4F000000, 0x4F800000, 0x5F000000, 0x5F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]
    edges32 = np.array(near + far, np.uint64)
    edges32 = np.concatenate([edges32, edges32 | 0x80000000])
    edges64 = np.array([0.0, 5e-324, 2.3e-308, 1.0, 0.5, 1.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64, np.inf, np.nan])
    edges64 = np.concatenate([edges64, -edges64]).view(np.uint64)
    edges64 = np.concatenate([edges64, np.array([0x7FF0000000000001, 0xFFF4000000000003], np.uint64)])
    kind = rng.integers(0, 8, LANES)
    limits = np.array([0, 1, -1, 127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
    choices = [
        found, small, plain.view(np.uint64), plain.astype(np.float32).view(np.uint32).astype(np.uint64), tiny,
        rng.choice(edges32, LANES), rng.choice(edges64, LANES),
        rng.choice(limits, LANES).view(np.uint64),
    ]  # fmt: skip
    return np.choose(kind, choices).astype(np.uint64)


def kernel_of(listed):
    """A kernel that runs every instruction on the codes of three arrays; results are 64 bits wide."""
    body, registers = [], []
    for number, name in enumerate(listed):
        action = find(name, 4 if ".and." in name or ".or." in name or ".xor." in name else 3).action
        given = []
        for position, kind in enumerate(action.sources):
            wide = f"%{'abc'[position % 3]}{kind.bits}"
            given.append("%p" + "abc"[position % 3] if kind.bits == 1 else wide)
        result = action.results[0]
        bits = max(16, result.bits)
        if result.bits == 1:
            body += [f"{name} %pr, {', '.join(given)};", "selp.b64 %rr, 1, 0, %pr;"]
        elif result.bits == 64:
            body.append(f"{name} %rr, {', '.join(given)};")
        else:
            body += [f"{name} %r{bits}, {', '.join(given)};", f"cvt.u64.u{bits} %rr, %r{bits};"]
        body.append(f"st.global.u64 [%out+{8 * LANES * number}], %rr;")
    for letter in "abc":
        registers += [
            f"ld.global.u64 %{letter}64, [%{letter}at];", f"ld.global.u32 %{letter}32, [%{letter}at];",
            f"ld.global.u16 %{letter}16, [%{letter}at];", f"ld.global.u8 %{letter}8, [%{letter}at];",
            f"and.b32 %t, %{letter}32, 1;", f"setp.ne.u32 %p{letter}, %t, 0;",
        ]  # fmt: skip
    addresses = [
        f"ld.param.u64 %{name}, [{name}];\n add.s64 %{name}, %{name}, %at;" for name in ("aat", "bat", "cat", "out")
    ]
    return f"""
.version 8.7
.target sm_90
.address_size 64
.visible .entry all(.param .u64 aat, .param .u64 bat, .param .u64 cat, .param .u64 out)
{{
  .reg .b64 %aat, %bat, %cat, %out, %at, %rr, %a64, %b64, %c64;
  .reg .b32 %a32, %b32, %c32, %r32, %t, %u, %v;
  .reg .b16 %a16, %b16, %c16, %a8, %b8, %c8, %r16;
  .reg .pred %pa, %pb, %pc, %pr;
  mov.u32 %t, %ctaid.x; mov.u32 %u, %ntid.x; mov.u32 %v, %tid.x;
  mad.lo.s32 %t, %t, %u, %v;
  mul.wide.u32 %at, %t, 8;
  {"  ".join(addresses)}
  {chr(10).join(registers)}
  {chr(10).join(body)}
  ret;
}}"""


@pytest.mark.parametrize("group", sampled(GROUPS, 4))
def test_compiled_code_gives_the_same_codes(group):
    listed = list(names(*GROUPS[group]))
    kernel = wf.ptx.load(kernel_of(listed))["all"]
    given = [codes(seed) for seed in range(3)]
    results, runs = {}, {}
    for engine in ("reference", "compiled"):
        results[engine] = np.zeros((len(listed), LANES), np.uint64)
        runs[engine] = kernel.launch(LANES // 128, 128, [*given, results[engine]], engine=engine)

    wrong = (results["reference"] != results["compiled"]).any(axis=1)
    assert [name for name, is_wrong in zip(listed, wrong, strict=True) if is_wrong] == []
    assert set(runs["compiled"].interpreted) == {"ret"}
    assert runs["compiled"].counts == runs["reference"].counts
    assert (results["compiled"] != 0).any(axis=1).all()


def test_every_rule_is_compared():
    compared = {name.split(".", maxsplit=1)[0] for group in GROUPS.values() for name in names(*group)}

    with_predicates = {"addc", "iadd3", "p2r"}  # tests/sass compares them
    assert compared | with_predicates == set(LOWERINGS)


LOOP = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry spread(.param .u64 out, .param .u32 rounds)
{
  .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mov.u32 %r6, %r5;
AGAIN:
  mad.lo.s32 %r6, %r6, 1664525, 1013904223;
  and.b32 %r7, %r6, 7;
  setp.eq.u32 %p1, %r7, 3;
  @%p1 bra NEXT;
  xor.b32 %r6, %r6, %r5;
NEXT:
  sub.s32 %r1, %r1, 1;
  setp.ne.s32 %p2, %r1, 0;
  @%p2 bra AGAIN;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r6;
  ret;
}"""


@pytest.mark.parametrize("threads", [32, 100])
def test_lanes_that_part_and_meet_again_are_counted_alike(threads):
    kernel = wf.ptx.load(LOOP)["spread"]
    assert kernel.is_shared_out
    results, runs = {}, {}
    for engine in ("reference", "compiled"):
        results[engine] = np.zeros(200 * threads, np.uint32)
        runs[engine] = kernel.launch(200, threads, [results[engine], 20], engine=engine)

    assert results["compiled"].tobytes() == results["reference"].tobytes()
    assert runs["compiled"].counts == runs["reference"].counts


def test_of_several_blocks_that_fail_the_first_one_is_named():
    kernel = wf.ptx.load(LOOP)["spread"]
    messages = set()
    for engine in ("reference", "compiled"):
        with pytest.raises(wf.WarpfragError, match=r"thread \(8, 0, 0\) of block \(140, 0, 0\)") as caught:
            kernel.launch(1000, 64, [np.zeros(140 * 64 + 8, np.uint32), 2], engine=engine)
        messages.add(str(caught.value))

    assert len(messages) == 1


def test_a_limit_ends_both_engines_at_one_place():
    kernel = wf.ptx.load(LOOP)["spread"]
    messages = set()
    for engine in ("reference", "compiled"):
        with pytest.raises(wf.WarpfragError, match="its limit") as caught:
            kernel.launch(
                4, 64, [np.zeros(256, np.uint32), 1000], engine=engine, options=wf.ptx.LaunchOptions(limit=1234)
            )
        messages.add(str(caught.value))

    assert len(messages) == 1


def test_auto_compiles_what_runs_for_long():
    kernel = wf.ptx.load(LOOP)["spread"]
    out = np.zeros(32, np.uint32)

    assert kernel.launch(1, 32, [out, 1]).engine == "reference"
    assert kernel.launch(1, 32, [out, 3000]).engine == "compiled"
    assert kernel.launch(1, 32, [out, 1], engine="reference").engine == "reference"


def test_code_is_kept_on_disk_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv(disk_cache.CACHE_VARIABLE, str(tmp_path))
    assert next(iter(disk_cache.cache_folders("ptx"))) == tmp_path / "ptx"
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path / name])  # others may be full
    monkeypatch.setattr(llvm_compiler, "LINKED", set())
    first = wf.ptx.load(LOOP)["spread"]
    first.compiled.compile_all()
    compiled, compile_text = [], llvm_compiler.compile_text
    monkeypatch.setattr(llvm_compiler, "compile_text", lambda *given: compiled.append(given) or compile_text(*given))
    again = wf.ptx.load(LOOP)["spread"]
    again.compiled.compile_all()

    assert compiled == []
    assert again.compiled.segments.keys() == first.compiled.segments.keys()

    other = wf.ptx.load(LOOP.replace("xor", "or"))["spread"]
    other.compiled.compile_all()
    assert len(compiled) == 1  # its steps: what moves the data is that of the first
    assert len(list(tmp_path.rglob("*.o"))) > 2


def test_code_that_cannot_be_kept_is_compiled_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path / "file" / name])
    monkeypatch.setattr(llvm_compiler, "LINKED", set())
    disk_cache.warn_uncached.cache_clear()
    kernel = wf.ptx.load(LOOP)["spread"]
    with pytest.warns(SlowArithmetic, match="no cache folder is writable"):
        kernel.compiled.compile_all()

    assert kernel.compiled.segments


def both(body, out_words, given, interpreted=frozenset(), engines=("reference", "compiled")):
    """Results of a body in both engines, and the kernel: `%in0` and on are a thread's codes, `%out` its results."""
    loads = "\n".join(
        f"ld.param.u64 %in{number}, [in{number}]; add.s64 %in{number}, %in{number}, %at;"
        for number in range(len(given))
    )
    parameters = ", ".join([*(f".param .u64 in{number}" for number in range(len(given))), ".param .u64 out"])
    text = f"""
.version 8.7
.target sm_90
.address_size 64
.const .align 8 .b32 table[4] = {{11, 22, 33, 44}};
.visible .entry k({parameters})
{{
  .reg .b64 %in<4>, %at, %out, %x<9>; .reg .b32 %t, %u, %v, %r<9>; .reg .b16 %h<9>; .reg .pred %p<5>;
  .shared .align 16 .b8 tile[2048]; .local .align 16 .b8 own[64];
  mov.u32 %t, %ctaid.x; mov.u32 %u, %ntid.x; mov.u32 %v, %tid.x;
  mad.lo.s32 %t, %t, %u, %v; mul.wide.u32 %at, %t, 8;
  {loads}
  ld.param.u64 %out, [out]; add.s64 %out, %out, %at;
  {body}
  ret;
}}"""
    kernel = wf.ptx.load(text)["k"]
    results, runs = {}, {}
    for engine in engines:
        results[engine] = np.zeros((out_words, LANES), np.uint64)
        runs[engine] = kernel.launch(LANES // 128, 128, [*given, results[engine]], engine=engine)
    assert runs["compiled"].counts == runs["reference"].counts
    assert set(runs["compiled"].interpreted) <= {"ret", "bar.sync", *interpreted}
    assert results["compiled"].tobytes() == results["reference"].tobytes()
    return results["compiled"], kernel


@pytest.mark.slow
def test_contracted_sums_are_one_fma_in_both():
    lines = []
    sums = ("add.{} {}, {p}, {c};", "sub.{} {}, {p}, {c};", "sub.{} {}, {c}, {p};")
    for number, (kind, bits, letter) in enumerate([("f32", 32, "r"), ("ftz.f32", 32, "r"), ("f64", 64, "x")]):
        a, b, c, total = (f"%{letter}{at}" for at in range(1, 5))
        lines += [f"ld.global.b{bits} {name}, [%in{at}];" for at, name in enumerate((a, b, c))]
        for place, line in enumerate(sums):
            product = f"%m{number}_{place}"
            lines.append(f"{{ .reg .b{bits} {product}; mul.{kind} {product}, {a}, {b};")
            lines.append(line.format(kind, total, p=product, c=c) + "}")
            lines.append(f"st.global.b{bits} [%out+{8 * LANES * (3 * number + place)}], {total};")
    found, kernel = both("\n".join(lines), 9, [codes(seed) for seed in range(3)])

    assert sum(getattr(step.action, "fused", None) is not None for step in kernel.program.instructions) == 9
    assert (found != 0).any(axis=1).all()


def test_lop3_is_the_same_in_both():
    lines = [f"ld.global.b32 %r{at + 1}, [%in{at}];" for at in range(3)]
    for number, table in enumerate((0, 255, *(1 << bit for bit in range(8)), 0x96, 0xE8, 0xCA, 0x35)):
        lines += [f"lop3.b32 %r4, %r1, %r2, %r3, {table};", f"st.global.b32 [%out+{8 * LANES * number}], %r4;"]

    left, _ = both("\n".join(lines), 14, [codes(seed) for seed in range(3)])

    assert not left[0].any()  # the table without a one
    assert (left[2:10] != 0).any(axis=1).all()


def test_every_space_holds_what_was_stored():
    body = """
    mov.u32 %r0, tile; shl.b32 %r1, %v, 4; add.s32 %r0, %r0, %r1;
    ld.global.v2.u32 {%r1, %r2}, [%in0];
    st.shared.v4.b32 [%r0], {%r1, %r2, %t, %v};
    bar.sync 0;
    xor.b32 %r3, %v, 64; sub.s32 %r3, %r3, %v; shl.b32 %r3, %r3, 4; add.s32 %r3, %r3, %r0;
    ld.shared.s8 %r4, [%r3+3]; st.global.s32 [%out], %r4;
    ld.shared.u16 %h1, [%r3+6]; st.global.u16 [%out+32768], %h1;
    cvt.u64.u32 %x1, %r3; cvta.shared.u64 %x1, %x1;
    ld.v2.b64 {%x2, %x3}, [%x1]; st.global.b64 [%out+65536], %x2; st.global.b64 [%out+98304], %x3;
    mov.u64 %x4, own; cvta.local.u64 %x5, %x4;
    st.local.b64 [%x4+8], %x2; setp.gt.s32 %p1, %r4, 0; @%p1 st.b64 [%x5+8], %x3;
    ld.local.b64 %x6, [own+8]; st.global.b64 [%out+131072], %x6;
    mov.u64 %x7, table; and.b32 %r5, %t, 3; mul.wide.u32 %x8, %r5, 4; add.s64 %x7, %x7, %x8;
    ld.const.u32 %r6, [%x7]; @!%p1 ld.const.s32 %r6, [table+4]; st.global.u32 [%out+163840], %r6;
    """
    found, _ = both(body, 6, [codes(0)])

    assert (found != 0).any(axis=1).all()
    assert set(found[5]) == {11, 22, 33, 44}


def copies(address, given):
    """A body that copies 4, 8 and 16 bytes of each lane to shared memory, with operands `given`, and reads them."""
    lines = [f"ld.global.u32 %r2, [%in1]; and.b32 %r2, %r2, 31; setp.lt.u32 %p1, %r2, 9; mov.u64 %x1, {address};"]
    for number, size in enumerate((4, 8, 16)):
        lines.append(f"mov.u32 %r0, tile; mul.lo.u32 %r1, %v, {size}; add.s32 %r0, %r0, %r1; bar.sync 0;")
        lines.append(f"mul.wide.u32 %x2, %t, {size}; add.s64 %x2, %x1, %x2; st.shared.u32 [%r0], 77;")
        lines.append(f"cp.async.c{'g' if size == 16 else 'a'}.shared.global [%r0], [%x2], {size}{given};")
        lines.append(f"cp.async.wait_all; ld.shared.u32 %r3, [%r0+{size - 4}]; ld.shared.u32 %r4, [%r0];")
        lines.append(f"st.global.u32 [%out+{65536 * number}], %r3; st.global.u32 [%out+{65536 * number + 32768}], %r4;")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["", ", %r2", ", %p1", ", 3"])
def test_asynchronous_copies_are_the_same_in_both(given):
    base = "%in2; mul.wide.u32 %x3, %t, 8; sub.s64 %x1, %x1, %x3"
    found, _ = both(copies(base, given), 6, [codes(0), codes(1), codes(2).repeat(2)])

    assert (found[1::2] != 0).any(axis=1).all()
    assert (found[[2, 4]] != 0).any() == (given != ", 3")  # zeros follow the bytes that are taken


@pytest.mark.parametrize(
    ("address", "message"), [("8", "outside every allocation"), ("%in2; add.s64 %x1, %x1, 2", "is not a multiple of 4")]
)
def test_a_copy_that_goes_wrong_is_the_same_in_both(address, message):
    messages = set()
    for engine in ("reference", "compiled"):
        with pytest.raises(wf.WarpfragError, match=f"cp.async.ca.shared.global by thread .*{message}") as caught:
            both(copies(address, ""), 6, [codes(0)] * 3, engines=(engine,))
        messages.add(str(caught.value))

    assert len(messages) == 1


CROSS = [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs", "tilings"),
    [
        (CROSS, [True]), (CROSS + [(a + 2, b + 2) for a, b in CROSS], [True]),  # the second four along K
        (CROSS + CROSS[:2], [True, True]), ([(0, 0), (1, 1)], [False]), ([(0, 0), (0, 0)], [False]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "words"), [("m16n8k16.row.col.f32.f16.f16.f32", (4, 2, 4)),
                        ("m16n8k16.row.col.f16.f16.f16.f16", (4, 2, 2)),
                        ("m16n8k8.row.col.f32.tf32.tf32.f32", (4, 2, 4)),
                        ("m16n8k32.row.col.s32.s8.u8.s32", (4, 2, 4))]
)  # fmt: skip
def test_mma_joined_to_products_give_the_same_registers(pairs, tilings, name, words):
    def vector(letter, number, count):
        return "{" + ", ".join(f"%{letter}{number}_{word}" for word in range(count)) + "}"

    a, b, c = words
    loaded = [
        f"%{letter}{number}_{word}"
        for letter, count in (("a", a), ("b", b))
        for number in range(4)
        for word in range(count)
    ]
    sums = [f"%c{number}_{word}" for number in range(min(len(pairs), 4)) for word in range(c)]
    lines = [f".reg .b32 {', '.join(loaded + sums)};"]
    lines += [f"ld.global.b32 {register}, [%in0+{4 * (at % 2)}];" for at, register in enumerate(loaded)]
    lines += [f"xor.b32 {register}, {register}, {0x01010101 * at};" for at, register in enumerate(loaded)]
    lines += [f"mov.b32 {register}, 0;" for register in sums]
    lines += ["setp.gt.u32 %p1, %v, 63;", "@%p1 bra OUT;"]  # two of four warps go on
    for number, (first, second) in enumerate(pairs):
        total = vector("c", number % 4, c)
        lines.append(f"mma.sync.aligned.{name} {total}, {vector('a', first, a)}, {vector('b', second, b)}, {total};")
    lines.append("OUT:")
    lines += [f"st.global.b32 [%out+{8 * LANES * at}], {register};" for at, register in enumerate(sums)]
    given = np.random.default_rng(1).integers(0, 1 << 64, LANES, dtype=np.uint64)
    found, kernel = both("\n".join(lines), len(sums), [given], interpreted={"bra", f"mma.sync.aligned.{name}"})

    assert (found != 0).any(axis=1).all()
    (found,) = kernel.compiled.tilings.values()
    assert [tiling is not None for tiling, _ in found] == tilings


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_an_infinite_addend_wins_over_a_product_too_large_for_f64(mode):
    body = f"""
    ld.global.b64 %x1, [%in0]; ld.global.b64 %x2, [%in1];
    fma.{mode}.f64 %x3, %x1, %x1, %x2; st.global.b64 [%out], %x3;
    """
    large, infinite = np.full(LANES, 1e200).view(np.uint64), np.full(LANES, -np.inf).view(np.uint64)
    found, _ = both(body, 1, [large, infinite], interpreted={f"fma.{mode}.f64"})

    assert set(found[0]) == {infinite[0]}


def test_warps_with_the_same_a_or_b_are_one_product():
    def groups(pairs):
        first = [[next(at for at, other in enumerate(pairs) if other[axis] == pair[axis]) for pair in pairs]
                 for axis in (0, 1)]  # fmt: skip
        found = group_by_operands(*(np.array(one, np.int64).tobytes() for one in first))
        return None if found is None else sorted(sorted(group.reshape(-1).tolist()) for group in found)

    grid = [(row, column) for column in range(3) for row in range(4)]
    assert groups(grid) == [list(range(12))]
    assert groups(grid[:11]) == [list(range(8)), [8, 9, 10]]
    assert groups(grid + [(5, column) for column in range(3, 15)]) == [list(range(12)), list(range(12, 24))]
    assert groups([(at, at) for at in range(8)]) is None
    assert groups([(0, 0)] * 8) is None


STMATRIX = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 places, .param .u64 out)
{{
.reg .pred %p; .reg .b32 %r<16>; .reg .b64 %rd<10>;
.shared .align 128 .b8 rows[4096];
ld.param.u64 %rd1, [words]; ld.param.u64 %rd2, [places]; ld.param.u64 %rd3, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd4, %r1, 4; add.u64 %rd5, %rd2, %rd4; ld.global.u32 %r2, [%rd5];
mul.wide.u32 %rd6, %r1, 16; add.u64 %rd7, %rd1, %rd6; ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd7];
mov.u32 %r3, rows; add.u32 %r4, %r3, %r2;
stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r4], {{{registers}}};
bar.sync 0;
shl.b32 %r5, %r1, 2; add.u32 %r6, %r3, %r5; add.u64 %rd8, %rd3, %rd4; mov.u32 %r7, 0;
again:
ld.shared.u32 %r8, [%r6]; st.global.u32 [%rd8], %r8;
add.u32 %r6, %r6, 256; add.u64 %rd8, %rd8, 256; add.u32 %r7, %r7, 1;
setp.lt.u32 %p, %r7, 16; @%p bra again;
ret;
}}
"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_rows_of_stmatrix_are_the_same_in_both(count, trans):
    """Separate rows, rows at one address, and rows that several lanes address: bytes, counts and causes."""
    registers = ", ".join(f"%r{10 + number}" for number in range(count))
    text = STMATRIX.format(count=count, trans=trans, registers=registers)
    rng = np.random.default_rng(count)
    words = rng.integers(0, 1 << 32, (64, 4), dtype=np.uint32)
    apart = (16 * rng.permutation(256)[:64]).astype(np.uint32)
    pairs = (16 * (np.arange(64) // 2)).astype(np.uint32)
    for places, is_uncertain in ((apart, False), (np.full(64, 64, np.uint32), True), (pairs, True)):
        left = []
        for engine in ("reference", "compiled"):
            kernel, out = wf.ptx.load(text)["k"], np.zeros(1024, np.uint32)
            run = kernel.launch(1, 64, [words, places, out], engine=engine)
            left.append((out.tobytes(), run.counts, run.uncertain, [str(line) for line in run.inexact_lines]))
        assert left[0] == left[1]
        assert bool(left[0][2]) == is_uncertain
    assert any(name.startswith("stmatrix") for name in kernel.compiled.opcodes)


@pytest.mark.parametrize(("place", "message"), [(8, "is not a multiple of 16"), (4096, "outside shared memory")])
def test_rows_of_stmatrix_that_go_wrong_are_the_same_in_both(place, message):
    text = STMATRIX.format(count=2, trans="", registers="%r10, %r11")
    words, out = np.zeros((64, 4), np.uint32), np.zeros(1024, np.uint32)
    places = np.where(np.arange(64) == 41, place, 0).astype(np.uint32)
    errors = []
    for engine in ("reference", "compiled"):
        with pytest.raises(wf.errors.PtxError, match=message) as error:
            wf.ptx.load(text)["k"].launch(1, 64, [words, places, out], engine=engine)
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert "thread (41, 0, 0)" in errors[0]
