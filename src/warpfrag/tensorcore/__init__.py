"""Instruction objects and their operands, and the arithmetic of every tensor core."""
