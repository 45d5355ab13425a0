"""The loops of the compiled backend, in C; `backends.compiled` calls them.

entries             fused.c, fma64.c; unfused.c has the grouped, chain and popcount rules
parts of fused.c    prepare.h, strip.h, sparse_steps.h, short_steps.h, exact_steps.h, exceptional.h
building blocks     multiply_add.h, vector.h (one header per processor level), scalar.h, environment.h (rounding mode)
"""
