"""Run what is asked for on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import tools.libraries as package
from tools.libraries.explain import explain
from tools.libraries.measure import measure, say
from tools.libraries.report import write


def main(arguments: list[str]) -> int:
    """Run what is asked for."""
    actions = {"measure": measure, "explain": explain, "write": write}
    if len(arguments) != 2 or arguments[0] not in actions:
        say(package.__doc__ or "")
        return 2
    actions[arguments[0]](Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
