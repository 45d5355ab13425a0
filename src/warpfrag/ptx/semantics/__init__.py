"""What a lane computes: functions of arrays of codes. `floats` rounds once and exactly; `integers` wraps."""
