"""``python -m hlojit``: the command line."""

import sys

from hlojit.command import main

if __name__ == "__main__":
    sys.exit(main())
