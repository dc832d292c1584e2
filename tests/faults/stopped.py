"""A process that hangs: stopped by a signal, and not before it has arrived at every thread."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def hang(process: int) -> None:
    """Stop a process until it is sent `SIGCONT`; `kill` returns before all of its threads stand still."""
    os.kill(process, signal.SIGSTOP)
    while not all(_state(task) in "TtZX" for task in Path(f"/proc/{process}/task").iterdir()):
        time.sleep(0.001)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return "X"
