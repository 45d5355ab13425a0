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

Top down: `launch` takes arguments, shares blocks out and is the public face; `debugger` runs a launch step by step.
`checks` search for mistakes while the interpreter runs. `compiler` runs steps as machine code, `interpreter` the same
in Python: one is fast, the other readable, and both give the same. `lowering` makes a program of an entry, by a list of
named passes. `opcodes` has a row for every instruction, `semantics` what lanes compute. `program` is what both engines
run: instructions with typed attributes and their actions. `reader` parses the text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from warpfrag.errors import CompilationFailed, MemoryFault, PtxError
from warpfrag.ptx.reader.source_lines import SourceLine

if TYPE_CHECKING:
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
    from warpfrag.ptx.semantics.textures import Surface, Texture

__all__ = [
    "Breakpoint",
    "Comparison",
    "CompilationFailed",
    "Debugger",
    "DeviceArray",
    "Exploration",
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


HOMES = {
    "warpfrag.errors": ("CompilationFailed", "MemoryFault", "PtxError"),
    "warpfrag.ptx.interpreter.kernel_findings": ("KernelAccess", "KernelFinding"),
    "warpfrag.ptx.debugger.stepping": ("Breakpoint", "Stop", "Watchpoint"),
    "warpfrag.ptx.debugger.debugger": ("Debugger", "WarpRegisters"),
    "warpfrag.ptx.debugger.debug_views": ("InstructionView", "OperandValues", "SharedView"),
    "warpfrag.ptx.launch.launch_arguments": ("Unwritten",),
    "warpfrag.ptx.launch.comparison": ("Comparison", "OutputDifference", "TracedInstruction", "compare"),
    "warpfrag.ptx.launch.device_array": ("DeviceArray",),
    "warpfrag.ptx.launch.exploration": ("Exploration",),
    "warpfrag.ptx.launch.kernel": ("Kernel", "Module", "link", "load"),
    "warpfrag.ptx.launch.nvcc": ("compile",),
    "warpfrag.ptx.launch.options": ("LaunchOptions",),
    "warpfrag.ptx.launch.profile": ("LineProfile", "Profile"),
    "warpfrag.ptx.launch.run": ("InexactLine", "Run"),
    "warpfrag.ptx.launch.symbols": ("Symbols",),
    "warpfrag.ptx.launch.tensor_map_argument": ("TensorMap",),
    "warpfrag.ptx.reader.source_lines": ("SourceLine",),
    "warpfrag.ptx.semantics.textures": ("Surface", "Texture"),
}
"""The modules that define the public names."""


def __getattr__(name: str) -> object:
    """Import a public name on first use: a look-up of an instruction must not import numpy."""
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'warpfrag.ptx' has no attribute {name!r}")
    module = import_module(home)
    return getattr(module, "compile_cuda" if name == "compile" else name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
