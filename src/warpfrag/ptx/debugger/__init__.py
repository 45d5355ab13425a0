"""A debugger for kernels: breakpoints, instructions and watchpoints on the reference engine, and matrices to look at."""
