"""The reference engine: blocks of warps stepped in Python, with every register an array over lanes."""
