"""Random kernels: what a GPU leaves against what the PTX machine says."""
