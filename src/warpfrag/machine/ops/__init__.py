"""The opcode table: each row gives an opcode's types, modifiers, action and evidence."""
