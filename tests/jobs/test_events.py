"""Events of jobs: every class has its method, and what is none is refused."""

from __future__ import annotations

import dataclasses
import inspect
from typing import get_args

import pytest

from penstock.jobs import events
from penstock.jobs.events import Event, EventListener, Listeners, RunDone, StageBegan
from penstock.jobs.recorder import RunRecorder


def test_every_event_has_a_method() -> None:
    classes = {c for c in vars(events).values() if dataclasses.is_dataclass(c) and inspect.isclass(c)}
    assert classes == set(get_args(Event)) == set(events.METHODS)
    for name in events.METHODS.values():
        assert callable(getattr(EventListener, name))


def test_the_recorder_keeps_something_of_every_event() -> None:
    for name in events.METHODS.values():
        assert getattr(RunRecorder, name) is not getattr(EventListener, name), f"RunRecorder does not override {name}"


def test_no_listener_has_a_method_for_an_event_that_is_not_there() -> None:
    known = set(dir(EventListener))
    for listener in EventListener.__subclasses__():
        with_event = {
            n for n, f in vars(listener).items() if callable(f) and "event" in inspect.signature(f).parameters
        }
        assert with_event <= known, f"{listener.__name__}: {sorted(with_event - known)}"


@pytest.mark.parametrize("listener", [EventListener(), Listeners(EventListener())])
def test_what_is_no_event_is_refused(listener: events.Listener) -> None:
    listener(StageBegan("etl"))
    with pytest.raises(TypeError, match="'stage' is no event of a job"):
        listener("stage")  # type: ignore[arg-type]


def test_all_listeners_hear_all_in_order() -> None:
    heard: list[tuple[int, Event]] = []
    both = Listeners(lambda event: heard.append((1, event)), lambda event: heard.append((2, event)))
    first, second = StageBegan("etl"), RunDone({})
    both(first)
    both(second)
    assert heard == [(1, first), (2, first), (1, second), (2, second)]
