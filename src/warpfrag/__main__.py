"""The program `warpfrag`, which is also `python -m warpfrag`: a process that answers one command and ends."""

import gc
import sys

MADE = 20_000  # objects between two searches for garbage: more than a look-up makes


def main() -> int:
    """Answer the command line of this process; the exit status."""
    gc.set_threshold(MADE)  # before the imports, which make most of them
    from warpfrag.cli import main as answer

    try:
        return answer()
    finally:
        gc.freeze()  # the process ends, and all of its memory with it: Python need not search that for garbage


if __name__ == "__main__":
    sys.exit(main())
