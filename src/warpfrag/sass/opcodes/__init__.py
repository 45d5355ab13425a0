"""The SASS opcode table: each row emits operations of the machine."""
