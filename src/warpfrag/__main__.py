"""The program `warpfrag`, also started by `python -m warpfrag`."""

import sys

from warpfrag.cli import main

if __name__ == "__main__":
    sys.exit(main())
