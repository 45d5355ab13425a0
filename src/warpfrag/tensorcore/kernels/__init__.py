"""The loops of the compiled backend, which `arithmetic.backends.compiled` calls.

one file for each rule   fused, grouped, chain, fma64, popcount
compiled ahead           objects (loaded from the wheel), build_objects (made for it), target (for which processors)
parts of `fused`         prepare, strip, short_steps, four_rows; scalar and rounding for exceptional outputs
what they are made of    vector, llvm (instructions), control_word (rounding mode), constants, jit (how to compile)
"""
