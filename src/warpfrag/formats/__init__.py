"""Number formats, codes, quantization, exact sums and the floating-point environment.

`number_formats` encodes and decodes one number, `codes` whole arrays.
"""
