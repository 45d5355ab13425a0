"""One instruction on its operands: registers, shared memory, immediates, sparsity metadata; what it leaves in D."""
