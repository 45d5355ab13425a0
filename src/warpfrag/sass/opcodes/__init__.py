"""The SASS opcode table: each row emits operations that the machine executes."""
