"""Programs that measure on a GPU and record the results. They belong to the checkout; the wheel has none of them.

Run them from the root of the checkout, for instance `python -m tools.opcodes --help`.
"""
