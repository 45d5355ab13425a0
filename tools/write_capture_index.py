"""Write the index of captured results.

    python -m tools.write_capture_index src/warpfrag/tensorcore/captures

The tool writes `index.json` for the `.npz` files in a folder. Your own folder counts as evidence if the environment
variable WARPFRAG_CAPTURED names it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import make_parser
from warpfrag.files import write_atomically
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import resolve
from warpfrag.tensorcore.captures.capture import open_capture
from warpfrag.tensorcore.captures.capture_index import INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence


def count(folder: Path) -> dict[str, object]:
    """Return the index of a folder, computed from its data."""
    captures = []
    for path in sorted(folder.glob("*.npz")):
        capture = open_capture(path)
        cases: dict[str, int] = {}
        for case in capture.cases():
            name = spell(resolve(case.instruction))
            cases[name] = cases.get(name, 0) + len(case.d)
        about = {key: entry for key, entry in capture.about.items() if key not in {"schema", "entries"}}
        captures.append({"file": path.name, **about, "cases": dict(sorted(cases.items()))})
    return {"schema": 1, "captures": captures}


def write(folder: Path) -> Path:
    """Write the index of a folder."""
    path = folder / INDEX
    write_atomically(path, json.dumps(count(folder), indent=1) + "\n")
    return path


def main(argv: Sequence[str] | None = None) -> None:
    """Write the index of the folder given on the command line."""
    parser = make_parser("write_capture_index", __doc__)
    parser.add_argument(
        "folder", type=Path, help="the folder with the .npz files, such as src/warpfrag/tensorcore/captures"
    )
    sys.stdout.write(f"wrote {write(parser.parse_args(argv).folder)}\n")


if __name__ == "__main__":
    main()
