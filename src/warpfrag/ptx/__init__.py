"""Whole kernels: load PTX and launch its kernels on NumPy arrays, as on a GPU.

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

`ptx_module` loads and links text, `reader` parses it, and the passes of `lowering` translate an entry to a program,
which runs in `warpfrag.machine`. `nvcc` compiles CUDA C++ to PTX.
"""

from warpfrag.errors import CompilationFailed, MemoryFault, PtxError
from warpfrag.machine.debugger.breakpoints import Breakpoint, Stop, Watchpoint
from warpfrag.machine.debugger.debug_views import InstructionView, OperandValues, SharedView
from warpfrag.machine.debugger.debugger import Debugger
from warpfrag.machine.interpreter.kernel_findings import KernelAccess, KernelFinding
from warpfrag.machine.ir.program import SourceLine
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.exploration import Exploration
from warpfrag.machine.launch.kernel import Kernel
from warpfrag.machine.launch.launch_arguments import Unwritten
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.machine.launch.profile import LineProfile, Profile
from warpfrag.machine.launch.run import InexactLine, Run
from warpfrag.machine.launch.symbols import Symbols
from warpfrag.machine.launch.tensor_map_argument import TensorMap
from warpfrag.machine.semantics.textures import Surface, Texture
from warpfrag.ptx.nvcc import compile_cuda as compile  # noqa: A004 (used as wf.ptx.compile)
from warpfrag.ptx.ptx_module import Module, link, load
from warpfrag.smem.tensor_map import Im2col

__all__ = [
    "Breakpoint", "CompilationFailed", "Debugger", "DeviceArray", "Exploration", "Im2col", "InexactLine",
    "InstructionView", "Kernel", "KernelAccess", "KernelFinding", "LaunchOptions", "LineProfile", "MemoryFault",
    "Module", "OperandValues", "Profile", "PtxError", "Run", "SharedView", "SourceLine", "Stop", "Surface", "Symbols",
    "TensorMap", "Texture", "Unwritten", "Watchpoint", "compile", "link", "load",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
