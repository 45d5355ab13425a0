"""The machine that runs kernels: every front end lowers its code to a program in `ir`.

From the top: `launch` binds arguments, distributes blocks and reports results; `debugger` steps through a launch.
`sanitizer` searches for mistakes while the interpreter runs. There are two engines with equal results: `jit` compiles
instructions for the CPU, and `interpreter` runs them in Python. `ops` has a row for every operation, named as in PTX,
and `semantics` has the functions that lanes compute. `ir` defines the program that both engines run: instructions with
attributes and actions.
"""
