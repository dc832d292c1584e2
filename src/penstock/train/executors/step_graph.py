"""A step recorded once and run again from the same memory: as a CUDA graph, or eagerly where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

Work = Callable[[], None]


class Recorder(Protocol):
    """What a captured step needs of the machine."""

    def warm_up(self, work: Work) -> None:
        """Do the work as a recording will see it."""
        ...

    def record(self, work: Work) -> None:
        """Record the work, without doing it."""
        ...

    def replay(self) -> None:
        """Do what was recorded."""
        ...

    def forget(self) -> None:
        """What was recorded is not wanted any more."""
        ...


class GraphRecorder:
    """Work as a CUDA graph.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = None  # the stream of warm-up and capture
        self._graph: Any = None

    def warm_up(self, work: Work) -> None:
        """On the stream of the capture, so that libraries allocate their workspaces there."""
        self._side = self._side or torch.cuda.Stream(self._device)
        main = torch.cuda.current_stream(self._device)
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            work()
        main.wait_stream(self._side)

    def record(self, work: Work) -> None:
        """Other threads (a cache that fetches rows, a loader) may allocate and wait meanwhile; this one must not."""
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=self._side, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        """Launch the graph."""
        self._graph.replay()

    def forget(self) -> None:
        """Free the graph's memory."""
        self._graph = None


class EagerRecorder:
    """The same without a GPU: the work that was recorded, done again. It reads the memory that it was recorded with.

    >>> counts = []
    >>> recorder = EagerRecorder()
    >>> recorder.record(lambda: counts.append(1))
    >>> recorder.replay()
    >>> counts
    [1]
    """

    def __init__(self) -> None:
        self._work: Work | None = None

    def warm_up(self, work: Work) -> None:
        """Do it."""
        work()

    def record(self, work: Work) -> None:
        """Keep it."""
        self._work = work

    def replay(self) -> None:
        """Do what was kept."""
        assert self._work is not None
        self._work()

    def forget(self) -> None:
        """Keep nothing."""
        self._work = None
