"""The table of machine opcodes, which emit operations of the machine."""
