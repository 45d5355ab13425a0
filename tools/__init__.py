"""Programs that measure on a GPU and write down what they saw. They belong to the checkout; the wheel has none of them.

Run them from the root of the checkout, for instance `python -m tools.opcodes --help`.
"""
