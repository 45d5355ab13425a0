"""Machine code to typed instructions: the grammar of operands, immediates from the encoding, and the cache."""

import struct
import subprocess
from pathlib import Path

import pytest

from oracle import toolkit
from warpfrag import disk_cache
from warpfrag.errors import InvalidOperand, SassError
from warpfrag.sass import disassembler
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.fatbin import read_cubins
from warpfrag.sass.instruction_parser import parse_instruction
from warpfrag.sass.sass_instruction import (
    AddressOperand,
    CodeTarget,
    ConstantOperand,
    ImmediateOperand,
    KeywordOperand,
    RegisterOperand,
    SpecialRegisterOperand,
)

DATA = Path(__file__).parents[1] / "data" / "sass"
R2, R4, UR4 = RegisterOperand("R", 2), RegisterOperand("R", 4), RegisterOperand("UR", 4)
OPERANDS = {
    "R255": RegisterOperand("R", 255),
    "RZ": RegisterOperand("R", 255),
    "URZ": RegisterOperand("UR", 255),
    "!UPT": RegisterOperand("UP", 7, invert=True),
    "-|R4|.reuse": RegisterOperand("R", 4, negate=True, absolute=True),
    "~R4": RegisterOperand("R", 4, invert=True),
    "R4.reuse.H1_H1": RegisterOperand("R", 4, selector="H1_H1"),
    "|UR6.H0_H0|": RegisterOperand("UR", 6, absolute=True, selector="H0_H0"),
    "R4.B1": RegisterOperand("R", 4, selector="B1"),
    "B12": RegisterOperand("B", 12),
    "SB0": RegisterOperand("SB", 0),
    "gsb0": RegisterOperand("gsb", 0),
    "PR": RegisterOperand("PR"),
    "Rpc.HI": RegisterOperand("Rpc", selector="HI"),
    "0x1f": ImmediateOperand(31),
    "-0x1": ImmediateOperand(0xFFFFFFFF),
    "0x123456789": ImmediateOperand(0x123456789),
    "c[0x0][0x28]": ConstantOperand(0, 0x28),
    "-c[0x3][R2+0x10]": ConstantOperand(3, 0x10, R2, negate=True),
    "c[0x0] [0x17c].H0_H0": ConstantOperand(0, 0x17C, selector="H0_H0"),
    "|c[0x2][UR4]|": ConstantOperand(2, 0, UR4, absolute=True),
    "cx[UR4][0x10]": ConstantOperand(None, 0x10, descriptor=UR4),
    "[R2.64+UR4+-0x10]": AddressOperand("", RegisterOperand("R", 2, selector="64"), UR4, -16),
    "[R2.X4+0x8]": AddressOperand("", RegisterOperand("R", 2, selector="X4"), None, 8),
    "[0x8]": AddressOperand("", offset=8),
    "[UR4]": AddressOperand("", uniform=UR4),
    "desc[UR4][R2.64+0x8]": AddressOperand("desc", RegisterOperand("R", 2, selector="64"), None, 8, UR4),
    "desc[UR4]": AddressOperand("desc", uniform=UR4),
    "gdesc[UR4].tnspA.tnspB": AddressOperand("gdesc", uniform=UR4, suffixes=("tnspA", "tnspB")),
    "tmem[UR4+0x40]": AddressOperand("tmem", uniform=UR4, offset=64),
    "SR_TID.X": SpecialRegisterOperand("SR_TID.X"),
    "SRZ": SpecialRegisterOperand("SRZ"),
    "ARRAY_2D": KeywordOperand("ARRAY_2D"),
    "{3,2,1}": KeywordOperand("{3,2,1}"),
}


@pytest.mark.parametrize("text", OPERANDS)
def test_operands_have_types(text):
    instruction = parse_instruction(f"@!P3 OPC.A.B2 R4, {text}", 0x40, 5)
    assert instruction.operands == (R4, OPERANDS[text])
    assert (instruction.guard, instruction.opcode, instruction.modifiers) == (
        RegisterOperand("P", 3, invert=True), "OPC", ("A", "B2"),
    )  # fmt: skip
    assert (instruction.address, instruction.encoding) == (0x40, 5)


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("BRA 0x1b0", (CodeTarget(0x1B0),)),
        ("BRA.U !UP0, 0x20", (RegisterOperand("UP", 0, invert=True), CodeTarget(0x20))),
        ("BSSY.RECONVERGENT B1, 0xa70", (RegisterOperand("B", 1), CodeTarget(0xA70))),
        ("RET.REL.NODEC R4 0x0", (CodeTarget(0, R4),)),
        ("BRX R4 -0x30", (CodeTarget(0x110 - 0x30, R4),)),  # from the next instruction
        ("CALL.ABS.NOINC R4", (R4,)),
        ("WARPSYNC.COLLECTIVE R4, 0x90", (R4, CodeTarget(0x90))),
        ("WARPSYNC 0xf", (ImmediateOperand(15),)),
        ("EXIT", ()),
    ],
)
def test_branches_have_code_addresses(text, operands):
    assert parse_instruction(text, 0x100, 0).operands == operands


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("FFMA R4, R4, -QNAN , R4", 0xFFC12345),
        ("FADD R4, R4, 1.5", 0x3FC00000),
        ("DADD R4, R4, -0.5", 0xBFE00000),
        ("DSETP.GTU.AND P0, PT, R4, +INF , PT", 0x7FF00000),
        ("HFMA2 R4, R4, 1, 2, R4", 0x3C004000),
        ("HFMA2.BF16_V2 R4, R4, 1, -QNAN, R4", 0x3F80FFC1),
        ("MUFU.EX2.F16 R4, 5.9604644775390625e-08", 0x1),
    ],
)
def test_floats_are_the_word_of_the_encoding(text, word):
    instruction = parse_instruction(text, 0, word << 32 | 0x7FFF)
    (immediate,) = [operand for operand in instruction.operands if isinstance(operand, ImmediateOperand)]
    assert immediate == ImmediateOperand(word, is_float=True)
    with pytest.raises(SassError, match="is not the encoded word 0x12345678"):
        parse_instruction(text, 0, 0x12345678 << 32)


@pytest.mark.parametrize(
    "text",
    ["", "mov R1, R2", "MOV R1, R2, %", "MOV R1, |R2", "MOV R1000, R2", "MOV [R2+R4], R2", "MOV [0x1+0x2], R2",
     "MOV c[0x0], R2", "MOV c[R2][0x0], R2", "MOV cx[0x0][0x0], R2", "MOV -[R2], R2", "MOV tmem[UR4][UR4], R2",
     "MOV PZ, R2", "MOV R2,, R2", "MOV c[0x0][R2+UR4], R2", "MOV desc[UR4][UR4][R2], R2", "BRA `(.L_x_1)"],
)  # fmt: skip
def test_other_text_is_an_error_with_its_address(text):
    with pytest.raises(SassError, match=r"^address 0x0120: cannot parse the instruction") as info:
        parse_instruction(text, 0x120, 0)
    assert info.value.address == 0x120


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """An empty cache, and the number of nvdisasm processes."""
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    monkeypatch.setattr(disk_cache, "cache_folders", lambda name: [tmp_path / name])
    started, original = [], disassembler._run_nvdisasm
    monkeypatch.setattr(disassembler, "_run_nvdisasm", lambda *given: started.append(given) or original(*given))
    return started


def code_of(name):
    (cubin,) = read_cubins(DATA / f"{name}.cubin")
    return cubin["globals"].code.data


def test_text_is_cached_by_content_and_never_used_if_damaged(texts, tmp_path):
    code = code_of("globals_sm90")
    first = disassemble([code, b"", code], "sm_90")
    assert first[0] == first[2]
    assert [instruction.address for instruction in first[0]] == list(range(0, len(code), 16))
    assert [instruction.encoding for instruction in first[0]] == [
        low | high << 64 for low, high in struct.iter_unpack("<QQ", code)
    ]
    ffma = first[0][0x1C0 // 16]
    assert (ffma.opcode, ffma.operands[2]) == ("FFMA", ImmediateOperand(0xFFC12345, is_float=True))
    assert first[1] == ()
    assert disassemble([code], "sm_90") == [first[0]]
    assert len(texts) == 1
    for path in (tmp_path / "sass").iterdir():
        path.write_bytes(path.read_bytes().replace(b"FFMA", b"FMUL"))
    assert disassemble([code], "sm_90") == [first[0]]
    assert len(texts) == 2


BRANCHES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry NAME(.param .u64 out, .param .u32 n)
{
    .reg .b64 a; .reg .b32 r<4>; .reg .pred p; .reg .f64 d<3>;
    ld.param.u64 a, [out]; ld.param.u32 r1, [n]; mov.u32 r2, %tid.x;
    setp.gt.u32 p, r2, r1;
loop:
    @p bra done;
    cvt.rn.f64.u32 d1, r2; div.rn.f64 d2, d1, 0d7FF8000000001234; cvt.rzi.u32.f64 r3, d2;
    add.u32 r2, r2, 3; setp.gt.u32 p, r2, r1; bar.warp.sync -1; st.global.u32 [a], r3;
    bra loop;
done:
    st.global.u32 [a], r2; ret;
}
"""


def test_a_function_does_not_depend_on_those_before_it(texts, tmp_path):
    ptxas, _ = toolkit.find_ptxas("sm_90")
    codes = []
    for number in range(3):
        source = BRANCHES.replace("NAME", "k").replace("r2, 3;", f"r2, {'1; add.u32 r2, r2, ' * number}3;")
        (tmp_path / "k.ptx").write_text(source, encoding="utf-8")
        command = [str(ptxas), "-arch=sm_90", "-O1", "-o", str(tmp_path / "k.cubin"), str(tmp_path / "k.ptx")]
        subprocess.run(command, check=True)
        codes.append(read_cubins(tmp_path / "k.cubin")[0]["k"].code.data)
    together = disassemble([code_of("globals_sm90"), *codes], "sm_90")
    (tmp_path / "sass").rename(tmp_path / "used")
    assert [disassemble([code], "sm_90")[0] for code in codes] == together[1:]
    targets = {
        (instruction.opcode, operand.address)
        for instruction in together[-1]
        for operand in instruction.operands
        if isinstance(operand, CodeTarget)
    }
    assert {opcode for opcode, _ in targets} >= {"BRA", "CALL", "RET", "BSSY"}
    assert all(address < len(codes[-1]) for _, address in targets)


def test_code_that_cannot_be_decoded_is_named_with_its_address(texts):
    code = bytearray(code_of("globals_sm90"))
    code[0x40:0x50] = b"\xff" * 16
    with pytest.raises(SassError, match=r"^address 0x0040: nvdisasm [\d.]+ cannot decode this SM90 code: ") as info:
        disassemble([code_of("globals_sm90"), bytes(code)], "sm_90")
    assert info.value.address == 0x40
    with pytest.raises(SassError, match="nvdisasm .* cannot decode this SM75 code"):
        disassemble([bytes(32)], "sm_75")


@pytest.mark.parametrize("arch", ["sm_70", "90", "H100"])
def test_architectures_begin_with_sm_75(texts, arch):
    with pytest.raises(SassError, match=f"expected sm_75 or a later architecture, such as sm_90a, got '{arch}'"):
        disassemble([bytes(16)], arch)
    with pytest.raises(SassError, match="the code has 15 bytes, not a multiple of 16"):
        disassemble([bytes(15)], "sm_90")


def test_machine_code_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("WARPFRAG_LEVEL", "ptx")
    with pytest.raises(InvalidOperand, match="turned off by WARPFRAG_LEVEL=ptx"):
        disassemble([bytes(16)], "sm_90")
