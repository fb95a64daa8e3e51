"""`python -m rulax`: the same as the `rulax` command."""

import sys

from rulax.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
