"""Python declarations of the compiled engine's C functions, and checks that they are available.

`scheduler.c` selects the lanes that run next and calls their machine code; `operand_tiles.c` copies the operands of
matrix instructions; `bulk_copies.c` copies boxes and updates mbarriers; `access_screen.c` checks the accesses of a
screened launch.
"""

import ctypes
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

from warpfrag.errors import SlowArithmetic, install_command
from warpfrag.tensorcore.native.library import NativeFunction, library


def _of_widths(name: str, types: str, *widths: int) -> dict[int, NativeFunction]:
    """Declare a C function for each element width; in `types`, {0} is the element width and {1} the code width."""
    return {width: NativeFunction(f"{name}_{width}", types.format(width, max(width, 4))) for width in widths}


run_scheduler = NativeFunction("run_scheduler", "i8[2] i8[1] i8[1] u1[2] b1[3] i8[3] i8[2] i8[1] i8[1] u8[1] b1[1]")
take = _of_widths("take", "u{0}[2] i8[1] i8[1] u{1}[2]", 1, 2, 4, 8)
take_tiles = _of_widths("take_tiles", "u{0}[1] i8[2] i8[2] u{1}[2]", 2, 4, 8)
put_tiles = _of_widths("put_tiles", "u{0}[1] i8[2] i8[2] u{1}[2]", 2, 4, 8)
find_equal = NativeFunction("find_equal", "u8[1] i8[1] i8[2] i8[1] i8[1] u8[1]")
take_units = NativeFunction("take_units", "u8[1] i8[1] i8[2] i8[1] u8[2]")
copy_units = NativeFunction("copy_units", f"{2 * 'i8 i8[1] i8[2] i8[1] '}i8[3] u8[1] u8[1] i8 i8[1]")
advance_mbarriers = NativeFunction("advance_mbarriers", "u8[1] u8[1] i8[1] i8[1] i8[1] i8 u8[1] b1[1] i8[1]")
screen_accesses = NativeFunction("screen_accesses", "i8[1] i8[1] i8[1] i8 i8 i8 i8")
screen_transfers = NativeFunction("screen_transfers", "i8[1] i8[1] i8[1] i8 i8 i8 i8")


@cache
def screen_address() -> int:
    """Return the address of the C function `screen_access`, which compiled code calls."""
    loaded = library()
    if loaded is None:
        raise RuntimeError("a launch is screened, but the compiled library is not available")
    function: Any = loaded.function("screen_access")
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


@cache
def is_available() -> bool:
    """Return True if kernels can be compiled: the C library works on this machine and llvmlite is installed."""
    return library() is not None and find_spec("llvmlite") is not None


@cache
def warn_interpreted() -> None:
    """Warn once that kernels are interpreted because llvmlite is missing."""
    if library() is not None:
        warnings.warn(
            f"kernels are interpreted, because llvmlite is not installed: {install_command('jit')}. "
            "The results are the same, but launches are slower",
            SlowArithmetic,
            stacklevel=4,  # attributes the warning to the caller of `launch`, which is decorated
        )
