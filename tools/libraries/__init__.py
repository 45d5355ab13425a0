"""Measure a GPU's libraries: run PyTorch gemms, and find the order of additions that explains each result.

    python -m tools.libraries measure FOLDER     # on a machine with a GPU, torch and triton
    python -m tools.libraries explain FOLDER     # anywhere, on all cores; reads only the files of `measure`
    python -m tools.libraries write FOLDER       # write the table of orders, a report and the test data

Operands are hashes of their indices, so they need not be stored: a case is a line of text, and the outputs of some rows
and columns. `measure` writes cases.json and outputs.npz, `explain` adds orders.json.
"""
