"""Random kernels: compares the memory that a GPU leaves with that of the PTX machine."""
