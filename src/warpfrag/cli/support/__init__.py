"""What several verbs share: how a verb is declared, common options, printed output, and the files they read."""
