"""Fragments in motion: from one fragment to another, and between shared memory and a fragment.

From fragment to fragment, in the order in which a plan is made:

    shuffle_search            the fewest shuffles that a linear map needs: the algebra
    conversions               what becomes of an element where formats differ
    relayout_steps            what happens to registers, and what it costs
    relayout                  the plan between registers
    tensor_relayout           the plan from D to A in tensor memory; `wf.relayout` is either
    packed_operands           a wide source packed before movmatrix or a store
    shared_memory_round_trip  a store and a load where they cost less than the steps
    step_execution            steps on arrays of registers
    fragment_pairs            which fragments of the ISA have the same extents

Between memory and fragment:

    access                    an instruction: where each lane points, and the passes that takes
    addresses                 addresses as a sum over parts of the lane
    matrix_lines              where the lines of 16 bytes start that registers make up
    matrix_accesses           ldmatrix and stmatrix for an operand
    access_plan               accesses that move an operand: what they cost, and what they leave in registers
    loads                     every access plan of an operand: `wf.loads`, `wf.stores`

As code: `relayout_code` and `access_code`, both through the builders of `warpfrag.codegen`.
"""
