"""Write the generated parts of the documentation.

python docs/generate.py            # the generated regions of every page and of README.md
python docs/generate.py --check    # only list the pages that are out of date; exit code 1 if there are any
python docs/generate.py --facts    # print the counts as JSON
"""

import json
import sys
from pathlib import Path

from answer_schema import answer_schema
from facts import facts
from generated_tables import fill

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SCHEMA = DOCS / "reference" / "schema.json"


def pages() -> list[Path]:
    """Return every page that may contain regions."""
    return sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])


def generated(path: Path) -> str:
    """Return a page with its regions filled, or the JSON schema."""
    if path == SCHEMA:
        return json.dumps(answer_schema(), indent=1) + "\n"
    return fill(path.read_text(encoding="utf-8"))


def outdated() -> list[Path]:
    """Return the files that are out of date."""
    return [path for path in [*pages(), SCHEMA] if generated(path) != path.read_text(encoding="utf-8")]


def main(arguments: list[str]) -> int:
    """Write, check or print; return the exit code."""
    if arguments == ["--facts"]:
        print(json.dumps(facts(), indent=1))
        return 0
    if arguments == ["--check"]:
        for path in outdated():
            print(f"{path.relative_to(ROOT)} is out of date: run python docs/generate.py")
        return 1 if outdated() else 0
    if arguments:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    for path in outdated():
        path.write_text(generated(path), encoding="utf-8", newline="\n")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
