"""Per-lane functions of instructions, on arrays of codes. `floats` rounds exact results once; `integers` wraps."""
