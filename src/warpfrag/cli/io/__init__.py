"""The input and output of verbs: declarations of arguments and options, input files, printed answers."""
