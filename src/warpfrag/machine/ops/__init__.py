"""The opcode table: each row has an opcode's types, modifiers, action and evidence."""
