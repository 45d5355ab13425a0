"""Whole GEMMs, and the orders in which kernels add their terms."""
