"""Mistakes of kernels, searched for while the interpreter runs them: races, waits that are missing, unwritten values.

`findings` is what is reported. `checked_batch` runs blocks and tells the checks. `ordering` knows which accesses are
ordered, by vector clocks, told by `synchronisation`, and `shadow` who accessed each place last: `races` compares the
two, for threads and for copies in flight, and `conflicts` describes what it finds. `registers_in_flight` follows the
registers of wgmma, `descriptors` judges its descriptors, `unwritten` values that nobody wrote.
"""
