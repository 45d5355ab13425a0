"""Results captured on real GPUs: registers in and out, and the addresses that wgmma read from shared memory."""
