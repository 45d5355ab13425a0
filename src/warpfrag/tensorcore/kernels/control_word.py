"""The floating-point environment of a kernel: its own while it runs, the caller's before and after.

The control word of a thread (MXCSR on x86, FPCR on ARM) says how floats are rounded, whether subnormals are flushed
to zero, and what traps. A kernel that computes with floats begins with `enter_environment` and ends with
`restore_environment`. Between the two it allocates nothing and calls nothing that can fail; and Python raises an
interrupt only after it. So the caller always gets its own word back.

LLVM takes float operations to be the same everywhere, and may move them across a change of the word. Each change is
fenced, which is no machine code but holds loads and stores in place: so what lies between two changes must depend on
a load there, and be stored there. LLVM promises no more than that, so no kernel is used before `backends.canary` has
compared its codes with the reference's.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import alloca_once

from warpfrag.tensorcore.kernels import processor as target
from warpfrag.tensorcore.kernels.jit import Int, inlined
from warpfrag.tensorcore.kernels.llvm_helpers import Lowering, Numba, Values, typed_intrinsic

MACHINE: Final = target.machine()

# The whole word for each rounding direction: nothing flushed, nothing traps. Elsewhere, the number LLVM gives it.
_WORDS = {
    "x86": {"rn": 0x1F80, "rm": 0x3F80, "rp": 0x5F80, "rz": 0x7F80},
    "arm": {"rn": 0, "rp": 1 << 22, "rm": 2 << 22, "rz": 3 << 22},
    "": {"rz": 0, "rn": 1, "rp": 2, "rm": 3},
}[MACHINE]
CONTROL_WORDS: Final = {direction: np.int64(word) for direction, word in _WORDS.items()}
TO_NEAREST: Final = CONTROL_WORDS["rn"]
TOWARDS_ZERO: Final = CONTROL_WORDS["rz"]

_BYTES = ir.IntType(8).as_pointer()
_WORD, _LONG = ir.IntType(32), ir.IntType(64)


@typed_intrinsic
def read_control_word(_typing_context: Numba) -> Lowering:
    """The control word of this thread."""

    def emit(_context: Numba, builder: ir.IRBuilder, _signature: Numba, _arguments: Values) -> ir.Value:
        if MACHINE == "x86":
            slot = alloca_once(builder, _WORD)
            signature = ir.FunctionType(ir.VoidType(), [_BYTES])
            function = builder.module.declare_intrinsic("llvm.x86.sse.stmxcsr", (), signature)
            builder.call(function, [builder.bitcast(slot, _BYTES)])
            return builder.zext(builder.load(slot), _LONG)
        if MACHINE == "arm":
            function = builder.module.declare_intrinsic("llvm.aarch64.get.fpcr", (), ir.FunctionType(_LONG, []))
            return builder.call(function, [])
        function = builder.module.declare_intrinsic("llvm.get.rounding", (), ir.FunctionType(_WORD, []))
        return builder.zext(builder.call(function, []), _LONG)

    return types.int64(), emit


@typed_intrinsic
def write_control_word(_typing_context: Numba, _word: types.Integer) -> Lowering:
    """Set the control word of this thread."""

    def emit(context: Numba, builder: ir.IRBuilder, _signature: Numba, arguments: Values) -> ir.Value:
        builder.fence("seq_cst", targetscope="singlethread")
        if MACHINE == "x86":
            slot = alloca_once(builder, _WORD)
            builder.store(builder.trunc(arguments[0], _WORD), slot)
            signature = ir.FunctionType(ir.VoidType(), [_BYTES])
            function = builder.module.declare_intrinsic("llvm.x86.sse.ldmxcsr", (), signature)
            builder.call(function, [builder.bitcast(slot, _BYTES)])
        elif MACHINE == "arm":
            signature = ir.FunctionType(ir.VoidType(), [_LONG])
            function = builder.module.declare_intrinsic("llvm.aarch64.set.fpcr", (), signature)
            builder.call(function, arguments)
        else:
            signature = ir.FunctionType(ir.VoidType(), [_WORD])
            function = builder.module.declare_intrinsic("llvm.set.rounding", (), signature)
            builder.call(function, [builder.trunc(arguments[0], _WORD)])
        builder.fence("seq_cst", targetscope="singlethread")
        return context.get_dummy_value()

    return types.void(types.int64), emit


@inlined
def enter_environment(word: Int) -> Int:
    """Set this thread's control word; return the caller's word, for `restore_environment`."""
    caller = read_control_word()
    write_control_word(word)
    return caller


@inlined
def restore_environment(caller: Int) -> None:
    """Restore the control word that `enter_environment` returned."""
    write_control_word(caller)
