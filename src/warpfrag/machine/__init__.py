"""The machine that runs kernels: every front end lowers its code to the programs of `ir`.

From the top: `launch` binds arguments, distributes blocks and reports; `debugger` steps through a launch. `sanitizer`
searches for mistakes while the interpreter runs. `jit` runs instructions as machine code, and `interpreter` runs them
in Python, with equal results. `ops` has a row for every operation, named as in PTX, and `semantics` has the functions
that lanes compute. `ir` is the program that both engines run: instructions with attributes and actions.
"""
