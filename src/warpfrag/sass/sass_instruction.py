"""The types of a decoded machine instruction: guard, opcode, modifiers, typed operands and encoding."""

from dataclasses import dataclass

from warpfrag.machine.ir.program import SourceLine

INSTRUCTION_BYTES = 16
ZERO_INDEX = 255
"""The index of RZ and URZ on every architecture."""
TRUE_INDEX = 7
"""The index of PT and UPT."""


@dataclass(frozen=True, slots=True)
class RegisterOperand:
    """A register or predicate operand with its modifiers.

    `file` is R, UR (uniform), P, UP, B (convergence barrier), SB (scoreboard), gsb (wgmma scoreboard), PR and UPR (all
    predicates as one word), or Rpc. `invert` stands for `!` on predicates and `~` on registers. `selector` is the text
    after the dot: H0_H0, H1_H1, B1, SIGN, 64, U32, X4, ROW; cache hints (.reuse) are removed.
    """

    file: str
    index: int = 0
    negate: bool = False
    absolute: bool = False
    invert: bool = False
    selector: str = ""

    @property
    def is_constant(self) -> bool:
        """True for RZ and URZ, which are 0, and for PT and UPT, which are true."""
        return self.index == (TRUE_INDEX if self.file in {"P", "UP"} else ZERO_INDEX)


@dataclass(frozen=True, slots=True)
class ImmediateOperand:
    """An immediate; `value` is its unsigned code, in 32 bits or, if necessary, 64.

    A floating-point immediate is an f32 code, the upper word of an f64 code, an f16 or bf16 code, or a pair of those
    with the second in the low half, depending on the opcode. `is_float` is True if the disassembler prints it as a
    float.
    """

    value: int
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class ConstantOperand:
    """A word in a constant bank: c[bank][base + offset], or cx[descriptor][base + offset] with `bank` None."""

    bank: int | None
    offset: int = 0
    base: RegisterOperand | None = None
    descriptor: RegisterOperand | None = None
    negate: bool = False
    absolute: bool = False
    invert: bool = False
    selector: str = ""


@dataclass(frozen=True, slots=True)
class AddressOperand:
    """A memory address or descriptor: prefix[descriptor][base + uniform + offset].suffixes.

    `prefix` is "", desc, gdesc (wgmma), idesc or tmem. `base` is a vector register whose selector is its width or scale
    (64, U32, X4); `uniform` is a uniform register. Examples of `suffixes` are tnspB and negA.
    """

    prefix: str
    base: RegisterOperand | None = None
    uniform: RegisterOperand | None = None
    offset: int = 0
    descriptor: RegisterOperand | None = None
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpecialRegisterOperand:
    """A special register such as SR_TID.X."""

    name: str


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """A code address: `address`, plus the value of `register` for indirect branches and returns.

    `address` is relative to the start of the function's code; for an absolute branch, it is the encoded value.
    """

    address: int
    register: RegisterOperand | None = None


@dataclass(frozen=True, slots=True)
class KeywordOperand:
    """A keyword, such as the shape 2D of a texture access."""

    name: str


Operand = (
    RegisterOperand
    | ImmediateOperand
    | ConstantOperand
    | AddressOperand
    | SpecialRegisterOperand
    | CodeTarget
    | KeywordOperand
)


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One machine instruction: its byte address in the function, its operands, and the disassembler's text for it.

    `guard` is the predicate before the opcode; `encoding` is the 128-bit encoding as an integer. `source` is the source
    line of the instruction, if the cubin has line information.
    """

    address: int
    guard: RegisterOperand | None
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    text: str
    encoding: int
    source: SourceLine | None = None

    def __str__(self) -> str:
        """Format the address, the source line and the disassembler's text."""
        return f"{address_text(self.address, self.source)}: {self.text}"

    @property
    def spelling(self) -> str:
        """The opcode, its modifiers and the form of each operand, such as `FFMA.FTZ R,R,-c,|R|`.

        Evidence is counted by spelling. Register numbers, immediates and offsets are left out. Zero registers are named
        only if no other register is a source, because then all operands are constants.
        """
        forms = [form_of(operand) for operand in self.operands]
        registers = [
            number
            for number, operand in enumerate(self.operands)
            if number and isinstance(operand, RegisterOperand) and operand.file in {"R", "UR"}
        ]
        if all(getattr(self.operands[number], "is_constant", False) for number in registers):
            for number in registers:
                forms[number] = forms[number].replace("R", "RZ")
        return " ".join((".".join((self.opcode, *self.modifiers)), ",".join(forms))).rstrip()


def address_text(address: int, source: SourceLine | None) -> str:
    """Return an address in hexadecimal, with its source line if known.

    >>> address_text(112, SourceLine("sum.cu", 5))
    '0x70 (sum.cu:5)'
    """
    return f"{address:#x} ({source})" if source else f"{address:#x}"


def form_of(operand: Operand) -> str:
    """Return the form of an operand: its type and modifiers, without register numbers and values."""
    if isinstance(operand, RegisterOperand):
        return _modified(operand, operand.file)
    if isinstance(operand, ImmediateOperand):
        return "imm"
    if isinstance(operand, ConstantOperand):
        name = "c" if operand.descriptor is None else "cx"
        return _modified(operand, name if operand.base is None else f"{name}[{form_of(operand.base)}]")
    if isinstance(operand, AddressOperand):
        registers = (operand.descriptor, operand.base, operand.uniform)
        inside = "+".join(form_of(register) for register in registers if register is not None)
        return ".".join((f"{operand.prefix}[{inside}]", *operand.suffixes))
    if isinstance(operand, CodeTarget):
        return "target" if operand.register is None else f"{form_of(operand.register)}+target"
    return operand.name


def _modified(operand: RegisterOperand | ConstantOperand, name: str) -> str:
    """Return an operand's name with its sign, absolute value, inversion and selector."""
    text = f"{name}.{operand.selector}" if operand.selector else name
    text = f"|{text}|" if operand.absolute else text
    return "-" * operand.negate + "~" * operand.invert + text
