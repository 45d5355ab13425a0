"""The table of all machine opcodes, and the function that emits one instruction."""

from warpfrag.sass.emitter import Emitter, Unsupported
from warpfrag.sass.opcodes import (
    control_opcodes,
    conversion_opcodes,
    float_opcodes,
    integer_opcodes,
    matrix_opcodes,
    memory_opcodes,
)
from warpfrag.sass.opcodes.memory_opcodes import ANY
from warpfrag.sass.opcodes.sass_row import Modifiers, SassRow
from warpfrag.sass.sass_instruction import SassInstruction

MODULES = (
    integer_opcodes, float_opcodes, conversion_opcodes, memory_opcodes, control_opcodes, matrix_opcodes,
)  # fmt: skip
ROWS = {row.opcode: row for module in MODULES for row in module.ROWS}
UNIFORM = {
    f"U{name}": name
    for name in (
        "IADD3", "IMAD", "LEA", "LOP3", "SEL", "ISETP", "PRMT", "FLO", "BREV", "SHF", "SGXT", "POPC", "PLOP3", "MOV",
        "BMSK", "VIADD", "LDC", "IABS", "MNMX",
    )
} | {"UP2UR": "P2R", "UR2UP": "R2P", "LDCU": "LDC"}  # fmt: skip
"""Uniform opcodes, with the per-lane opcodes that are equivalent to them."""


def emit(e: Emitter, inst: SassInstruction) -> None:
    """Emit the operations of a SASS instruction, or an error that is raised if it runs."""
    e.begin(inst)
    spelling = ".".join((inst.opcode, *inst.modifiers))
    try:
        if not e.is_dead:
            _row_of(inst).emit(e, Modifiers(inst), list(inst.operands))
        e.end()
    except Unsupported as error:
        e.refuse(f"{spelling} is not modelled: {error}")
    except (ValueError, IndexError, KeyError, AttributeError) as error:
        e.refuse(f"{spelling} is not modelled: {inst.text} has operands of an unknown form ({error})")


def _row_of(inst: SassInstruction) -> SassRow:
    """Return the row of an instruction; raise Unsupported if its opcode or one of its modifiers is not modelled."""
    row = ROWS.get(UNIFORM.get(inst.opcode, inst.opcode))
    if row is None:
        raise Unsupported(f"{inst.opcode} is not a known opcode")
    unknown = set(inst.modifiers) - row.modifiers
    if unknown and ANY not in row.modifiers:
        raise Unsupported(f"the modifiers .{' .'.join(sorted(unknown))}")
    return row
