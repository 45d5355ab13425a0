"""Runs on a real GPU, to check every predicted code."""
