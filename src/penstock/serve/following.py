"""Following a feed in the background: packets are applied as they arrive, beside the predictions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.runtime.threads import new_thread
from penstock.serve.predictor import Predictor

log = logging.getLogger("penstock.serve")


class Follower:
    """A thread that calls `predictor.refresh()` every `poll_seconds`.

    A packet that cannot be applied does not stop the service: `error` says why until a packet that holds everything has
    come, and the packets behind it are applied.
    """

    def __init__(
        self, predictor: Predictor, poll_seconds: float = 1.0, followed: Callable[[int], Any] = lambda packets: None
    ) -> None:
        self.predictor, self.poll_seconds = predictor, poll_seconds
        self.error: str | None = None
        self.applied_at: float | None = None  # seconds since the epoch
        self._logged: str | None = None
        self._followed, self._stop = followed, threading.Event()
        self._thread = new_thread("feed", self._run)

    def start(self) -> None:
        """Apply what is there already, then go on in the background."""
        self.poll()
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the packet it is at."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def poll(self) -> None:
        """Apply the packets that have arrived."""
        try:
            packets = self.predictor.refresh()
        except Exception as error:  # whatever is wrong with a packet, the next one may be right
            reason = str(error) if isinstance(error, (PenstockError, OSError)) else f"{type(error).__name__}: {error}"
            self.error = self.predictor.feed_problem or reason
            if reason != self._logged:
                log.error("the feed cannot be followed: %s", reason, exc_info=not isinstance(error, PenstockError))
                self._logged = reason
            return
        self.error = self.predictor.feed_problem
        if packets:
            self.applied_at = time.time()
            self._followed(packets)

    def _run(self) -> None:
        while not self._stop.wait(self.poll_seconds):
            self.poll()
