"""The functions that lanes compute, on arrays of codes. `floats` rounds once and exactly; `integers` wraps."""
