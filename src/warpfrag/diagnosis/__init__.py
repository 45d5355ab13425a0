"""Explanations of wrong results: the mistakes people make, and the search for them."""
