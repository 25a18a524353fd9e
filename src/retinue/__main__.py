"""`python -m retinue` is the command line."""

import sys

from retinue.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
