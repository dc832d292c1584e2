"""What happens in a forked child: it has none of its parent's threads.

Whoever owns threads remembers its process (`Process`) and begins anew in a child, or says so. The threads of polars
cannot be begun anew: where the parent had used them, whatever needs them would wait for ever, so it is refused
(`require_polars`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.core.errors import ForkError

_POLARS_THREAD = "polars-"  # followed by a number
_TASKS = Path("/proc/self/task")
_polars_was_running = False  # when this process was forked
_polars_lost = False


class Process:
    """The process in which something was made.

    >>> made_in = Process()
    >>> made_in.is_this()
    True
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = os.getpid()

    def is_this(self) -> bool:
        """Whether that is the process that asks, and not one forked from it."""
        return self.number == os.getpid()


def polars_is_lost() -> bool:
    """Whether this process was forked from one in which polars had threads, which are gone here."""
    return _polars_lost


def require_polars(what: str) -> None:
    """Refuse what would wait for ever for polars' threads in a forked child.

    Args:
        what: what is about to be done, as the beginning of a sentence.

    Raises:
        ForkError: this process was forked after polars had started its threads.
    """
    if _polars_lost:
        raise ForkError(
            f"{what} needs polars, whose threads did not come along when this process was forked; start processes by "
            f"'spawn' or 'forkserver' (multiprocessing.set_start_method, or multiprocessing_context= of a DataLoader), "
            f"or fork before the first use of Penstock or polars"
        )


def _polars_threads() -> bool:
    """Whether polars has begun its threads, as far as the system tells; without /proc, whether it is loaded."""
    if "polars" not in sys.modules:
        return False
    if not _TASKS.is_dir():
        return True
    for task in _TASKS.iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # a thread that has just ended
            continue
        if name.startswith(_POLARS_THREAD) and name.removeprefix(_POLARS_THREAD).isdigit():
            return True
    return False


def _before() -> None:
    global _polars_was_running
    _polars_was_running = _polars_lost or _polars_threads()


def _in_child() -> None:
    global _polars_lost
    _polars_lost = _polars_was_running


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
