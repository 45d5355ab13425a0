"""Lower the syntax tree of a module to the program of one entry, in a list of passes (`passes`)."""
