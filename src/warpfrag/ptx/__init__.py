"""Whole kernels: read PTX, give it numpy arrays, get the memory that the GPU would have left.

    >>> import numpy as np
    >>> import warpfrag as wf
    >>> text = '''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry twice(.param .u64 out)
    ... {
    ...     .reg .b32 %r<3>;
    ...     .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [out];
    ...     mov.u32 %r1, %tid.x;
    ...     shl.b32 %r2, %r1, 1;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret;
    ... }'''
    >>> out = np.zeros(4, np.uint32)
    >>> run = wf.ptx.load(text)["twice"].launch(grid=1, block=4, args=[out])
    >>> out
    array([0, 2, 4, 6], dtype=uint32)
    >>> run.basis, run.exact
    ('ptx', False)

From the top: `launch` takes arguments, distributes blocks and is the public interface; `debugger` steps through a
launch. `checks` search for mistakes while the interpreter runs. `compiler` runs instructions as machine code,
`interpreter` runs the same in Python; both give equal results. `lowering` makes a program of an entry in passes.
`opcodes` has a row for every instruction, `semantics` the functions that lanes compute. `program` is the form that both
engines run: instructions with typed attributes and actions. `reader` parses the text.
"""

from __future__ import annotations

from warpfrag.errors import CompilationFailed, MemoryFault, PtxError
from warpfrag.ptx.debugger.debug_views import InstructionView, OperandValues, SharedView
from warpfrag.ptx.debugger.debugger import Debugger, WarpRegisters
from warpfrag.ptx.debugger.stepping import Breakpoint, Stop, Watchpoint
from warpfrag.ptx.interpreter.kernel_findings import KernelAccess, KernelFinding
from warpfrag.ptx.launch.comparison import Comparison, OutputDifference, TracedInstruction, compare
from warpfrag.ptx.launch.device_array import DeviceArray
from warpfrag.ptx.launch.exploration import Exploration
from warpfrag.ptx.launch.kernel import Kernel, Module, link, load
from warpfrag.ptx.launch.launch_arguments import Unwritten
from warpfrag.ptx.launch.nvcc import compile_cuda as compile  # noqa: A004 (wf.ptx.compile reads as it should)
from warpfrag.ptx.launch.options import LaunchOptions
from warpfrag.ptx.launch.profile import LineProfile, Profile
from warpfrag.ptx.launch.run import InexactLine, Run
from warpfrag.ptx.launch.symbols import Symbols
from warpfrag.ptx.launch.tensor_map_argument import TensorMap
from warpfrag.ptx.reader.source_lines import SourceLine
from warpfrag.ptx.semantics.textures import Surface, Texture
from warpfrag.smem.tensor_map import Im2col

__all__ = [
    "Breakpoint",
    "Comparison",
    "CompilationFailed",
    "Debugger",
    "DeviceArray",
    "Exploration",
    "Im2col",
    "InexactLine",
    "InstructionView",
    "Kernel",
    "KernelAccess",
    "KernelFinding",
    "LaunchOptions",
    "LineProfile",
    "MemoryFault",
    "Module",
    "OperandValues",
    "OutputDifference",
    "Profile",
    "PtxError",
    "Run",
    "SharedView",
    "SourceLine",
    "Stop",
    "Surface",
    "Symbols",
    "TensorMap",
    "Texture",
    "TracedInstruction",
    "Unwritten",
    "WarpRegisters",
    "Watchpoint",
    "compare",
    "compile",
    "link",
    "load",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
