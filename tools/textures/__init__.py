"""Compares textures and surfaces of the PTX machine with a GPU, element by element.

    python -m tools.textures [REPORT.md] [--only GROUP]
    python -m tools.textures --keep RESULTS.npz

Every experiment is a texture or surface of random texels and one instruction that many threads run, each at coordinates
of its own: inside, outside, near every place where a rounding could change, and special ones. The GPU and the machine
run the same text. Inputs are made from raw words of a generator, so that they are the same everywhere: the file that
--keep writes has results only, and tests/ptx/test_textures.py compares with the H200's.
"""
