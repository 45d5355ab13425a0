"""A kernel, decoded: types, state spaces, actions, variables, and the passes that build a Program from syntax."""
