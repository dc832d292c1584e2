"""`python -m penstock.compat [options] SCRIPT.py [arguments]`: the script in this very process, old imports activated.

What `penstock run` starts, and what launchers of several processes call: `torchrun -m penstock.compat train.py`.
"""

from __future__ import annotations

import argparse
import sys

from penstock.compat.activation import activate
from penstock.compat.names import LIBRARIES
from penstock.compat.run_script import run_script
from penstock.compat.settings import NVTABULAR_AGES
from penstock.core.errors import PenstockError


def main() -> None:
    """Parse what stands before the script; the rest is the script's."""
    parser = argparse.ArgumentParser(prog="python -m penstock.compat", description=__doc__, allow_abbrev=False)
    parser.add_argument("--cpu", action="store_true", help="without CUDA, run on the CPU what asks for it")
    parser.add_argument("--force", action="store_true", help="also where the real package is installed")
    parser.add_argument("--nvtabular", choices=NVTABULAR_AGES, help="whose batches the loaders give")
    parser.add_argument("--packages", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        activate(packages=given.packages, force=given.force, nvtabular=given.nvtabular, cpu=given.cpu)
        run_script(given.script, given.arguments)
    except PenstockError as error:  # of the script itself only SystemExit comes out
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
