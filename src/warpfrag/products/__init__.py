"""Whole matrix products: `gemm`, the order of additions along k, and the backends that compute one."""
