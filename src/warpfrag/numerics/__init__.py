"""Numbers: formats, codes, arrays, exact sums, quantization, epilogues, and the floating-point environment."""
