"""Results captured on real GPUs: input and output registers, and the shared-memory addresses that wgmma reads."""
