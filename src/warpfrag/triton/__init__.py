"""Run unchanged Triton kernels without a GPU: Triton compiles them for any architecture, and the PTX machine runs them.

    import warpfrag.triton

    run = warpfrag.triton.run(add_kernel, arch="sm_90a")[(4,)](x, y, out, n, BLOCK=1024)
    run.inexact, run.source_counts

Arguments are NumPy arrays or PyTorch tensors in host memory, which the kernel modifies. Constexprs, defaults,
`@triton.heuristics` and `@triton.autotune` (the first configuration that fits, or the one you name) work as on a GPU:
Triton binds the arguments and compiles, and `emulate` only replaces its driver.

    with warpfrag.triton.emulate(arch="sm_80") as session:
        test_softmax()  # unchanged: every launch inside runs here
    findings = [finding for launch in session.launches for finding in launch.run.findings]
    session.launches[0].debug().break_at(source="softmax.py:12")

For pytest, `-p warpfrag.pytest_plugin` does the same. The extra `triton` is required.
"""

from warpfrag.errors import import_extra

import_extra("triton", "triton")

from warpfrag.triton.triton_session import Launch, Launcher, Session, emulate, run  # noqa: E402 (a missing Triton is reported first)

__all__ = ["Launch", "Launcher", "Session", "emulate", "run"]
