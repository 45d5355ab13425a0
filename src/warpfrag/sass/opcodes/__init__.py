"""The table of machine opcodes: what each does, as operations of the machine."""
