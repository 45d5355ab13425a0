"""The functions that lanes compute, on arrays of codes: `floats` rounds exact results, `integers` wraps around."""
