"""Work behind the caller: in order, bounded, and with its errors."""

from __future__ import annotations

import threading

import pytest

from penstock.core.runtime.lanes import Lane


def test_the_caller_waits_where_too_much_is_ahead() -> None:
    may_go, done = threading.Event(), []

    def work(number: int) -> None:
        may_go.wait()
        done.append(number)

    def hand_all() -> None:
        with Lane("test", ahead=2) as lane:
            for number in range(6):
                lane.hand(work, number)
                handed.append(number)

    handed: list[int] = []
    caller = threading.Thread(target=hand_all)
    caller.start()
    while len(handed) < 2:
        threading.Event().wait(0.001)
    assert len(handed) <= 3 and not done  # the third is being handed over, and waits for the first
    may_go.set()
    caller.join()
    assert done == handed == list(range(6))


def test_an_error_comes_where_the_next_is_handed_or_at_the_end() -> None:
    with pytest.raises(ZeroDivisionError), Lane("test") as lane:
        lane.hand(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError), Lane("test", ahead=0) as lane:
        lane.hand(lambda: 1 // 0)
        pytest.fail("the error of the first was not seen")
