"""Instruction objects, their operands, and the arithmetic of every tensor core."""
