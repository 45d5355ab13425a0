"""Rows of tcgen05: products, loads, stores and copies of tensor memory, and what allocates and orders them.

Which words go together is known to `isa.tcgen05`; here is only who runs an instruction. All of it is done when it is
issued: a commit tells its mbarrier at once, and waits and fences have nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import ParseError
from warpfrag.isa.tcgen05_spelling import read_words
from warpfrag.ptx.opcodes.rows import required, row
from warpfrag.ptx.program.actions import Action, Refused, TensorThreadOp, TensorWarpOp

if TYPE_CHECKING:
    from warpfrag.ptx.program.attributes import Attributes
    from warpfrag.ptx.program.opcode import OpcodeRow

TENSOR_MEMORY = "PTX ISA, TensorCore 5th Generation Family Instructions"
UNMODELLED = {
    "decompress": "nobody has published how a look-up table expands B",
    "selection": "nobody has published which elements it keeps in which register",
}
"""Groups of words with which an instruction is not run, and why."""


def _tensor_op(attributes: Attributes) -> Action:
    """The action of a spelling: of a thread, or of a warp where the words say .sync."""
    try:
        spelling = read_words(attributes.name.split(".")[1:])
    except ParseError as error:
        return Refused(str(error))
    if spelling.problem:
        return Refused(f"{attributes.name}: {spelling.problem}")
    for group, reason in UNMODELLED.items():
        if spelling.word(group):
            return Refused(f"{attributes.name} is not modelled: {reason}")
    if spelling.kind == "ti16":
        return Refused(f"{attributes.name} is not modelled: nobody has published what kind::ti16 multiplies")
    return TensorWarpOp(spelling) if spelling.word("sync") else TensorThreadOp(spelling)


WITHOUT_RESULT = (
    "mma", "st", "cp", "shift", "alloc", "dealloc", "relinquish_alloc_permit", "commit", "wait::ld", "wait::st",
    "fence::before_thread_sync", "fence::after_thread_sync",
)  # fmt: skip
ROWS: list[OpcodeRow] = [
    row("tcgen05", [], _tensor_op, TENSOR_MEMORY, any_words=True, operation=required("ld")),
    row(
        "tcgen05", [], _tensor_op, TENSOR_MEMORY, has_result=False, any_words=True, operation=required(*WITHOUT_RESULT)
    ),
]
