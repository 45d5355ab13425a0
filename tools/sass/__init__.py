"""Compares captured launches on a GPU with the machine's execution of the cubin."""
