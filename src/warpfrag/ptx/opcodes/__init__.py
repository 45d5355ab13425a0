"""The opcodes of PTX as rows: which words each takes, of which types, what it does and how well that is known."""
