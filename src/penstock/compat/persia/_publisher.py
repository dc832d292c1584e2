"""A data loader's way to the trainers: over sockets, or into the queue of this very process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any

from penstock.compat.persia import _service, env
from penstock.compat.persia._message import Message, to_bytes
from penstock.compat.persia._sockets import Client
from penstock.compat.persia._stream import Stream, StreamError, TrainerLostError
from penstock.compat.persia.logger import get_default_logger

_PATIENCE = 600.0  # seconds for the trainers to listen


class Publisher:
    """Sends batches to the trainers, as many to each.

    All batches have been taken when `finish` returns. A process that ends without calling it is reported all the same.
    """

    def __init__(self, patience: float = _PATIENCE) -> None:
        self.index, self.size = env.get_replica_index() or 0, env.get_replica_size() or 1
        token, self._sent, self._finished = os.environ.get(_service.TOKEN, ""), 0, False
        self._round: list[bytes] = []
        self._clients: list[Client] = []
        known = _service.addresses()
        while len(self._clients) < len(known):
            client = Client(known[len(self._clients)], self.index, self.size, token, patience)
            self._clients.append(client)
            if len(known) == 1:
                known += client.trainers[1:]  # the first trainer knows the others
        if self._clients:
            _watch_for_errors()
            atexit.register(self._at_exit)
        else:
            self._stream = _service.service().stream
            _warn_if_unread(self._stream)
            self._stream.offer(_service.service().global_config().forward_buffer_size)
            self._open: threading.Thread | None = None

    def send(self, message: Message) -> None:
        """Send a batch, waiting while the trainers are behind. Where they want no more, the data loader ends."""
        if self._finished:
            raise StreamError("this data loader has ended; make another to send more")
        if self._clients:
            taken = self._send_round(to_bytes(message))
        else:
            self._enter_stream()
            taken = self._stream.put(self.index, message)
        if not taken:
            self._training_is_over()
        self._sent += 1

    def _send_round(self, content: bytes) -> bool:
        """One batch for each trainer, or none: those that step together must have as many."""
        self._round.append(content)
        if len(self._round) < len(self._clients):
            return True
        ready, self._round = self._round, []
        taken = [client.send(part) for client, part in zip(self._clients, ready, strict=True)]
        return all(taken)

    def _enter_stream(self) -> None:
        thread = threading.current_thread()
        if self._open is not thread:
            self._stream.open(self.index, f"data loader {self.index} (in this process)", self.size, thread)
            self._open = thread

    def _training_is_over(self) -> None:
        self._finished = True
        if not self._clients and threading.current_thread() is threading.main_thread():
            raise StreamError("training has ended; nothing takes further batches")
        for client in self._clients:
            client.finish()
        get_default_logger().info(
            f"the trainer wants no more after {self._sent} batches: data loader {self.index} ends"
        )
        raise SystemExit(0)

    def finish(self, failure: str | None = None) -> None:
        """Say that everything has been sent, or what went wrong."""
        if self._finished:
            return
        self._finished = True
        if self._round:
            logger = get_default_logger()
            logger.warning(
                f"the last {len(self._round)} batches are left out: {len(self._clients)} trainers share evenly"
            )
        if self._clients:
            for client in self._clients:
                client.finish(failure)
        elif self._open is not None:
            self._stream.end(self.index, failure)

    def _at_exit(self) -> None:
        self.finish(_uncaught[0] if _uncaught else None)


def _warn_if_unread(stream: Stream) -> None:
    """Say at the end of the process that nobody has taken what was sent: a data loader was started by itself."""

    def look() -> None:
        if not stream.was_read and stream.waiting:
            print(
                f"warning: {stream.waiting} batches were sent and nothing in this process trained on them: run the "
                "data loader and the trainer with penstock persia-launcher",
                file=sys.stderr,
            )

    if not stream.has_senders:
        atexit.register(look)


_uncaught: list[str] = []


def _watch_for_errors() -> None:
    """Remember the error that ends the process: at its exit nothing else tells a failure from an end."""
    show = sys.excepthook
    if getattr(show, "remembers", False):
        return

    def remember(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _uncaught.append(f"{kind.__name__}: {error}")
        if isinstance(error, TrainerLostError):  # a traceback would point at this script, which did nothing wrong
            print(f"error: {error}", file=sys.stderr)
        else:
            show(kind, error, trace)

    remember.remembers = True  # type: ignore[attr-defined]
    sys.excepthook = remember
