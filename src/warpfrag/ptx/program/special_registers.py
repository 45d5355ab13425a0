"""The names of special registers, which the machine fills: %tid.x, %laneid, %clock and their kin."""

from __future__ import annotations

import re

NAMES = re.compile(
    r"%((tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]|lanemask_(eq|lt|le|gt|ge)|laneid|warpid"
    r"|nwarpid|nsmid|smid|gridid|dynamic_smem_size|total_smem_size|aggr_smem_size|envreg\d+|clock|clock_hi|clock64"
    r"|globaltimer|globaltimer_lo|globaltimer_hi|cluster_ctarank|cluster_nctarank|is_explicit_cluster|current_graph_exec"
    r"|reserved_smem_offset_(begin|end|cap|[01]))"
)


def is_special(name: str) -> bool:
    """Whether the machine fills a register of this name."""
    return NAMES.fullmatch(name) is not None
