"""Code shared by the verbs: their declarations, common options, output and input files."""
