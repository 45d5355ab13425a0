"""Code that several verbs share: declarations of verbs, common options, printed output, and input files."""
