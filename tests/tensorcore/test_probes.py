"""Probes: single dot products that distinguish rival models, for both implementations and several architectures.

The expected codes of sm_90 were measured on an H200; those of other architectures are the published ones. A probe is
`name instruction C | products | arch=result ...`, all in hex: a row of A and a column of B; what is not named is zero.
"""

import numpy as np
import pytest
from arithmetic_cases import TWINS, code_type, instruction, rule_of

F16 = instruction("mma", "m16n8k16", "f32.f16.f16.f32")
F16K8 = instruction("mma", "m16n8k8", "f32.f16.f16.f32")
F16F16 = instruction("mma", "m16n8k16", "f16.f16.f16.f16")
BF16 = instruction("mma", "m16n8k16", "f32.bf16.bf16.f32")
TF32 = instruction("mma", "m16n8k8", "f32.tf32.tf32.f32")
WMMA_TF32 = instruction("wmma.mma", "m16n16k8", "f32.tf32.tf32.f32")
WMMA_F16 = instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f32")
WMMA_F16F16 = instruction("wmma.mma", "m16n16k16", "f16.f16.f16.f16")
E4M3 = instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32")
E4M3F16 = instruction("mma", "m16n8k32", "f16.e4m3.e4m3.f16")
E5M2 = instruction("mma", "m16n8k32", "f32.e5m2.e5m2.f32")
QUAD = instruction("mma", "m8n8k4", "f32.f16.f16.f32")
QUADF16 = instruction("mma", "m8n8k4", "f16.f16.f16.f16")
SP_F16K32 = instruction("mma.sp", "m16n8k32", "f32.f16.f16.f32")
SP_F16K16 = instruction("mma.sp", "m16n8k16", "f32.f16.f16.f32")
SP_TF32 = instruction("mma.sp", "m16n8k16", "f32.tf32.tf32.f32")
SP_BF16 = instruction("mma.sp", "m16n8k32", "f32.bf16.bf16.f32")


def read_terms(text):
    """`k:a*b ...`; `fill a b N`; or `count BIG ONE N i j`: +BIG * BIG at i, -BIG * BIG at j, ONE * ONE elsewhere.

    The result of a count is the number of ones outside the step in which the two big products cancel.
    """
    words = text.split()
    if words[:1] == ["fill"]:
        return dict.fromkeys(range(int(words[3])), (int(words[1], 16), int(words[2], 16)))
    if words[:1] != ["count"]:
        pairs = [word.replace("*", ":").split(":") for word in words]
        return {int(k): (int(a, 16), int(b, 16)) for k, a, b in pairs}
    big, one = (int(word, 16) for word in words[1:3])
    count, plus, minus = (int(word) for word in words[3:])
    sign = 1 << (4 * len(words[1]) - 1)  # BIG is written with all its digits
    return dict.fromkeys(range(count), (one, one)) | {plus: (big, big), minus: (big | sign, big)}


PROBES = """
# fraction bits: 1 - 1 + 2**-j survives while j <= F
P1.f16f32.23 F16 0 | 0:3c00*3c00 1:bc00*3c00 2:c00*1000 | sm_90=34000000 sm_80=34000000
P1.f16f32.24 F16 0 | 0:3c00*3c00 1:bc00*3c00 2:c00*c00 | sm_90=33800000 sm_80=33800000
P1.f16f32.25 F16 0 | 0:3c00*3c00 1:bc00*3c00 2:800*c00 | sm_90=33000000 sm_100=33000000 sm_80=0 sm_89=0
P1.f16f32.25.k8 F16K8 0 | 0:3c00*3c00 1:bc00*3c00 2:800*c00 | sm_90=33000000 sm_75=0 sm_80=0
P1.f16f32.26 F16 0 | 0:3c00*3c00 1:bc00*3c00 2:800*800 | sm_90=0 sm_80=0
P1.f16f32.24.quad QUAD 0 | 0:3c00*3c00 1:bc00*3c00 2:c00*c00 | sm_70=0 sm_75=0
P1.f16f32.23.quad QUAD 0 | 0:3c00*3c00 1:bc00*3c00 2:c00*1000 | sm_70=34000000
P1.bf16.24 BF16 0 | 0:3f80*3f80 1:bf80*3f80 15:3980*3980 | sm_90=33800000 sm_80=33800000
P1.bf16.25 BF16 0 | 0:3f80*3f80 1:bf80*3f80 15:3900*3980 | sm_90=33000000 sm_80=33000000
P1.bf16.26 BF16 0 | 0:3f80*3f80 1:bf80*3f80 15:3900*3900 | sm_90=0 sm_80=32800000
P1.tf32.24 TF32 0 | 0:3f800000*3f800000 1:bf800000*3f800000 7:39800000*39800000 | sm_90=33800000
P1.tf32.25 TF32 0 | 0:3f800000*3f800000 1:bf800000*3f800000 7:39000000*39800000 | sm_90=33000000
P1.tf32.26 TF32 0 | 0:3f800000*3f800000 1:bf800000*3f800000 7:39000000*39000000 | sm_90=0 sm_80=32800000
P1.mmae4m3.12 E4M3 0 | 0:38*38 1:b8*38 31:8*8 | sm_90=39800000 sm_89=39800000
P1.mmae4m3.13 E4M3 0 | 0:38*38 1:b8*38 31:4*8 | sm_90=39000000 sm_89=39000000
P1.mmae4m3.14 E4M3 0 | 0:38*38 1:b8*38 31:4*4 | sm_90=38800000 sm_89=38800000
# products in one step
P2.f16f32k16 F16 0 | count 7800 3c00 16 0 1 | sm_90=0 sm_100=0 sm_120=0 sm_80=41000000 sm_89=41000000
P2.f16f32k16.wmma WMMA_F16 0 | count 7800 3c00 16 0 1 | sm_70=41400000 sm_75=41000000 sm_80=41000000 sm_90=0
P2.f16f16k16 F16F16 0 | count 7800 3c00 16 0 1 | sm_90=0 sm_80=4800
P2.f16f16k16.wmma WMMA_F16F16 0 | count 7800 3c00 16 0 1 | sm_70=4a00 sm_75=4800 sm_90=0
P2.f16f32k8 F16K8 0 | count 7800 3c00 8 0 1 | sm_90=0 sm_75=0 sm_80=0
P2.bf16k16 BF16 0 | count 4700 3f80 16 0 1 | sm_90=0 sm_80=41000000
P2.tf32k8 TF32 0 | count 47000000 3f800000 8 0 1 | sm_90=0 sm_80=40800000 sm_89=40800000
P2.wmma_tf32 WMMA_TF32 0 | count 47000000 3f800000 8 0 1 | sm_90=40800000 sm_80=40800000 sm_120=40800000
P2.mma_e5m2.0_1 E5M2 0 | count 78 3c 32 0 1 | sm_90=41800000 sm_120=0
P2.mma_e5m2.0_2 E5M2 0 | count 78 3c 32 0 2 | sm_90=0
P2.mma_e5m2.0_16 E5M2 0 | count 78 3c 32 0 16 | sm_90=41800000
P2.mma_e5m2.2_3 E5M2 0 | count 78 3c 32 2 3 | sm_90=0
# rounding of the sum
P3.rz+ F16 3f800000 | 0:e00*c00 | sm_90=3f800000
P3.rz- F16 bf800000 | 0:8e00*c00 | sm_90=bf800000
P3.fp8mma.RN E5M2 3f800000 | 0:e*c | sm_90=3f800001 sm_100=3f800001 sm_103=3f800001 sm_89=3f800000 sm_120=3f800000
# truncation of a term is towards zero
P4.f16.neg F16 0 | 0:3c00*3c00 1:bc00*3c00 2:8800*800 | sm_90=0
P4.f16.negc F16 3f800000 | 0:8800*800 | sm_90=3f800000
# the exponent of a zero
P5.f16f16.46 F16F16 0 | 0:1000*400 1:2*2 | sm_90=1
P5.f16f16.47 F16F16 0 | 0:1000*400 1:1*2 | sm_90=0
P5.f16f16.48 F16F16 0 | 0:1000*400 1:1*1 | sm_90=0
P5.bf16.151 BF16 0 | 0:3400*80 1:b300*80 | sm_90=0 sm_80=0
P5.bf16.152 BF16 0 | 0:3400*80 1:b280*80 | sm_90=0 sm_80=0
P5.bf16.157 BF16 0 | 0:3400*80 1:b000*80 | sm_90=0 sm_80=1
P5.bf16.158 BF16 0 | 0:3400*80 1:af80*80 | sm_90=0 sm_80=1
P5.bf16.159 BF16 0 | 0:3400*80 1:af00*80 | sm_90=1 sm_80=1
# products are not renormalised, nor are subnormals
P6.norm F16 0 | 0:3e00*3e00 1:be00*3e00 2:800*c00 | sm_90=33000000
P7.sub40 F16 0 | 0:1*3c00 1:8001*3c00 2:10*10 | sm_90=0
P7.sub39 F16 0 | 0:1*3c00 1:8001*3c00 2:10*20 | sm_90=2c000000
P7.fp8mma E4M3 0 | 0:1*38 1:81*38 4:1*1 | sm_90=36800000
# NaN and infinity
P8.nanA F16 0 | 0:7e01*3c00 | sm_90=7fffffff sm_80=7fffffff
P8.snanA F16 0 | 0:fc01*3c00 | sm_90=7fffffff
P8.inf*0 F16 0 | 0:7c00*0 | sm_90=7fffffff
P8.inf F16 0 | 0:7c00*3c00 | sm_90=7f800000
P8.-inf F16 0 | 0:fc00*3c00 | sm_90=ff800000
P8.infC F16 7f800000 |  | sm_90=7f800000
P8.inf-infC F16 ff800000 | 0:7c00*3c00 | sm_90=7fffffff
P8.snanC F16 ff800001 |  | sm_90=7fffffff
P8.nan16 F16F16 0 | 0:fe01*3c00 | sm_90=7fff
# zeros
P9.-0 F16 80000000 | fill 8000 0 16 | sm_90=0 sm_80=0
P9.-0c F16F16 8000 | fill 8000 0 16 | sm_90=0
P9.fp8 E4M3 80000000 |  | sm_90=0
# overflow
P10.ovf BF16 7f7fffff | 0:5980*5980 | sm_90=7f800000
P10.half BF16 7f7fffff | 0:5980*5900 | sm_90=7f7fffff
P10.inter BF16 0 | 0:7f00*7f00 1:ff00*7f00 2:3f80*3f80 | sm_90=0
P10.prod BF16 0 | 0:5f80*5f80 | sm_90=7f800000
P10.f16ovf F16F16 7bff | 0:4c00*3c00 | sm_90=7c00
P10.f16max F16F16 7bff | 0:4bc0*3c00 | sm_90=7bff
# C is part of the step
P11.cfused F16 3f800000 | 0:bc00*3c00 1:800*c00 | sm_90=33000000
# tf32 drops its low bits first
P12.trunc TF32 0 | 0:3f801fff*3f800000 | sm_90=3f800000
P12.lownan TF32 0 | 0:7f800001*3f800000 | sm_90=7f800000
P12.lowsub TF32 0 | 0:1fff*7f800000 | sm_90=7fffffff
# f16 results see every kept bit
P13.f16sticky.25 F16F16 3c00 | 0:2400*2800 1:800*c00 | sm_90=3c01 sm_80=3c00
P13.f16sticky.26 F16F16 3c00 | 0:2400*2800 1:800*800 | sm_90=3c00 sm_80=3c00
P13.mmae4m3f16.13 E4M3F16 3c00 | 0:8*10 1:4*8 | sm_90=3c01
P13.mmae4m3f16.14 E4M3F16 3c00 | 0:8*10 1:4*4 | sm_90=3c01
# fp8 leaves C alone, or not
P16.mmaC E4M3 3fffffff |  | sm_90=3fffffff sm_100=3fffffff sm_120=3fffffff sm_89=3ffffc00
# m8n8k4 in software
P20.rn QUAD 0 | 0:3c00*3c00 1:e00*c00 | sm_90=3f800001 sm_80=3f800001 sm_70=3f800000 sm_75=3f800000
P20.clast QUAD bf800000 | 0:3c00*3c00 1:e00*c00 | sm_90=34000000 sm_70=0
P20.f16 QUADF16 0 | 0:3c00*3c00 1:2400*2800 2:2000*2400 | sm_90=3c01
# sparse: every stored product in one step
S1.sp_f16k32 SP_F16K32 0 | count 7800 3c00 16 0 1 | sm_90=0
S1.sp_f16k16 SP_F16K16 0 | count 7800 3c00 8 0 1 | sm_90=0
S1.sp_tf32k16 SP_TF32 0 | count 47000000 3f800000 8 0 1 | sm_90=0
S1.sp_bf16k32 SP_BF16 0 | count 4700 3f80 16 0 1 | sm_90=0
S2.sp_f16k32.F24 SP_F16K32 0 | 0:3c00*3c00 1:bc00*3c00 15:c00*c00 | sm_90=33800000
S2.sp_f16k32.F25 SP_F16K32 0 | 0:3c00*3c00 1:bc00*3c00 15:800*c00 | sm_90=33000000
S2.sp_f16k32.F26 SP_F16K32 0 | 0:3c00*3c00 1:bc00*3c00 15:800*800 | sm_90=0
"""
INSTRUCTIONS = {
    "F16": F16,
    "F16K8": F16K8,
    "F16F16": F16F16,
    "BF16": BF16,
    "TF32": TF32,
    "WMMA_TF32": WMMA_TF32,
    "WMMA_F16": WMMA_F16,
    "WMMA_F16F16": WMMA_F16F16,
    "E4M3": E4M3,
    "E4M3F16": E4M3F16,
    "E5M2": E5M2,
    "QUAD": QUAD,
    "QUADF16": QUADF16,
    "SP_F16K32": SP_F16K32,
    "SP_F16K16": SP_F16K16,
    "SP_TF32": SP_TF32,
    "SP_BF16": SP_BF16,
}


def read_probes():
    """One case per probe and architecture."""
    for line in PROBES.splitlines():
        if not line or line.startswith("#"):
            continue
        asked, terms, results = line.split("|")
        name, form, c = asked.split()
        for result in results.split():
            arch, expected = result.split("=")
            yield pytest.param(
                INSTRUCTIONS[form], int(c, 16), read_terms(terms), arch, int(expected, 16), id=f"{name}-{arch}"
            )


def run(twin, asked, arch, c, terms):
    """One dot product: A has one row, B one column."""
    rule = rule_of(asked, arch)
    a = np.zeros((1, 1, rule.stored), code_type(rule.a))
    b = np.zeros((1, rule.k, 1), code_type(rule.b))
    columns = np.arange(rule.k)
    extra = {}
    if rule.is_sparse:  # the first two of each four columns, or the first of each two
        places = np.arange(rule.stored)
        columns = 2 * places if rule.a == "tf32" else 4 * (places // 2) + places % 2
        extra["columns"] = columns.reshape(1, 1, -1).astype(np.int32)
    for k, (code_a, code_b) in terms.items():
        a[0, 0, k] = code_a
        b[0, columns[k], 0] = code_b
    return int(TWINS[twin](rule, a, b, np.full((1, 1, 1), c, code_type(rule.c)), **extra)[0, 0, 0])


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("asked", "c", "terms", "arch", "expected"), list(read_probes()))
def test_probe(twin, asked, c, terms, arch, expected):
    assert f"{run(twin, asked, arch, c, terms):x}" == f"{expected:x}"


S8 = instruction("mma", "m16n8k32", "s32.s8.s8.s32")
S8_CLAMPED = instruction("mma", "m16n8k32", "s32.s8.s8.s32", satfinite=True)
S4_CLAMPED = instruction("mma", "m16n8k64", "s32.s4.s4.s32", satfinite=True)
XOR = instruction("mma", "m16n8k256", "s32.b1.b1.s32", bitop="xor")
AND = instruction("mma", "m16n8k256", "s32.b1.b1.s32", bitop="and")
MAX = 0x7FFFFFFF
A5 = [1, 0, 1, 0, 0, 1, 0, 1] * 32
F0 = [1, 1, 1, 1, 0, 0, 0, 0] * 32
INTEGER_PROBES = [
    ("I1", S8_CLAMPED, MAX, [127] * 16 + [0x81] * 16, [127] * 32, MAX),
    ("I2", S8_CLAMPED, MAX, [127, 0x81] * 16, [127] * 32, MAX),
    ("I3.wrap", S8, MAX, [127] * 32, [127] * 32, -2146967521 % 2**32),
    ("I3.sat", S8_CLAMPED, MAX, [127] * 32, [127] * 32, MAX),
    ("I4", S4_CLAMPED, MAX, [7] * 32 + [9] * 32, [7] * 64, MAX),
    ("I5.xor", XOR, 0, A5, F0, 128),
    ("I5.and", AND, 0, A5, F0, 64),
]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("name", "asked", "c", "a", "b", "expected"), INTEGER_PROBES)
def test_integer_probe(twin, name, asked, c, a, b, expected):
    assert run(twin, asked, "sm_90", c, dict(enumerate(zip(a, b, strict=True)))) == expected, name


def f64(number):
    """The code of a float64."""
    return int(np.float64(number).view(np.uint64))


ONE = f64(1.0)
QUIET = 0x7FF8000000000000
DOUBLE_PROBES = [
    ("D1.order", "", 0, [(ONE, ONE), (f64(2.0**53), ONE), (f64(-(2.0**53)), ONE), (ONE, ONE)], ONE),
    ("D3.fused", "", f64(-(1 + 2.0**-51)), [(f64(1 + 2.0**-52), f64(1 + 2.0**-52))], f64(2.0**-104)),
    ("D4.payload", "", 0, [(QUIET | 0x123, ONE)], QUIET | 0x123),
    ("D4.quieted", "", 0, [(0x7FF0000000000001, ONE)], 0x7FF8000000000001),
    ("D4.sign", "", 0, [(0xFFF0000000000001, ONE)], 0xFFF8000000000001),
    ("D4.made", "", 0, [(f64(np.inf), 0)], 0xFFF8000000000000),
    ("D4.inf-inf", "", f64(-np.inf), [(f64(np.inf), ONE)], 0xFFF8000000000000),
    ("D4.b>a", "", 0, [(QUIET | 1, QUIET | 2)], QUIET | 2),
    ("D4.b>c", "", QUIET | 3, [(ONE, QUIET | 2)], QUIET | 2),
    ("D4.c>a", "", QUIET | 3, [(QUIET | 1, ONE)], QUIET | 3),
    ("D5.-0", "", f64(-0.0), [(f64(-0.0), ONE)] * 4, f64(-0.0)),
    ("rn.tie", "", ONE, [(f64(2.0**-53), ONE)], ONE),
    ("rz", "rz", ONE, [(f64(2.0**-53 * 1.5), ONE)], ONE),
    ("rp", "rp", ONE, [(f64(2.0**-1000), ONE)], ONE + 1),
    ("rm", "rm", ONE, [(f64(-(2.0**-1000)), ONE)], ONE - 1),
    ("rm.zero", "rm", ONE, [(f64(-1.0), ONE)], f64(-0.0)),
    ("rz.overflow", "rz", 0, [(f64(2.0**1000), f64(2.0**1000))], f64(np.finfo(np.float64).max)),
    ("rp.overflow", "rp", 0, [(f64(2.0**1000), f64(2.0**1000))], f64(np.inf)),
    ("rp.carry", "rp", ONE, [(f64(np.finfo(np.float64).max), f64(2.0))], f64(np.inf)),  # just under 2**1025
    ("rm.carry", "rm", f64(-1.0), [(f64(np.finfo(np.float64).max), f64(-2.0))], f64(-np.inf)),
    ("rz.carry", "rz", ONE, [(f64(np.finfo(np.float64).max), f64(2.0))], f64(np.finfo(np.float64).max)),
    ("rp.tiny", "rp", 0, [(f64(2.0**-1000), f64(2.0**-1000))], 1),
]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("name", "rounding", "c", "terms", "expected"), DOUBLE_PROBES)
def test_double_probe(twin, name, rounding, c, terms, expected):
    asked = instruction("mma", "m8n8k4", "f64.f64.f64.f64", rounding=rounding)
    filled = {k: (f64(0.0), f64(0.0)) for k in range(4)} | dict(enumerate(terms))
    if name.endswith(".zero") or expected == f64(-0.0):  # +0 products would turn -0 into +0 when rounding to nearest
        filled = dict(enumerate(terms)) | {k: (f64(-0.0), ONE) for k in range(len(terms), 4)}
    assert f"{run(twin, asked, 'sm_90', c, filled):x}" == f"{expected:x}", name


SCALED = instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32", kind="mxf8f6f4", scale_vec="1X", scale_type="ue8m0")
NVFP4 = instruction("mma", "m16n8k64", "f32.e2m1.e2m1.f32", kind="mxf4nvf4", scale_vec="4X", scale_type="ue4m3")


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(
    ("asked", "scales", "expected"),
    [
        (SCALED, (0x7F, 0x7F), 0x3F800000),  # 2**0
        (SCALED, (0x80, 0x7E), 0x3F800000),  # 2**1 * 2**-1
        (SCALED, (0x00, 0x7F), 0x00400000),  # 2**-127: a scale has no subnormals, the result has
        (SCALED, (0xFF, 0x7F), 0x7FFFFFFF),  # NaN
        (NVFP4, (0x38, 0x38), 0x3F800000),
        (NVFP4, (0xB8, 0x38), 0x3F800000),  # the sign of a scale is not read
        (NVFP4, (0x01, 0x38), 0x3B000000),  # a subnormal scale, 2**-9
        (NVFP4, (0x00, 0x38), 0x00000000),
        (NVFP4, (0x7F, 0x38), 0x7FFFFFFF),
    ],
)
def test_scale_probe(twin, asked, scales, expected):
    rule = rule_of(asked, "sm_120")
    one = 0x38 if rule.a == "e4m3" else 2
    a = np.zeros((1, 1, rule.k), np.uint8)
    b = np.zeros((1, rule.k, 1), np.uint8)
    a[0, 0, 0] = b[0, 0, 0] = one
    count = rule.scales
    scale_a = np.full((1, 1, count), scales[0], np.uint8)
    scale_b = np.full((1, count, 1), scales[1], np.uint8)
    found = TWINS[twin](rule, a, b, np.zeros((1, 1, 1), np.uint32), scale_a=scale_a, scale_b=scale_b)
    assert f"{int(found[0, 0, 0]):x}" == f"{expected:x}"
