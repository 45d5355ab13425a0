"""Fragments in motion: from one fragment to another, and between shared memory and a fragment.

From fragment to fragment, in the order in which a plan is made:

    moves             the fewest shuffles that a linear map needs: the algebra
    conversions       what becomes of an element where formats differ
    steps             what happens to registers, and what it costs
    relayout          the plan: `wf.relayout`
    packed            a wide source packed before movmatrix
    through_memory    a store and a load where they cost less
    running           steps on arrays of registers
    pairs             which fragments have the same extents

Between memory and fragment:

    access            where each lane points, and the passes that takes
    addresses         addresses as a sum over parts of the lane
    lines             where the lines of 16 bytes start that registers make up
    matrix_accesses   ldmatrix and stmatrix for an operand
    way               one way: what it costs, and what it leaves in registers
    loads             every way: `wf.loads`, `wf.stores`

As code: `relayout_code` and `access_code`, by the builders of `codegen`.
"""
