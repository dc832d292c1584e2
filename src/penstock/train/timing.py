"""Where the time of a training loop goes: a few clocks that are read at every step."""

from __future__ import annotations

import time
from types import TracebackType

# What the loop itself does, one after the other, and what the thread beside it does.
LOOP_STAGES = ("wait", "forward", "backward", "optimizer")
THREAD_STAGES = ("fetch", "prepare", "lookup", "update")


class Timings:
    """Seconds of training by stage.

    The loop waits for a batch (`wait`), runs the model `forward` and `backward`, and steps the dense `optimizer`; the
    thread beside it waits for the loader (`fetch`), makes batches ready (`prepare`), and does the `lookup` and `update`
    of embeddings. On a GPU the loop's stages are the time it takes to order the work.

    >>> timings = Timings()
    >>> with timings.timed("forward"):
    ...     pass
    >>> sorted(timings.since_last()) == sorted((*LOOP_STAGES, *THREAD_STAGES)), timings.since_last()["forward"]
    (True, 0.0)
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((*LOOP_STAGES, *THREAD_STAGES), 0.0)
        self._told = dict(self.seconds)

    def add(self, stage: str, seconds: float) -> None:
        """Each stage is added to by one thread only, so there is no lock."""
        self.seconds[stage] += seconds

    def timed(self, stage: str | None) -> _Timed:
        """A block whose time counts; with None it does not."""
        return _Timed(self, stage)

    def since_last(self) -> dict[str, float]:
        """Seconds by stage since this was last asked."""
        now = dict(self.seconds)
        found = {stage: round(seconds - self._told[stage], 6) for stage, seconds in now.items()}
        self._told = now
        return found


class _Timed:
    def __init__(self, timings: Timings, stage: str | None) -> None:
        self._timings, self._stage = timings, stage

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._stage is not None:
            self._timings.add(self._stage, time.perf_counter() - self._began)
