"""Predict which kernels cuBLAS chooses and which bits they return."""
