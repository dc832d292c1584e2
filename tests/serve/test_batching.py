"""Batches form while others are predicted; one bad, slow or vanished request does not touch the rest."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.core.errors import DataError
from penstock.serve.batching import Batcher, QueueFullError
from penstock.serve.checking import RowError
from penstock.serve.waiting import ClientGoneError


class Halves:
    """Half of `x`, with a gate that keeps the first batch under way, and a record of what was asked."""

    def __init__(self) -> None:
        self.gate, self.batches = threading.Event(), []

    def __call__(self, rows):
        self.batches.append([row["x"] for row in rows])
        if len(self.batches) == 1:
            assert self.gate.wait(300)
        if any(row["x"] == 13 for row in rows):
            raise DataError("thirteen is not served")
        if any(row["x"] == 14 for row in rows):
            raise ZeroDivisionError
        return np.array([np.inf if row["x"] == 15 else row["x"] / 2 for row in rows], np.float32)


def rows(*values):
    return [{"x": value} for value in values]


def run(scenario, halves=None, **settings):
    async def main():
        predict = halves or Halves()
        batcher = Batcher(predict, **settings)
        batcher.start()
        try:
            return await asyncio.wait_for(scenario(batcher, predict), 300)
        finally:
            predict.gate.set()
            await batcher.stop()

    return asyncio.run(main())


async def begun(halves) -> None:
    """Until the first batch is at the model."""
    while not halves.batches:
        await asyncio.sleep(0.001)


def test_what_comes_meanwhile_is_the_next_batch() -> None:
    async def scenario(batcher, halves):
        first = batcher.submit(rows(1))
        await begun(halves)
        others = [batcher.submit(rows(n, n + 1)) for n in (2, 4, 6)]
        assert batcher.queued_rows == 6
        halves.gate.set()
        answers = await asyncio.gather(first, *others)
        assert [a.tolist() for a in answers] == [[0.5], [1.0, 1.5], [2.0, 2.5], [3.0, 3.5]]
        assert halves.batches == [[1], [2, 3, 4, 5, 6, 7]] and batcher.queued_rows == 0

    run(scenario)


def test_requests_of_one_moment_are_one_batch_and_batches_have_a_size() -> None:
    sizes = []

    async def scenario(batcher, halves):
        halves.gate.set()
        await asyncio.gather(*(batcher.submit(rows(*range(n))) for n in (2, 2, 1, 9, 3)))
        assert [len(batch) for batch in halves.batches] == [4, 4, 4, 4, 1]  # nine are more than a batch

    run(scenario, max_batch=4, observe=sizes.append)
    assert sizes == [4, 4, 4, 4, 1]


def test_an_idle_batcher_never_waits_and_a_busy_one_only_for_what_is_being_read() -> None:
    async def scenario(batcher, halves):
        halves.gate.set()
        await batcher.submit(rows(1))  # it might wait for ten minutes, more than this test has

        async def slow():
            with batcher.arriving():
                await asyncio.sleep(0.05)
            return await batcher.submit(rows(3))

        reading = asyncio.create_task(slow())
        await asyncio.sleep(0)
        await batcher.submit(rows(2))  # until the other one is there, and no longer
        await reading
        assert halves.batches == [[1], [2, 3]]

    run(scenario, max_wait=600)


def test_one_that_stalls_is_waited_for_once() -> None:
    async def scenario(batcher, halves):
        halves.gate.set()
        stalled = batcher.arriving()
        stalled.__enter__()
        began = time.perf_counter()
        await batcher.submit(rows(1))
        assert time.perf_counter() - began > 0.3
        for _ in range(700):  # together they would wait for longer than this test has
            await batcher.submit(rows(1))
        stalled.__exit__(None, None, None)

    run(scenario, max_wait=0.5)


def test_clients_that_were_answered_together_are_waited_for_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batcher is told that its first batch took a thousand seconds, and the next ones a tenth of one."""
    batches: list[list[int]] = []
    told = SimpleNamespace(perf_counter=lambda: 1000.0 * bool(batches) + 0.1 * len(batches), monotonic=time.monotonic)
    monkeypatch.setattr("penstock.serve.batching.time", told)

    def predict(rows):
        batches.append([row["x"] for row in rows])
        return np.zeros(len(rows), np.float32)

    predict.gate = threading.Event()

    async def scenario(batcher, _):
        await asyncio.gather(batcher.submit(rows(1)), batcher.submit(rows(2)))
        again = batcher.submit(rows(3))
        await asyncio.sleep(0.01)  # the other one takes a moment longer
        await asyncio.gather(again, batcher.submit(rows(4)))
        assert batches == [[1, 2], [3, 4]]
        await batcher.submit(rows(5))  # it comes alone, and is let go after half of what a batch took
        assert batches[2:] == [[5]]

    run(scenario, predict, max_wait=600)


def test_who_has_gone_is_dropped() -> None:
    async def scenario(batcher, halves):
        first = batcher.submit(rows(1))
        await begun(halves)
        gone = batcher.submit(rows(2), is_gone=lambda: True)
        cancelled = batcher.submit(rows(3))
        cancelled.cancel()
        stays = batcher.submit(rows(4))
        halves.gate.set()
        assert (await stays).tolist() == [2.0] and (await first).tolist() == [0.5]
        with pytest.raises(ClientGoneError):
            await gone
        assert halves.batches == [[1], [4]] and batcher.dropped == 2

    run(scenario)


def test_the_queue_is_bounded() -> None:
    async def scenario(batcher, halves):
        first = batcher.submit(rows(1))
        await begun(halves)
        waiting = batcher.submit(rows(*range(9)))  # a large request is taken where nothing waits
        with pytest.raises(QueueFullError, match="9 rows are waiting"):
            batcher.submit(rows(1))
        halves.gate.set()
        await asyncio.gather(first, waiting)
        assert (await batcher.submit(rows(8))).tolist() == [4.0]

    run(scenario, max_queue=4)


def test_a_bad_request_does_not_spoil_its_batch() -> None:
    async def scenario(batcher, halves):
        halves.gate.set()
        good, bad, broken, endless, also = (
            batcher.submit(rows(*given)) for given in ([1, 2], [3, 13, 4], [14], [5, 6, 15], [7])
        )
        assert (await good).tolist() == [0.5, 1.0] and (await also).tolist() == [3.5]
        with pytest.raises(RowError, match="row 1: thirteen is not served") as found:
            await bad
        assert found.value.row == 1
        with pytest.raises(ZeroDivisionError):
            await broken
        with pytest.raises(RowError, match="row 2: the model's answer is not a number"):
            await endless
        assert (await batcher.submit(rows(2))).tolist() == [1.0]

    run(scenario)


def test_stopping_answers_what_waits() -> None:
    async def main():
        halves = Halves()
        batcher = Batcher(halves)
        batcher.start()
        first = batcher.submit(rows(1))
        await begun(halves)
        second = batcher.submit(rows(2))
        asyncio.get_running_loop().call_later(0.05, halves.gate.set)
        await batcher.stop()
        assert first.result().tolist() == [0.5] and second.result().tolist() == [1.0]
        assert not batcher._thread.is_alive()

    asyncio.run(main())


def test_a_large_request_lets_others_in_between() -> None:
    """Its answer comes whole and in order; who came later with one row is answered before its end."""
    order: list[str] = []

    async def scenario(batcher, halves):
        large = batcher.submit(rows(*range(20, 30)))
        large.add_done_callback(lambda _: order.append("large"))
        await begun(halves)  # its first portion is under way
        small = [batcher.submit(rows(value)) for value in (100, 102)]
        for one in small:
            one.add_done_callback(lambda _: order.append("small"))
        halves.gate.set()
        assert (await large).tolist() == [value / 2 for value in range(20, 30)]
        assert [(await one).tolist() for one in small] == [[50.0], [51.0]]
        assert batcher.queued_rows == 0 and [len(batch) for batch in halves.batches] == [4, 2, 4, 2]

    run(scenario, max_batch=4, max_wait=0.0)
    assert order == ["small", "small", "large"]


def test_a_bad_row_of_a_large_request_is_counted_from_its_beginning() -> None:
    async def scenario(batcher, halves):
        halves.gate.set()
        bad, good = batcher.submit(rows(*range(4, 20))), batcher.submit(rows(1))
        with pytest.raises(RowError) as refused:
            await bad
        assert refused.value.row == 9  # thirteen
        assert (await good).tolist() == [0.5] and batcher.queued_rows == 0

    run(scenario, max_batch=4, max_wait=0.0)


def test_who_hangs_up_between_two_portions_is_dropped() -> None:
    gone: list[bool] = []

    async def scenario(batcher, halves):
        large = batcher.submit(rows(*range(20, 30)), lambda: bool(gone))
        await begun(halves)
        gone.append(True)
        halves.gate.set()
        with pytest.raises(ClientGoneError):
            await large
        assert batcher.queued_rows == 0 and batcher.dropped == 1 and len(halves.batches) == 1

    run(scenario, max_batch=4)
