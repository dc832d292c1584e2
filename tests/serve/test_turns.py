"""Short requests go first, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.serve.http import turns as module
from penstock.serve.http.turns import Turns


class Task:
    """Needs so many turns; says when it had one."""

    def __init__(self, name: str, turns: int, log: list[str]) -> None:
        self.name, self.left, self.log = name, turns, log

    def work(self) -> bool:
        self.log.append(self.name)
        self.left -= 1
        return not self.left


async def until_idle(turns: Turns) -> None:
    while not turns.are_idle():
        await asyncio.sleep(0)


def test_who_waits_has_one_turn_after_the_other() -> None:
    async def scenario() -> None:
        turns, log = Turns(), []
        for name, count in (("a", 3), ("b", 1), ("c", 2)):
            turns.add(Task(name, count, log))
        await until_idle(turns)
        assert log == ["a", "b", "c", "a", "c", "a"]

    asyncio.run(scenario())


def test_a_short_request_is_let_past_and_then_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 600.0)  # longer than this test may take

    async def scenario() -> None:
        turns, log = Turns(), []
        with turns.short(), turns.short():
            turns.add(Task("long", 2, log))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not log and not turns.is_clear()
        await until_idle(turns)
        assert log == ["long", "long"]

    asyncio.run(scenario())


def test_a_short_request_that_begins_before_a_turn_is_let_past_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 600.0)

    async def scenario() -> None:
        turns, log = Turns(), []
        turns.add(Task("long", 1, log))  # it would be next
        with turns.short():
            for _ in range(5):
                await asyncio.sleep(0)
            assert not log
        await until_idle(turns)
        assert log == ["long"]

    asyncio.run(scenario())


def test_newcomers_wait_for_those_who_were_here_and_for_nothing_that_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 600.0)

    async def scenario() -> None:
        turns, log = Turns(), []
        with turns.short(returns=False):
            assert turns.may_begin()  # one of its like is no reason to wait
        with turns.short():
            assert not turns.may_begin()
            for name in ("long", "longer"):
                turns.add(Task(name, 2, log))
            turns.add(Task("newcomer", 1, log), is_newcomer=True)
        await until_idle(turns)
        assert log == ["newcomer", "long", "longer", "long", "longer"] and turns.may_begin()

    asyncio.run(scenario())


def test_turns_come_although_short_requests_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.001)

    async def scenario() -> None:
        turns, log = Turns(), []
        with turns.short():
            turns.add(Task("long", 3, log))
            await turns.take()
            await until_idle(turns)
        assert log == ["long"] * 3

    asyncio.run(scenario())


def test_a_request_that_was_expected_and_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EXPECT_SECONDS", 0.05)
    turns = Turns()
    turns.expect()
    assert not turns.is_clear()
    time.sleep(0.06)
    assert turns.is_clear()


def test_steps_return_what_they_find_or_raise() -> None:
    def found(count: int):
        for _ in range(count):
            yield
        return count

    def failing():
        yield
        raise ValueError("no")

    async def scenario() -> None:
        turns = Turns()
        assert await asyncio.gather(turns.run(found(1000)), turns.run(found(0))) == [1000, 0]
        with pytest.raises(ValueError, match="no"):
            await turns.run(failing())
        given_up = asyncio.create_task(turns.run(endless()))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        await until_idle(turns)  # nobody asks for it any more
        await turns.take()

    def endless():
        while True:
            yield

    asyncio.run(scenario())
