"""The compiled engine: segments of a program become machine code with vector operations; the interpreter runs the rest.

Compilation: `segments` cuts a program into segments, sequences of instructions that can be compiled; `register_flow`
finds the registers that a segment must write back. `warp_code` builds the LLVM code that runs a segment for one warp
with `ir_builder` and `lane_loop`. It uses `lane_ops` and `sfu_code` for lane arithmetic, `warp_ops` for operations
across lanes, `memory_access` and `store_overlaps` for memory, and `register_marks` for unwritten registers.
`llvm_compiler` compiles the module, caches object files on disk and loads them. These modules need llvmlite; without
it, kernels are interpreted.

Execution: `engine` is the batch of warps that runs compiled code; `scheduler.c` decides which lanes run next and calls
their code; `mma_issue` issues mma and wgmma, which `pending_mma` joins into large products with `operand_tiles.c`;
`box_copies` copies boxes and updates mbarriers for many lanes at once with `bulk_copies.c`. With `screening` and
`access_screen.c`, compiled code can prove that a launch needs no checks. `c_functions` declares the C functions;
`context` and `context.h` name the 64-bit words that C, Python and compiled code share.
"""
