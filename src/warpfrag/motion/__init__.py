"""Fragments in motion: from one fragment to another, and between shared memory and a fragment."""
