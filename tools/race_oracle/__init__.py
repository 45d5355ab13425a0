"""Compare the race check on random kernels with an independent happens-before oracle."""
