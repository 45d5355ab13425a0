"""The loops of the compiled backend, in C; `backends.compiled` calls them.

entries             fused.c, fma64.c; unfused.c has the grouped, chain and popcount rules
parts of fused.c    prepare.h, strip.h, sparse_steps.h, short_steps.h, exact_steps.h; exceptional.h for exceptional outputs
building blocks     multiply_add.h, vector.h (one header per processor level), scalar.h, environment.h (rounding mode)
until machine.jit has C loops   jit, objects, build_objects, processor, llvm_helpers: what its numba loops need
"""
