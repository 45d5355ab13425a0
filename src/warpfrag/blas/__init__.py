"""Whole matrix products and the order in which they are summed."""
