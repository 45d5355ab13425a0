"""The instruction set as data: checked table rows, names and legality. This package does not import numpy."""
