"""`python -m penstock`, where the `penstock` command is not on the path."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # `python -m` looks for modules in the working folder first, where whatever was downloaded may lie.
    if not sys.flags.safe_path:
        del sys.path[0]
    from penstock.cli import main

    main()
