"""Kernels on arrays: modules loaded, arguments bound, grids run, results reported."""
