"""`python -m warpfrag.tensorcore.kernels`: compile every kernel now, for instance while a container image is built.

Where there is no folder to keep them in, a warning says so, and nothing is cached.
"""

from __future__ import annotations

import sys

from warpfrag.errors import NotModelled
from warpfrag.isa.legality import able_architectures
from warpfrag.isa.rows import forms
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.tensorcore.backends import KernelKey, kernel_key
from warpfrag.tensorcore.backends.canary import passes
from warpfrag.tensorcore.backends.compiled import Compiled
from warpfrag.tensorcore.rules import Rule


def rules_by_loops() -> dict[str, dict[KernelKey, Rule]]:
    """Return a rule for every key, by the name of its loops. No compiled loops run the rules of some instructions."""
    rules: dict[str, dict[KernelKey, Rule]] = {}
    for form in (form for form in forms() if form.operation.does == "multiply"):
        for arch in able_architectures(form):
            try:
                rule = plan(form, arch).rule
            except NotModelled:
                continue
            if Compiled.holds(rule):
                for part, split in (("whole tiles", False), ("parts of a tile", True)):
                    loops = rules.setdefault(f"{type(rule).__name__}, {part}", {})
                    loops.setdefault(kernel_key(rule, split=split), rule)
    return rules


if __name__ == "__main__":
    for name, keys in rules_by_loops().items():
        all_pass = all(passes(Compiled().compile(rule), rule, split=key.split) for key, rule in keys.items())
        sys.stdout.write(f"{name}: {'ready' if all_pass else 'WRONG'}\n")
        sys.stdout.flush()
