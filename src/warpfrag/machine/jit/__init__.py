"""The compiled engine: runs of instructions become machine code over 32-lane vectors; the interpreter runs the rest.

Compilation: `segments` cuts a program into runs of instructions that can be compiled, with the help of `register_flow`;
`warp_code` builds the LLVM code of a run for one warp with `ir_builder`, using `lane_ops` and `sfu_code` for lane
arithmetic and `memory_access` and `store_overlaps` for memory; `llvm_compiler` compiles the module, caches object files
on disk and loads them. These modules need llvmlite; without it, kernels are interpreted.

Execution: `engine` is the batch of warps that runs compiled code; `scheduler.c` decides which lanes run next and calls
their code; `mma_issue` issues mma and wgmma, which `pending_mma` joins into large products with `operand_tiles.c`;
`box_copies` copies boxes and updates mbarriers for many lanes at once with `bulk_copies.c`. With `screening` and
`access_screen.c`, compiled code can prove that a launch needs no checks. `c_functions` declares the C functions;
`context` and `context.h` name the 64-bit words that C, Python and compiled code share.
"""
