"""Compare textures and surfaces of the PTX machine with a GPU, element by element.

    python -m tools.textures [REPORT.md] [--only GROUP]
    python -m tools.textures --keep RESULTS.npz

An experiment is a texture or surface of random texels, and one instruction that many threads run at different
coordinates: inside, outside, near every boundary where rounding could change the result, and special values. The GPU
and the machine run the same text. Inputs are made from the raw words of a random generator, so they are the same on
every machine. The file that --keep writes therefore has only results; tests/ptx/test_textures.py compares with the
H200's.
"""
