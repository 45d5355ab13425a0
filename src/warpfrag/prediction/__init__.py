"""What libraries compute: the order of additions of cuBLAS kernels, found, tabulated, predicted; error reports."""
