"""Lower the syntax of a module to the program of one entry, by a flat list of named passes (`passes`)."""
