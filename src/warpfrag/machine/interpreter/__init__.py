"""The reference engine: runs blocks of warps in Python, with every register an array over lanes."""
