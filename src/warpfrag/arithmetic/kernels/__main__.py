"""`python -m warpfrag.arithmetic.kernels`: compile every kernel now, for instance while a container image is built.

Where there is no folder to keep them in, a warning says so, and this was for nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from warpfrag.arithmetic import plan
from warpfrag.arithmetic.backends import kind_of
from warpfrag.arithmetic.backends.canary import passes
from warpfrag.arithmetic.backends.compiled import Compiled
from warpfrag.errors import NotModelled
from warpfrag.isa.legality import able_architectures
from warpfrag.isa.rows import forms

if TYPE_CHECKING:
    from warpfrag.arithmetic.rules import Rule


def one_of_each_kind() -> list[Rule]:
    """A rule for every kernel that there is; some instructions have rules that none runs."""
    rules: dict[type[Rule], Rule] = {}
    for form in (form for form in forms() if form.is_product):
        for arch in able_architectures(form):
            try:
                rule = plan(form, arch).rule
            except NotModelled:
                continue
            if Compiled.holds(rule):
                rules.setdefault(type(rule), rule)
    return list(rules.values())


if __name__ == "__main__":
    for rule in one_of_each_kind():
        for split in (False, True):
            kind = kind_of(rule, split=split)
            right = passes(Compiled().compile(rule), rule, split=split)
            part, verdict = "parts of a tile" if split else "whole tiles", "ready" if right else "WRONG"
            sys.stdout.write(f"{kind.rule.__name__}, {part}: {verdict}\n")
