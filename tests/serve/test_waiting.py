"""Short requests before long ones, and long ones in portions that keep nobody waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.serve.waiting import ClientGoneError, Portion, Request, RequestQueue


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Queue(RequestQueue):
    """Takes numbers of rows, and gives numbers of rows."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_batch: int = 128) -> None:
        super().__init__(max_batch)
        self.loop = loop

    def put(self, *sizes: int, now: float = 0.0) -> list[Request]:
        requests = [Request([{}] * size, self.loop.create_future(), lambda: False, now) for size in sizes]
        for request in requests:
            self.add(request)
        return requests

    def batch(self, now: float = 0.0, seconds: float = 0.001) -> list[int]:
        """The next batch; it takes so long, and what is left of long requests waits again."""
        portions: list[Portion] = self.take(now)
        self.took(portions, seconds)
        for portion in portions:
            (self.go_on if portion.request.num_left else self.end)(portion.request)
        return [len(portion) for portion in portions]


def test_alone_a_long_request_fills_batches(loop) -> None:
    queue = Queue(loop)
    queue.put(300, 20)
    assert queue.fill_batches(now=0.0) is False  # a portion of it does not lie ready
    assert [queue.batch() for _ in range(4)] == [[128], [20], [128], [44]] and len(queue) == 0


def test_short_ones_go_first_and_some_rows_of_a_long_one_with_every_second_batch(loop) -> None:
    queue = Queue(loop)
    queue.put(1000, 1, 2)
    found = [queue.batch()]
    for _ in range(3):
        queue.put(3)
        found.append(queue.batch())
    assert [batch[0] for batch in found] == [1, 3, 3, 3] and [len(batch) for batch in found] == [2, 2, 1, 2]


def test_portions_beside_short_ones_take_about_their_time(loop) -> None:
    queue = Queue(loop)
    queue.put(4000)
    for _ in range(50):
        queue.put(2)
        queue.batch(seconds=0.001)
    assert queue.batch(seconds=0.010) == [128]  # ten times what a short batch takes
    assert queue.batch(seconds=0.002) == [25] and queue.batch(seconds=0.0005) == [25]
    assert queue.batch(seconds=1.0) == [50] and queue.batch(seconds=1.0) == [16]  # no fewer, whatever they take
    assert queue.batch(now=60.0) == [128]  # none has come for long


def test_long_requests_do_not_use_up_the_room_of_short_ones(loop) -> None:
    queue = Queue(loop)
    queue.put(1000, 1000, 7)
    assert (queue.num_rows, queue.num_short_rows) == (2007, 7)
    queue.batch()
    assert (queue.num_rows, queue.num_short_rows) == (2000, 0)


def test_a_request_longer_than_a_batch_is_long_however_short(loop) -> None:
    queue = Queue(loop, max_batch=4)
    queue.put(9)
    assert [queue.batch() for _ in range(3)] == [[4], [4], [1]]


def test_who_has_gone_is_left_out(loop) -> None:
    queue = Queue(loop)
    gone, stays = queue.put(3, 2)
    gone.is_gone = lambda: True
    assert queue.batch() == [2] and (queue.num_rows, queue.dropped, queue.num_returning) == (0, 1, 0)
    assert isinstance(gone.answer.exception(), ClientGoneError) and not stays.answer.done()
