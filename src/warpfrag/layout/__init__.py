"""Layouts, their algebra and the notations that other projects write them in."""
