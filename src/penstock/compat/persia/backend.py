"""The 2021 way to send batches: one backend for each process."""

from __future__ import annotations

from typing import Any

from penstock.compat.persia._publisher import Publisher
from penstock.compat.persia.embedding.data import message_of
from penstock.compat.persia.error import PersiaRuntimeException

__all__ = ["Backend", "get_backend", "init_backend"]

_backend: Backend | None = None


class Backend:
    """Sends batches to the trainer; made by `init_backend`.

    >>> Backend().send_data("no batch")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: a batch must be a PersiaBatch or a PyPersiaBatchData, got str
    """

    def __init__(self) -> None:
        self._publisher = Publisher()

    def send_data(self, data: Any, blocking: bool = True) -> None:
        """Send a batch. It waits while the trainer is behind (`blocking=False` waits too: nothing is lost)."""
        self._publisher.send(message_of(data))

    def close(self) -> None:
        """Say that everything has been sent; the end of the process says so too."""
        global _backend
        self._publisher.finish()
        if _backend is self:
            _backend = None


def init_backend(
    worker_size: int = 20,
    replica_info: Any = None,
    *,
    middleware_services: Any = None,
    wait_server_ready: bool = False,
    output_addrs: Any = None,
    init_output: bool = False,
) -> Backend:
    """The backend of this process. There are no servers to name or to wait for: all arguments are taken and not needed.

    >>> backend = init_backend(init_output=True, wait_server_ready=True)
    >>> backend is init_backend() is get_backend()
    True
    >>> backend.close()
    """
    global _backend
    if _backend is None:
        _backend = Backend()
    return _backend


def get_backend() -> Backend:
    """The backend that `init_backend` made.

    >>> get_backend()
    Traceback (most recent call last):
    ...
    penstock.compat.persia.error.PersiaRuntimeException: there is no backend yet; call init_backend() first
    """
    if _backend is None:
        raise PersiaRuntimeException("there is no backend yet; call init_backend() first")
    return _backend
