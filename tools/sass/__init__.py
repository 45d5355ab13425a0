"""Compare captured GPU launches with the machine's execution of the cubin."""
