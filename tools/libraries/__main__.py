"""Run the command that the command line names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tools.libraries as package
from tools.arguments import make_parser
from tools.libraries.explain import explain
from tools.libraries.measure import measure
from tools.libraries.report import write

if TYPE_CHECKING:
    from collections.abc import Sequence

ACTIONS = {"measure": measure, "explain": explain, "write": write}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, explain or write."""
    parser = make_parser("libraries", package.__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("folder", type=Path, help="the folder with the measurements")
    arguments = parser.parse_args(argv)
    ACTIONS[arguments.action](arguments.folder)


if __name__ == "__main__":
    main()
