"""What both engines run: instructions with typed attributes, their operands and actions, types and state spaces."""
