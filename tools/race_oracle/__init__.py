"""Random kernels against an independent happens-before oracle."""
