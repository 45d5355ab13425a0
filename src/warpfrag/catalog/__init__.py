"""What users look up: `get` and `find`, the Instruction they return, its evidence, and captured hardware results."""
