"""Lower a module's syntax tree to the program of one entry, in a list of passes (`passes`)."""
