"""A job's stages, as its listener hears of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.jobs.events import Listener, StageBegan, StageEnded


@contextmanager
def timed_stage(name: str, listener: Listener, seconds: dict[str, float]) -> Iterator[None]:
    """Tell that a stage begins and ends, and keep how long it took. One that fails does not end.

    Args:
        name: of the stage.
        listener: who is told.
        seconds: by stage.

    Returns:
        A context.

    >>> told, seconds = [], {}
    >>> with timed_stage("etl", told.append, seconds):
    ...     pass
    >>> [type(event).__name__ for event in told], list(seconds)
    (['StageBegan', 'StageEnded'], ['etl'])
    """
    listener(StageBegan(name))
    began = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - began, 3)
    listener(StageEnded(name, seconds[name]))
