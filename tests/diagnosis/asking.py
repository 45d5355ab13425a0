"""Call diagnose with every option by its own name."""

import warpfrag as wf
from warpfrag.diagnosis.diagnose import DiagnoseOptions
from warpfrag.isa.immediates import Immediates

IMMEDIATES = ("selector", "byte_id", "thread_id", "negate", "scale_d")


def diagnose(*inputs, **named):
    """Return the findings of `wf.diagnose`."""
    immediates = {name: named.pop(name) for name in IMMEDIATES if name in named}
    options = DiagnoseOptions(Immediates(**immediates), named.pop("rounding", None))
    scales = tuple(named.pop(name, None) for name in ("scale_a", "scale_b"))
    return wf.diagnose(*inputs, **named, scales=scales, options=options)
