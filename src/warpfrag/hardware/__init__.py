"""Check every predicted code on a real GPU."""
