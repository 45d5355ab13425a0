"""The compiler: runs of steps become machine code over vectors of 32 lanes; the interpreter runs all other steps.

From a program to code: `segments` cuts it into runs of steps that can be compiled, with the help of `liveness`;
`warp_code` writes the steps of a run for one warp with `ir_builder`, using `lane_ops` and `special_functions` for what
lanes compute and `memory_access`, `async_copies` and `wavefronts` for memory; `object_cache` compiles the text and
keeps the objects. To run it: `engine` is the batch of warps that has compiled code, `scheduler` decides which lanes run
next and calls it, with `lane_masks` and `mbarriers`; `mma_products` and `wgmma_products` issue products that
`pending_products` joins, by `operand_groups` and with `gather`; `box_copies` and `mbarrier_batches` do for many lanes
at once what is asynchronous.
`context` and `scheduler_state` name the words that compiled code shares with Python.
"""
