"""Verify predicted codes on this machine's GPU, write captures, and survey the kernels that cuBLAS selects."""
