"""Parse one line of nvdisasm's text into a SassInstruction.

Floating-point immediates are read from the encoding, because the text does not show the payload of a NaN. Text that
does not follow the grammar raises a SassError with the address.
"""

import math
import re
import struct
from functools import lru_cache

from warpfrag.errors import SassError, quote
from warpfrag.sass.sass_instruction import (
    INSTRUCTION_BYTES,
    TRUE_INDEX,
    ZERO_INDEX,
    AddressOperand,
    CodeTarget,
    ConstantOperand,
    ImmediateOperand,
    KeywordOperand,
    Operand,
    RegisterOperand,
    SassInstruction,
    SpecialRegisterOperand,
)

LINE = re.compile(r"(?:@(?P<guard>!?U?P[0-6T])\s+)?(?P<opcode>[A-Z]\w*)(?P<modifiers>(?:\.\w+)*)(?:\s+(?P<rest>\S.*))?")
REGISTER = re.compile(
    r"(?P<negate>-?)(?P<invert>[~!]?)(?P<open>\|?)(?:(?P<file>UR|R|UP|P|SB|B|gsb)(?P<index>[0-9]{1,3}|Z|T)|(?P<whole>U?PR|Rpc))"
    r"(?P<inner>(?:\.\w+)*)(?P<close>\|?)(?P<selector>(?:\.\w+)*)"
)
HEX = re.compile(r"(-?)0x([0-9a-f]{1,16})")
FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|INF|QNAN|SNAN)")
BRACKETS = re.compile(
    r"(?P<negate>-?)(?P<invert>~?)(?P<open>\|?)(?P<prefix>[a-z]*)(?P<groups>(?:\s*\[[^\[\]]*\])+)"
    r"(?P<close>\|?)(?P<suffixes>(?:\.\w+)*)"
)
SPECIAL = re.compile(r"SR(?:Z|[0-9]+|_\w+(?:\.\w+)*)")
# Texture shapes, sources of BMOV, signs of FSWZADD, and scoreboards of DEPBAR.
KEYWORD = re.compile(
    r"(?:ARRAY_|A)?[123]D|(?:ARRAY_|A)?CUBE|MACTIVE|MEXITED|MKILL|MATEXIT|OPT_STACK|API_CALL_DEPTH|"
    r"(?:THREAD_STATE_ENUM|TRAP_RETURN_PC|TRAP_RETURN_MASK|ATEXIT_PC)(?:\.\w+)*|[NPZ]{8}|\{[0-9](?:,[0-9])*\}"
)
SEPARATOR = re.compile(r",(?![^{]*\})")  # commas, except those in braces, such as {3,2,1}
INDIRECT = re.compile(r"(\S+)\s+(-?0x[0-9a-f]+)")
BRANCHES = frozenset({"BRA", "BRX", "BRXU", "BSSY", "CALL", "JMP", "JMX", "JMXU", "LEPC", "RET"})
OFFSET_BRANCHES = frozenset({"BRX", "BRXU"})  # opcodes whose text gives the distance from the next instruction
BRACKET_COUNTS = {"c": (2,), "cx": (2,), "desc": (1, 2)}
ZERO_NAMES = {"R": "Z", "UR": "Z", "P": "T", "UP": "T"}


def has_target(opcode: str, modifiers: str) -> bool:
    """Return True if an instruction's last number is a code address."""
    return opcode in BRANCHES or (opcode == "WARPSYNC" and "COLLECTIVE" in modifiers)


def parse_instruction(text: str, address: int, encoding: int) -> SassInstruction:
    """Parse the instruction at an address; raise SassError if the text does not follow the grammar."""
    match = LINE.fullmatch(text)
    if not match:
        shown = quote(text) if text else f"{encoding:#034x}, for which the disassembler prints no text"
        raise SassError(address, f"cannot parse the instruction {shown}")
    guard, opcode, modifiers, rest = match.group("guard", "opcode", "modifiers", "rest")
    try:
        operands = _parse_operands(rest, encoding >> 32 & 0xFFFFFFFF) if rest else ()
        if operands and has_target(opcode, modifiers):
            operands = (*operands[:-1], _target(opcode, operands[-1], address))
    except ValueError as error:
        raise SassError(address, f"cannot parse the instruction {quote(text)}: {error}") from None
    return SassInstruction(
        address, _register(guard) if guard else None, opcode, tuple(modifiers.split(".")[1:]), operands, text, encoding
    )


@lru_cache(1 << 16)
def _parse_operands(text: str, word: int) -> tuple[Operand, ...]:
    """Parse the operands of an instruction; `word` is the 32-bit immediate field of its encoding."""
    operands: list[Operand] = []
    floats: list[str] = []
    for part in map(str.strip, SEPARATOR.split(text)):
        if FLOAT.fullmatch(part):
            if not floats:
                operands.append(ImmediateOperand(word, is_float=True))  # two 16-bit halves form one immediate
            floats.append(part)
        else:
            operands.append(_operand(part))
    if floats and not _matches(floats, word):
        raise ValueError(f"the immediate {', '.join(floats)} is not the encoded word {word:#x}")
    return tuple(operands)


@lru_cache(1 << 14)
def _operand(text: str) -> Operand:
    """Parse one operand, unless it is a floating-point immediate."""
    if REGISTER.fullmatch(text):
        return _register(text)
    if number := HEX.fullmatch(text):
        return ImmediateOperand(_integer(number))
    if "[" in text:
        return _bracketed(text)
    if SPECIAL.fullmatch(text):
        return SpecialRegisterOperand(text)
    if KEYWORD.fullmatch(text):
        return KeywordOperand(text)
    if indirect := INDIRECT.fullmatch(text):
        return CodeTarget(int(indirect[2], 16), _register(indirect[1]))
    raise ValueError(f"{quote(text)} is not a known operand")


def _register(text: str) -> RegisterOperand:
    match = REGISTER.fullmatch(text)
    if not match or bool(match["open"]) != bool(match["close"]):
        raise ValueError(f"{quote(text)} is not a register")
    file, name = match["file"] or match["whole"], match["index"] or "0"
    if not name.isdigit() and ZERO_NAMES.get(file) != name:
        raise ValueError(f"{quote(text)} is not a register")
    index = int(name) if name.isdigit() else TRUE_INDEX if name == "T" else ZERO_INDEX
    return RegisterOperand(
        file,
        index,
        bool(match["negate"]),
        bool(match["open"]),
        bool(match["invert"]),
        _selector(match["inner"] + match["selector"]),
    )


def _selector(text: str) -> str:
    return ".".join(word for word in text.split(".")[1:] if word != "reuse")


def _integer(number: re.Match[str]) -> int:
    """Return the two's complement code of a signed hexadecimal number, with 32 bits or, if necessary, 64."""
    magnitude = int(number[2], 16)
    return (-magnitude if number[1] else magnitude) & (0xFFFFFFFF if magnitude >> 32 == 0 else (1 << 64) - 1)


def _bracketed(text: str) -> ConstantOperand | AddressOperand:
    """Parse an operand in brackets, which is a constant or an address."""
    match = BRACKETS.fullmatch(text)
    if not match or bool(match["open"]) != bool(match["close"]):
        raise ValueError(f"{quote(text)} is not a constant or an address")
    prefix, groups = match["prefix"], re.findall(r"\[([^\[\]]*)\]", match["groups"])
    if len(groups) not in BRACKET_COUNTS.get(prefix, (1,)):
        raise ValueError(
            f"{quote(text)} has {len(groups)} pairs of brackets, which {prefix or 'an address'} does not take"
        )
    base, uniform, offset = _address_terms(groups[-1])
    first = groups[0] if len(groups) == 2 else ""
    if prefix not in {"c", "cx"}:
        if match["negate"] or match["invert"] or match["open"]:
            raise ValueError(f"{quote(text)} is an address with an arithmetic modifier")
        suffixes = tuple(match["suffixes"].split(".")[1:])
        return AddressOperand(prefix, base, uniform, offset, _register(first) if first else None, suffixes)
    if base and uniform:
        raise ValueError(f"{quote(text)} has two base registers")
    number = HEX.fullmatch(first)
    if (prefix == "c") != bool(number):
        raise ValueError(f"{quote(text)} is not a constant: expected c[BANK][OFFSET] or cx[REGISTER][OFFSET]")
    return ConstantOperand(
        int(first, 16) if number else None, offset, base or uniform, None if number else _register(first),
        bool(match["negate"]), bool(match["open"]), bool(match["invert"]), _selector(match["suffixes"]),
    )  # fmt: skip


def _address_terms(text: str) -> tuple[RegisterOperand | None, RegisterOperand | None, int]:
    """Parse a sum of address terms into vector register, uniform register and offset."""
    base = uniform = offset = None
    for term in map(str.strip, text.split("+")):
        if HEX.fullmatch(term):
            if offset is not None:
                raise ValueError(f"[{text}] has two offsets")
            offset = int(term, 16)
            continue
        register = _register(term)
        if register.file == "UR" and uniform is None:
            uniform = register
        elif register.file == "R" and base is None:
            base = register
        else:
            raise ValueError(f"[{text}] is not an address")
    return base, uniform, offset or 0


def _target(opcode: str, operand: Operand, address: int) -> Operand:
    """Return the last operand of a branch as a code address; a register is returned unchanged."""
    relative = address + INSTRUCTION_BYTES if opcode in OFFSET_BRANCHES else 0
    if isinstance(operand, ImmediateOperand):
        return CodeTarget(operand.value + relative)
    if isinstance(operand, CodeTarget):
        return CodeTarget(operand.address + relative, operand.register)
    return operand


def _matches(texts: list[str], word: int) -> bool:
    """Return True if the printed floats match the encoded word.

    The word contains one f32, the upper word of an f64, or one or two f16 or bf16 values.
    """
    shown = [float(text.replace("QNAN", "nan").replace("SNAN", "nan")) for text in texts]
    halves = (word >> 16, word & 0xFFFF) if len(shown) == 2 else (word & 0xFFFF,)
    readings = [
        [struct.unpack("<e", struct.pack("<H", half))[0] for half in halves],
        [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves],
    ]
    if len(shown) == 1:
        readings.append([struct.unpack("<f", struct.pack("<I", word))[0]])
        readings.append([struct.unpack("<d", struct.pack("<Q", word << 32))[0]])
    return any(
        len(shown) == len(reading)
        and all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(shown, reading, strict=True))
        for reading in readings
    )
