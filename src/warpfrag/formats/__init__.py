"""Number formats, codes, quantization, exact sums and the floating-point environment."""
