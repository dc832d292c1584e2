"""What all contexts share, and that of a data loader."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Any, ClassVar, Self

from penstock.compat.persia._publisher import Publisher
from penstock.compat.persia.embedding.data import message_of
from penstock.core.errors import PenstockError

# The 2021 way to send batches: one backend for each process.

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
    penstock.compat.persia._contexts.PersiaRuntimeException: there is no backend yet; call init_backend() first
    """
    if _backend is None:
        raise PersiaRuntimeException("there is no backend yet; call init_backend() first")
    return _backend


# The 2021 error classes; what goes wrong in Penstock is a `PenstockError`, and these are such.


class FileNotFoundException(PenstockError):
    """A file that was named is not there.

    >>> issubclass(FileNotFoundException, PenstockError)
    True
    """


class PersiaRuntimeException(PenstockError):
    """Something was used before it was set up.

    >>> issubclass(PersiaRuntimeException, PenstockError)
    True
    """


_of_thread = threading.local()  # data loaders on threads have contexts of their own
_of_process: BaseCtx | None = None  # for threads that have entered none


class PreprocessMode(Enum):
    """What a batch is looked up for: training, evaluation, or inference (without labels).

    >>> PreprocessMode.EVAL.name
    'EVAL'
    """

    TRAIN = 1
    EVAL = 2
    INFERENCE = 3


def cnt_ctx() -> BaseCtx | None:
    """The context whose block was entered last; None outside.

    >>> cnt_ctx() is None
    True
    """
    return getattr(_of_thread, "context", None) or _of_process


class BaseCtx:
    """What all contexts share: a block, inside of which `cnt_ctx()` is this context.

    >>> with BaseCtx() as ctx:
    ...     cnt_ctx() is ctx
    True
    """

    looks_up: ClassVar[bool] = False

    def __init__(self, threadpool_worker_size: int = 10, device_id: int | None = None) -> None:
        self.threadpool_worker_size, self.device_id = threadpool_worker_size, device_id
        self.origin_context: BaseCtx | None = None

    @property
    def backend(self) -> Any:
        """What a data loader of August 2021 sends with: `ctx.backend.send_data(batch)`."""
        from penstock.compat.persia._contexts import init_backend

        return init_backend()

    def _enter(self) -> None:
        """What entering the block does."""

    def _exit(self, error: BaseException | None) -> None:
        """What leaving the block does."""

    def __enter__(self) -> Self:
        global _of_process
        self._enter()
        self.origin_context = cnt_ctx()
        _of_thread.context = self
        if self.looks_up:
            _of_process = self
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        global _of_process
        outer = _of_thread.context = self.origin_context
        if _of_process is self:
            _of_process = outer if outer is not None and outer.looks_up else None
        self._exit(error)


class DataCtx(BaseCtx):
    """A data loader: sends batches to the trainer, and waits while it is behind.

    >>> import numpy as np
    >>> from penstock.compat.persia.embedding.data import IDTypeFeatureWithSingleID, PersiaBatch
    >>> from penstock.compat.persia import _service
    >>> with DataCtx() as ctx:  # in a process of its own, or on a thread of the trainer's
    ...     user = IDTypeFeatureWithSingleID("user", np.array([7], np.uint64))
    ...     ctx.send_data(PersiaBatch([user], requires_grad=False))
    >>> _service.reset()
    """

    def __init__(self, threadpool_worker_size: int = 10, device_id: int | None = None) -> None:
        super().__init__(threadpool_worker_size, device_id)
        self._publisher = Publisher()

    def send_data(self, persia_batch: Any, blocking: bool = True) -> None:
        """Send a batch. It waits while the trainer is behind (`blocking=False` waits too: nothing is lost)."""
        self._publisher.send(message_of(persia_batch))

    def _exit(self, error: BaseException | None) -> None:
        self._publisher.finish(None if error is None else f"{type(error).__name__}: {error}")
