"""Machine code: what a GPU left in memory against what the machine computes from the cubin."""
