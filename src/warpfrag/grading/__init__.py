"""Kernels graded: launches with inputs and what they should leave, from a TOML file. `warpfrag test FILE.toml` runs it.

    [[test]]
    name = "saxpy"
    kernel = "saxpy.ptx"                    # or .cu, or "module.py:kernel" of Triton: both need trust
    grid = 8
    block = 128
    args = [
        { name = "a", value = 2.5, dtype = "float32" },
        { name = "x", expr = "normal(1000, seed=1)", dtype = "float32" },
        { name = "y", out = [1000], dtype = "float32" },
    ]
    expect = { y = "a * x" }

`suite` reads the file, `expressions` evaluates numpy expressions without Python's eval, `grade` runs one test, and
`worker` runs them in a process of their own, with limits of time and memory. PTX reaches nothing but its arguments;
what would run Python or read files elsewhere is refused unless it is trusted.
"""

from __future__ import annotations
