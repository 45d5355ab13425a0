"""Generate CUDA C++ and PTX code, and test vectors.

    emit              `wf.emit`: headers, source files and PTX modules for instructions; plans become functions
    cuda_kernels      tile kernels in CUDA C++
    cuda_functions    wrappers, loads and stores in CUDA C++, as device functions
    ptx_kernels       raw kernels in PTX, whose inputs and outputs are registers
    memory_indexing   index formulas of operands in memory, and their ldmatrix and stmatrix copies
    plan_code         functions for relayouts and access plans
    tcgen05_code      tcgen05 kernels in PTX
    vectors           `wf.test_vectors`: operands and expected results that expose mistakes
    operation_texts   the register operations that both builders write

A builder (`cuda_builder`, `ptx_builder`) holds the body of one function or kernel. It declares names, collects
statements in order, and returns the finished lines. It does not depend on matrix instructions, operands or layouts.

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
