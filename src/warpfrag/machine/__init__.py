"""The machine that runs kernels: every front end lowers its code to the programs of `ir`.

From the top: `launch` binds arguments, distributes blocks and reports; `debugger` steps through a launch.
The `sanitizer` searches for mistakes while the interpreter runs. `jit` runs instructions as machine code, `interpreter`
runs the same in Python; both give equal results. `ops` has a row for every operation, named as in PTX, and `semantics`
the functions that lanes compute. `ir` is the form that both engines run: instructions with attributes and actions.
"""
