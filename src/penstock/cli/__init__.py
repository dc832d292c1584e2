"""The command line: arguments in, calls out. What the commands do lives in the packages they call.

One file per group of commands; importing it registers them.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from penstock.cli import (  # noqa: F401  (registers the commands)
    bench,
    compat,
    data,
    demo,
    doctor,
    init,
    model,
    runs,
    serving,
    signing,
)
from penstock.cli.app import TERMINATED, app
from penstock.cli.ending import end_at_once
from penstock.cli.long_work import Program

__all__ = ["app", "main"]


def _terminate(*_: Any) -> None:
    raise SystemExit(TERMINATED)  # unwinds, so that staging folders are removed, as Ctrl-C does


def main() -> None:
    """The `penstock` command."""
    # Idle OpenMP threads that spin starve the loader's and the store's. Read when torch is loaded, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorBoard brings TensorFlow along, banners and all
    signal.signal(signal.SIGTERM, _terminate)
    program = Program()
    try:
        app(obj=program)
    except SystemExit as error:
        if program.is_long:
            end_at_once(error)
        raise
