"""nvcuda::wmma in Python: wmma code from CUDA C++, transcribed line by line, runs without a GPU.

    >>> import numpy as np
    >>> from warpfrag import wmma
    >>> a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    >>> b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.col_major)
    >>> c = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)
    >>> wmma.fill_fragment(c, 0.0)
    >>> wmma.load_matrix_sync(a, np.eye(16, dtype=np.float16), 16)
    >>> wmma.load_matrix_sync(b, np.arange(256, dtype=np.float16), 16)
    >>> wmma.mma_sync(c, a, b, c)
    >>> memory = np.zeros((16, 16), np.float32)
    >>> wmma.store_matrix_sync(memory, c, 16, wmma.mem_row_major)
    >>> memory[2, 1]
    np.float32(18.0)

Differences from C++: a fragment has the registers of all 32 lanes, so `x` has a second index, the lane; `::` becomes a
dot; `=` between fragments does not copy (use `copy`); behaviour that is undefined in C++ is an error here. Python's own
`float` and `int` stand for the C++ types.
"""

from warpfrag.wmma import experimental
from warpfrag.wmma.pointers import Pointer, ptr
from warpfrag.wmma.wmma_fragments import ElementMap
from warpfrag.wmma.wmma_fragments import Fragment as fragment  # noqa: N813 (C++ spells it so)
from warpfrag.wmma.wmma_operations import fill_fragment, load_matrix_sync, mma_sync, store_matrix_sync
from warpfrag.wmma.wmma_types import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT,
    SIGNED_CHAR,
    UNSIGNED,
    UNSIGNED_CHAR,
    ElementType,
    MatrixLayout,
    MemoryLayout,
    Precision,
    Use,
    float_to_tf32,
)

half = __half = HALF
float = FLOAT  # noqa: A001 (C++ calls it so)
double = DOUBLE
bfloat16 = __nv_bfloat16 = BFLOAT16
signed_char = SIGNED_CHAR
char = SIGNED_CHAR  # the guide says char, the headers say signed char
unsigned_char = UNSIGNED_CHAR
int = INT  # noqa: A001 (C++ calls it so)
unsigned = UNSIGNED
precision = Precision
__float_to_tf32 = float_to_tf32

layout_t = MemoryLayout
matrix_a = Use.matrix_a
matrix_b = Use.matrix_b
accumulator = Use.accumulator
row_major = MatrixLayout.row_major
col_major = MatrixLayout.col_major
mem_row_major = MemoryLayout.mem_row_major
mem_col_major = MemoryLayout.mem_col_major

# The names exported by `from warpfrag.wmma import *`; `float` and `int` would shadow the built-in types.
__all__ = [  # noqa: RUF022 (grouped)
    "fragment", "matrix_a", "matrix_b", "accumulator", "row_major", "col_major", "layout_t", "mem_row_major",
    "mem_col_major", "half", "__half", "double", "bfloat16", "__nv_bfloat16", "char", "signed_char", "unsigned_char",
    "unsigned", "precision", "experimental", "ptr", "load_matrix_sync", "store_matrix_sync", "fill_fragment",
    "mma_sync", "float_to_tf32", "__float_to_tf32", "ElementMap", "ElementType", "Pointer",
]  # fmt: skip
