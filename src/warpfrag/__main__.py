"""`python -m warpfrag` is the command `warpfrag`."""

import sys

from warpfrag.cli import main

if __name__ == "__main__":
    sys.exit(main())
