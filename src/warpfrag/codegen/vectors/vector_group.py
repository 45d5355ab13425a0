"""A group of test vectors: operand registers, and the registers that must come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.tensorcore.execute import execute_registers
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.tensor_call import TensorCall
from warpfrag.tensorcore.tensor_images import run_images

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.tcgen05_types import TensorMma
    from warpfrag.tensorcore.wgmma_call import WgmmaCall


@frozen_dataclass(eq=False)
class VectorGroup:
    """Test vectors of one kind. `words` holds the registers of each role, `d` what must come out.

    They are uint32[cases, 32, words], metadata and scales uint32[cases, 32]. `catches` says which mistakes change d.
    Of a wgmma, `call` says how it is called; its registers are uint32[cases, 4, 32, words], and `words` has the bytes
    of `shared` memory, uint32[cases, words], in the place of B. Of tcgen05 they are images (`execution.tensor_images`).
    """

    name: str
    catches: str
    words: dict[str, NDArray[np.uint32]]
    d: NDArray[np.uint32]
    choice: Immediates = DEFAULT_IMMEDIATES
    call: WgmmaCall | TensorCall | None = None

    @property
    def cases(self) -> int:
        """How many cases."""
        return len(self.d)

    @property
    def registers(self) -> dict[str, NDArray[np.uint32]]:
        """The registers of every role, `d` the last."""
        return {**self.words, "d": self.d}


def run(
    instruction: Instruction,
    words: Mapping[str, NDArray[np.uint32]],
    choice: Immediates,
    arch: str,
    call: WgmmaCall | TensorCall | None = None,
) -> NDArray[np.uint32]:
    """What the instruction gives for these registers."""
    if isinstance(call, TensorCall):
        return run_images(cast("TensorMma", instruction).form, words, arch, call)
    if call is not None:
        return run_wgmma_cases(instruction, call.stage(words), arch)
    return execute_registers(instruction, words, choice, arch=arch)
