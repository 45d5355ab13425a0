"""Entry point of `python -m warpfrag`, the same program as `warpfrag`."""

import sys

from warpfrag.cli import main

if __name__ == "__main__":
    sys.exit(main())
