"""`python -m warpfrag.arithmetic.kernels`: compile every kernel now, for instance while a container image is built.

Where there is no folder to keep them in, a warning says so, and this was for nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from warpfrag.arithmetic import plan
from warpfrag.arithmetic.backends import Kind, kind_of
from warpfrag.arithmetic.backends.canary import passes
from warpfrag.arithmetic.backends.compiled import Compiled
from warpfrag.errors import NotModelled
from warpfrag.isa.legality import able_architectures
from warpfrag.isa.rows import forms

if TYPE_CHECKING:
    from warpfrag.arithmetic.rules import Rule


def one_of_each_kind() -> dict[str, dict[Kind, Rule]]:
    """A rule for every kind of kernel, by the loops that run it; some instructions have rules that none runs."""
    rules: dict[str, dict[Kind, Rule]] = {}
    for form in (form for form in forms() if form.is_product):
        for arch in able_architectures(form):
            try:
                rule = plan(form, arch).rule
            except NotModelled:
                continue
            if Compiled.holds(rule):
                for part, split in (("whole tiles", False), ("parts of a tile", True)):
                    loops = rules.setdefault(f"{type(rule).__name__}, {part}", {})
                    loops.setdefault(kind_of(rule, split=split), rule)
    return rules


if __name__ == "__main__":
    for name, kinds in one_of_each_kind().items():
        right = all(passes(Compiled().compile(rule), rule, split=kind.split) for kind, rule in kinds.items())
        sys.stdout.write(f"{name}: {'ready' if right else 'WRONG'}\n")
        sys.stdout.flush()
