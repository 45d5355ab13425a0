"""Run random kernels, and compare the memory that a GPU leaves with that of the PTX machine."""
