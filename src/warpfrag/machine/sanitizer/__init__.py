"""Checks that find mistakes while the interpreter runs a kernel: races, missing waits, unwritten values.

`interpreter.kernel_findings` lists the checks and their findings; `checked_batch` runs blocks and notifies the checks.
`ordering` determines which accesses are ordered, with vector clocks that `sync_tracking` updates; `races` compares
accesses with the earlier ones in `shadow_memory`, and `race_reports` makes the findings. `tensor_checks` checks tensor
memory and the registers and descriptors of wgmma, `barrier_checks` checks barriers, and `unwritten` tracks values that
were never written.
"""
