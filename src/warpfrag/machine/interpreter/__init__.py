"""The reference engine, which runs blocks of warps in Python; every register is an array over lanes."""
