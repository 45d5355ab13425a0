"""Calls of cublasLtMatmul with each auxiliary and gradient epilogue."""
