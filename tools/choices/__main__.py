"""Run the step that the command line names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tools.choices as package
from tools.arguments import make_parser
from tools.choices.additions import additions
from tools.choices.answers import ask
from tools.choices.blind import compare, predict, run
from tools.choices.confirm import confirm
from tools.choices.launches import launches, table
from tools.choices.layers import plan
from tools.choices.train import pack, train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def write_layers(path: Path) -> None:
    """Write the plan of a survey."""
    path.write_text(plan(), encoding="utf-8")


ACTIONS: dict[str, Callable[[Path], None]] = {
    "layers": write_layers, "ask": ask, "confirm": confirm, "predict": predict, "run": run,
    "compare": compare, "launches": launches, "additions": additions, "table": table, "train": train, "pack": pack,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Run one step."""
    parser = make_parser("choices", package.__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("path", type=Path, help="a folder for the data; for layers, the file to write")
    arguments = parser.parse_args(argv)
    ACTIONS[arguments.action](arguments.path)


if __name__ == "__main__":
    main()
