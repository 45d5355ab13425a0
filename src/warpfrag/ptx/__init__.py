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
    >>> run.exact
    True

`syntax` is what a module is, `parser` reads it. `decoder` makes a `program` of one entry: registers, blocks of
instructions and their actions; `variables` says where everything lies. `opcodes/` has a row for every instruction,
`arithmetic/` what lanes compute. `wave` runs warps, `memory` is what they read and write, `barriers` how they wait;
`native/` does the same in native code. `arguments` are what a launch is given, `work` shares blocks out, and `kernel`
is the public face.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpfrag.ptx.launch.kernel import Kernel, Module, Run, load

__all__ = ["Kernel", "Module", "Run", "load"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (any public name)
    """Import a public name on first use."""
    if name not in __all__:
        msg = f"module 'warpfrag.ptx' has no attribute {name!r}"
        raise AttributeError(msg)
    from warpfrag.ptx.launch import kernel

    return getattr(kernel, name)
