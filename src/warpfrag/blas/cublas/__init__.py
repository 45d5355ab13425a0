"""Predictions of the kernels cuBLAS chooses and the bits they return."""
