"""The GPU, and comparing with it: where there is one, every code that warpfrag predicts can be checked."""
