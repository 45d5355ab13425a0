"""Call cublasLtMatmul with each auxiliary and gradient epilogue."""
