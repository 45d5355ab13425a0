"""The opcode table: a row says which types and modifiers an opcode takes, what it does and how that is known."""
