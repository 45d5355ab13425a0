"""A debugger for kernels: breakpoints, single steps, watchpoints and matrix views on the reference engine."""
