"""Output primitives: SVG text, colours, plots, and files written whole or not at all."""
