"""The compiler: runs of instructions become machine code over vectors of 32 lanes; the interpreter runs the others.

From a program to code: `segments` cuts it into runs of instructions that can be compiled, with the help of
`register_flow`; `warp_code` builds the LLVM code of a run for one warp with `ir_builder`, using `lane_ops` and
`sfu_code` for what lanes compute and `memory_access` and `store_overlaps` for memory; `object_cache` compiles the
module and keeps the objects.

To run it: `engine` is the batch of warps that has compiled code, `scheduler` decides which lanes run next and calls it;
`mma_issue` issues mma and wgmma, which `pending_mma` joins to large products with `batch_loops`; `box_copies`
copies boxes and changes mbarriers for many lanes at once. `screening` and `access_screen` let compiled code
prove that a launch needs no check. `context` names the words that compiled code shares with Python.
"""
