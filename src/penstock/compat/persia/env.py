"""Which of how many processes this is: a trainer by rank and world size, a data loader by replica.

PERSIA gave None where nothing was set. Here a process that nobody launched is the only one of its kind: rank 0 of 1,
replica 0 of 1, so that a script runs by itself.

>>> set_env(world_size=2, rank=1, local_rank=1)
>>> get_world_size(), get_rank(), get_replica_index()
(2, 1, None)
>>> reload_env()
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from penstock.core.errors import ParameterError

__all__ = [
    "PERSIA_LAUNCHER_VERBOSE",
    "PERSIA_SKIP_CHECK_DATA",
    "get_local_rank",
    "get_rank",
    "get_replica_index",
    "get_replica_size",
    "get_world_size",
    "reload_env",
    "set_env",
]

PERSIA_LAUNCHER_VERBOSE = os.environ.get("PERSIA_LAUNCHER_VERBOSE", "0") not in ("", "0")
PERSIA_SKIP_CHECK_DATA = os.environ.get("PERSIA_SKIP_CHECK_DATA", "0") not in ("", "0")


@dataclass(frozen=True)
class _Place:
    replica_size: int | None = None
    replica_index: int | None = None
    world_size: int | None = None
    rank: int | None = None
    local_rank: int | None = None


_of_process: _Place | None = None
_of_thread = threading.local()  # data loaders that run as threads of the trainer's process


def _place() -> _Place:
    global _of_process
    own = getattr(_of_thread, "place", None)
    if own is not None:
        return own
    if _of_process is None:
        _of_process = _read()
    return _of_process


def _read() -> _Place:
    if os.environ.get("RANK"):
        local = _number("LOCAL_RANK", 0) if "LOCAL_RANK" in os.environ else 0
        return _Place(world_size=_number("WORLD_SIZE", 1), rank=_number("RANK", 0), local_rank=local)
    if os.environ.get("REPLICA_INDEX"):
        return _Place(replica_size=_number("REPLICA_SIZE", 1), replica_index=_number("REPLICA_INDEX", 0))
    return _Place(1, 0, 1, 0, 0)


def _number(variable: str, least: int) -> int:
    text = os.environ.get(variable, "")
    if not text.isdigit() or int(text) < least:
        raise ParameterError(f"the environment variable {variable} must be an int ≥ {least}, got {text!r}")
    return int(text)


def reload_env() -> None:
    """Read the environment variables again.

    >>> reload_env()
    """
    global _of_process
    _of_process = _read()


def set_env(
    replica_size: int | None = None,
    replica_index: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
) -> None:
    """Say which process this is, whatever the environment says.

    >>> set_env(replica_size=3, replica_index=2)
    >>> get_replica_size(), get_rank()
    (3, None)
    >>> reload_env()
    """
    global _of_process
    _of_process = _Place(replica_size, replica_index, world_size, rank, local_rank)


def set_thread(replica_index: int, replica_size: int) -> None:
    """Make the present thread a data loader of its own."""
    _of_thread.place = _Place(replica_size=replica_size, replica_index=replica_index)


def get_world_size() -> int | None:
    """The number of trainers; None in a data loader.

    >>> get_world_size()
    1
    """
    return _place().world_size


def get_rank() -> int | None:
    """The number of this trainer; None in a data loader.

    >>> get_rank()
    0
    """
    return _place().rank


def get_local_rank() -> int | None:
    """The number of this trainer on its machine; None in a data loader.

    >>> get_local_rank()
    0
    """
    return _place().local_rank


def get_replica_size() -> int | None:
    """The number of data loaders; None in a trainer that was launched as one.

    >>> get_replica_size()
    1
    """
    return _place().replica_size


def get_replica_index() -> int | None:
    """The number of this data loader; None in a trainer that was launched as one.

    >>> get_replica_index()
    0
    """
    return _place().replica_index
