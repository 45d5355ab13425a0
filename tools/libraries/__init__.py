"""Measure the libraries of a GPU: PyTorch gemms, and the order of additions that explains each.

    python -m tools.libraries measure FOLDER     # on a machine with a GPU, torch and triton
    python -m tools.libraries explain FOLDER     # anywhere, on all cores; needs only what measure wrote
    python -m tools.libraries write FOLDER       # the table of orders, a report, the data of the tests

Operands are a hash of their indices, so they need not be kept: a case is a line of text and the outputs of some rows
and columns. `measure` writes cases.json and outputs.npz, `explain` adds orders.json.
"""
