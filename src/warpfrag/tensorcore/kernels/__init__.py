"""The loops of the compiled backend, which `backends.compiled` calls.

one file for each rule   fused, fma64; unfused has the grouped, chain and popcount rules
compiled ahead           objects (loaded from the wheel), build_objects (made for it), processor (for which targets)
parts of `fused`         prepare, strip, fast_steps; scalar and exceptional for exceptional outputs
what they are made of    vector, llvm_helpers (instructions), control_word (rounding mode), constants, jit
"""
