"""Checks that find mistakes while the interpreter runs a kernel: races, missing waits, unwritten values.

`interpreter.kernel_findings` has the table of checks and their findings; `checked_batch` runs blocks and notifies the
checks. `ordering` knows which accesses are ordered, by vector clocks that `sync_tracking` updates; `races` compares
accesses with the last ones to each word, which `conflicts` keeps and describes. `tensor_checks` checks tensor
memory and the registers and descriptors of wgmma, `barrier_checks` barriers, and `unwritten` values that were never
written.
"""
