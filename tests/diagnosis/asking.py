"""Asking diagnose with every option by its own name."""

from __future__ import annotations

import warpfrag as wf
from warpfrag.diagnosis.diagnose import DiagnoseOptions
from warpfrag.isa.immediates import Immediates


def diagnose(*inputs, **named):
    """What `wf.diagnose` finds."""
    immediates = {name: named.pop(name) for name in ("selector", "byte_id", "thread_id") if name in named}
    options = {name: named.pop(name) for name in ("negate", "scale_d", "rounding") if name in named}
    scales = tuple(named.pop(name, None) for name in ("scale_a", "scale_b"))
    return wf.diagnose(*inputs, **named, scales=scales, options=DiagnoseOptions(Immediates(**immediates), **options))
