"""Whether kernels are still to be compiled on this machine, so that whoever waits is told why."""

from __future__ import annotations

from penstock.jobs.compiling import is_compiling
from penstock.kernels.kernel_home import is_compiled

FIRST_RUN = "the first run on a machine compiles kernels, which takes up to a minute more"


def is_first_run() -> bool:
    """Whether no kernel had been compiled here before."""
    return is_compiling() or not is_compiled()
