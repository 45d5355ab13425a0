"""The program that both engines run: instructions with typed attributes, operands, actions and types."""
