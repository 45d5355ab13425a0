"""From the syntax of a module to the program of one entry: a flat list of named passes (`passes`)."""
