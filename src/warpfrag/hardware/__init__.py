"""The GPU, and comparisons with it: with a GPU, every predicted code can be checked."""
