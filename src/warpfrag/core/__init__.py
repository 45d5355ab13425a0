"""Layouts and their algebra: the linear map that everything else is derived from. Plain Python, no numpy.

Start with `layout`. `coordinates` names indices, `axes` cuts them into digits, `gf2` is linear algebra over bits,
`expressions` prints index formulas as C, Python and PTX.
"""
