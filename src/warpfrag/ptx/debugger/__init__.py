"""A debugger for kernels: breakpoints, steps and watchpoints on the reference engine, and matrices to look at."""
