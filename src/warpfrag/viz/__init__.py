"""Figures, notebook cards, plots and the explorer page."""
