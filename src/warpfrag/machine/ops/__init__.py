"""The opcode table: each row has the types and modifiers of an opcode, its action and the evidence for it."""
