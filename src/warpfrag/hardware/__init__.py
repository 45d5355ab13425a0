"""Runs on a real GPU that check every predicted code."""
