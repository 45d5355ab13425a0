"""Functions that lanes compute, on arrays of codes: `floats` rounds each exact result once, and `integers` wraps."""
