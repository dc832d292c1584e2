"""Lines between a client and the shards on its machine: what comes through, and what breaks them."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.embedding.ray_lines import Line, LineBroken, answer_calls, open_ends
from penstock.embedding.ray_memory import this_machine

pytestmark = pytest.mark.skipif(not this_machine(), reason="processes of this system cannot open each other's files")


class Refuses(Exception):
    """An error of a shard."""


class Untold(Exception):
    """An error that cannot be packed."""

    def __init__(self) -> None:
        super().__init__("no way to say it")
        self.lock = threading.Lock()


def answer(call: bytes) -> Any:
    if call == b"refuse":
        raise Refuses("not that")
    if call == b"untold":
        raise Untold
    return call[::-1]


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


def served(line: Line, answer: Callable[[bytes], Any] = answer) -> threading.Thread:
    files = open_ends(line.ends)
    assert files is not None
    line.opened()
    thread = threading.Thread(target=answer_calls, args=(*files, answer))
    thread.start()
    return thread


def later() -> float:
    return time.monotonic() + 300


def test_answers_come_in_the_order_of_their_calls_whatever_their_length(line: Line) -> None:
    thread = served(line)
    calls = [b"", b"ab", os.urandom(300_000), b"cd"]  # the third is longer than a pipe holds
    tickets = [line.send(call, later()) for call in calls[:2]]
    tickets += [line.send(call, later()) for call in calls[2:]]
    assert tickets[3].wait(later())  # the last comes last
    assert [ticket.outcome for ticket in tickets] == [(True, call[::-1]) for call in calls]
    assert not line._open
    line.close()
    thread.join()


@pytest.mark.parametrize(
    ("call", "error", "said"), [(b"refuse", Refuses, "not that"), (b"untold", RuntimeError, "say")]
)
def test_errors_of_a_shard_are_told_and_the_line_goes_on(line: Line, call: bytes, error: type, said: str) -> None:
    thread = served(line)
    bad, good = line.send(call, later()), line.send(b"ab", later())
    assert good.wait(later()) and good.outcome == (True, b"ba")
    assert bad.outcome is not None and not bad.outcome[0]
    assert type(bad.outcome[1]) is error and said in str(bad.outcome[1])
    line.close()
    thread.join()


def test_a_shard_that_does_not_answer_in_time_may_answer_later(line: Line) -> None:
    go_on = threading.Event()
    thread = served(line, lambda call: go_on.wait() and call)
    ticket = line.send(b"ab", later())
    assert not ticket.wait(time.monotonic() + 0.01) and not ticket.is_done
    go_on.set()
    assert ticket.wait(later()) and ticket.is_done and ticket.outcome == (True, b"ab")
    line.close()
    thread.join()


def test_a_shard_that_ends_breaks_the_line(line: Line) -> None:
    files = open_ends(line.ends)
    assert files is not None
    line.opened()
    ticket = line.send(b"ab", later())
    for file in files:
        os.close(file)
    assert ticket.is_done and line.broken
    with pytest.raises(LineBroken):
        ticket.wait(later())
    with pytest.raises(LineBroken):
        line.send(b"cd", later())


def test_a_message_that_does_not_fit_in_time_breaks_the_line(line: Line) -> None:
    files = open_ends(line.ends)
    assert files is not None
    line.opened()
    with pytest.raises(LineBroken):  # nobody reads
        line.send(bytes(300_000), time.monotonic() + 0.01)
    for file in files:
        os.close(file)


def test_a_client_that_is_gone_ends_the_thread_that_listens(line: Line) -> None:
    thread = served(line)
    line.close()
    thread.join()


def test_a_line_that_nobody_refers_to_is_ended() -> None:
    thread = served(Line())
    gc.collect()
    thread.join()


def test_half_a_message_of_a_client_that_died_is_no_call(line: Line) -> None:
    heard: list[bytes] = []
    thread = served(line, heard.append)
    os.write(line._calls, b"\x10\x00\x00\x00" + bytes(8) + b"half")
    line.close()
    thread.join()
    assert not heard


def test_ends_of_another_machine_or_of_no_process_are_not_opened(line: Line) -> None:
    for changed in ({"machine": "another"}, {"process": 2**22 + 1}, {"calls": 2**20}, {"replies": 2**20}):
        assert open_ends(line.ends._replace(**changed)) is None
