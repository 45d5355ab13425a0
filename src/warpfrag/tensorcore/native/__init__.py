"""Compiled C code: the library that the wheel contains, and the functions in it."""
