"""Whole GEMMs and the order in which they are summed."""
