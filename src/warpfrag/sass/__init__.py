"""Machine code (SASS): read cubins, fatbins and binaries that contain them, and run their kernels on NumPy arrays.

    module = wf.sass.load("kernel.cubin")
    run = module["k"].launch(grid=4, block=128, args=[x, y, np.int32(n)])

warpfrag executes kernels that you own or that are open source, to test software for NVIDIA GPUs. NVIDIA's closed
libraries are rejected, because their licence forbids disassembly.

`fatbin` and `cubin` read files, `disassembler` decodes a function through nvdisasm, `instruction_parser` reads its
text, `opcodes` has a row for every opcode, and `lowering` translates a function to a program that the machine runs.
"""

from warpfrag.errors import SassError
from warpfrag.sass.sass_instruction import SassInstruction
from warpfrag.sass.sass_module import SassModule, load

__all__ = ["SassError", "SassInstruction", "SassModule", "load"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
