"""Plans that move data between fragments, or between shared memory and a fragment.

Between fragments:

    shuffle_search        the fewest shuffles that a linear map needs
    relayout_operations   operations on registers, their cost, conversions between formats
    relayout              the plan between registers, and the distinct fragments
    tensor_relayout       the plan from D to A in tensor memory; `wf.relayout` makes both
    relayout_execution    execution of the operations, with NumPy

Between memory and fragments:

    access_plan           accesses that move an operand: addresses, cost and result
    loads                 every access plan of an operand: `wf.loads`, `wf.stores`; ldmatrix and stmatrix too

`warpfrag.codegen` writes plans as code.
"""
