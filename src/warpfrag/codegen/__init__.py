"""Code under construction: one builder of PTX, one of CUDA C++, and the register operations that both write.

A builder holds the body of one function or kernel. It declares names, takes statements in order, and hands out the
finished lines. What the statements mean is the caller's affair: no builder depends on matrix instructions, operands or
layouts. `emission` writes wrappers, kernels and test programs with them, `motion` its plans.

    >>> from warpfrag.codegen.ptx_builder import PtxBuilder
    >>> code = PtxBuilder()
    >>> lane = code.compute("lane", "mov.u32", "%laneid")
    >>> row = code.compute("row", "shr.u32", lane, 2)
    >>> for line in code.body():
    ...     print(line)
    {
        .reg .b32 %lane, %row;
        mov.u32 %lane, %laneid;
        shr.u32 %row, %lane, 2;
        ret;
    }
    <BLANKLINE>
"""
