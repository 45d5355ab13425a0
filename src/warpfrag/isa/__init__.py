"""The instruction set as data: checked table rows, names and legality. Imports no numpy."""
