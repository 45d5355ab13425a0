"""Instructions as objects: their operands, and the arithmetic of every tensor core."""
