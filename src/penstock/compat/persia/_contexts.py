"""What all contexts share, and that of a data loader."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Any, ClassVar, Self

from penstock.compat.persia._publisher import Publisher
from penstock.compat.persia.embedding.data import message_of

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
        from penstock.compat.persia.backend import init_backend

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
