"""Compiled inner loops, one file per family of instructions; `warpfrag.arithmetic.backends.compiled` calls them."""
