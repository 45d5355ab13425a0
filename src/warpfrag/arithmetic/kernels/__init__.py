"""Compiled inner loops, one file per family of instructions; `warpfrag.arithmetic.fast` calls them."""
