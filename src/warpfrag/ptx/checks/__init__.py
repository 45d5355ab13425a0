"""Checks search for mistakes while the interpreter runs a kernel: races, missing waits, unwritten values.

`interpreter.kernel_findings` has the table of checks and what is reported; `checked_batch` runs blocks and tells the
checks. `ordering` knows which accesses are ordered, by vector clocks, told by `sync_tracking`; `races` compares them
with the last accesses of each word, which `conflicts` keeps and describes. `wgmma_checks` follows registers and
descriptors of wgmma, `tmem_checks` tensor memory, `barrier_checks` barriers, `unwritten` values that were never
written.
"""
