"""Whether kernels are still to be compiled on this machine, so that whoever waits is told why."""

from __future__ import annotations

import os
from pathlib import Path

from penstock import kernels

FIRST_RUN = "the first run on a machine compiles kernels, which takes up to a minute more"


def is_first_run() -> bool:
    """Whether no kernel has been compiled here yet: numba keeps what it compiled beside the source, or elsewhere."""
    elsewhere = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(elsewhere)] if elsewhere else [Path(kernels.__file__).parent / "__pycache__", _user_cache()]
    return not any(next(place.rglob("*.nbi"), None) for place in places if place.is_dir())


def _user_cache() -> Path:
    """Where numba writes when the source lies in a folder that may not be written to."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"
