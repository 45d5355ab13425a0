"""Which backend runs what: nothing is compiled for a tile, kernels are kept where they can be, and a canary watches."""

from __future__ import annotations
