"""Where captures lie."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent
VARIABLE = "WARPFRAG_CAPTURED"


def folders() -> tuple[Path, ...]:
    """Where captures lie: in the package, and where the environment variable WARPFRAG_CAPTURED points."""
    extra = os.environ.get(VARIABLE)
    return (HERE, Path(extra)) if extra else (HERE,)
