"""Programs that measure on a GPU and record the results. They are part of the checkout, not of the wheel.

Run them from the root of the checkout, for example `python -m tools.opcodes --help`.
"""
