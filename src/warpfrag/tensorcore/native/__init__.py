"""Compiled C code: the library in the wheel, and the functions that it contains."""
