"""Wrong results explained: the mistakes people make with fragments, and the search for those that explain a D."""
