"""Leases of the clients of one store, and what the processes of a store import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.embedding.ray_coordinator import Coordinator, Grant
from penstock.embedding.ray_in_flight import CommandNumbers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coordinator(clock: Clock) -> Coordinator:
    return Coordinator(b"", 2, clock=clock)


def test_a_lease_ends_when_it_is_not_renewed(coordinator: Coordinator, clock: Clock) -> None:
    first = coordinator.acquire("save", "one", "/a", 10.0)
    clock.now = 9.0
    assert coordinator.renew("save", first.token)
    clock.now = 18.0
    assert coordinator.acquire("save", "two", "/b", 10.0) == Grant(0, "/a", None)
    assert coordinator.acquire("restore", "two", "/b", 10.0).token  # another purpose
    clock.now = 19.5
    second = coordinator.acquire("save", "two", "/b", 10.0)
    assert second.token > first.token
    assert not coordinator.renew("save", first.token)
    assert not coordinator.release("save", first.token, ("/a", "late"))
    assert coordinator.acquire("save", "three", "/c", 10.0) == Grant(0, "/b", None)


def test_calls_may_be_repeated(coordinator: Coordinator) -> None:
    grant = coordinator.acquire("restore", "one", "/a", 10.0)
    assert coordinator.acquire("restore", "one", "/a", 10.0) == grant
    lost = [{"shard": 1}]
    for _ in range(2):
        assert coordinator.release("restore", grant.token, ("/a", "sum"), False, lost)
    assert coordinator.restarts() == lost
    again = coordinator.acquire("restore", "two", "/b", 10.0)
    assert again.trail == ("/a", "sum")
    assert coordinator.release("restore", again.token, None, True)
    assert coordinator.acquire("save", "two", "/b", 10.0).trail is None


def test_a_standby_that_is_emptied_may_not_take_over(coordinator: Coordinator) -> None:
    first = coordinator.new_standby(0, 0)
    assert coordinator.pair(0, first, epoch=0) and coordinator.arrangement().standbys == [first, 0]
    assert coordinator.new_standby(0, 1) == 0  # that process is not the primary
    assert coordinator.arrangement().standbys == [first, 0]
    assert coordinator.new_standby(0, 0) > first
    assert coordinator.arrangement().standbys == [0, 0] and not coordinator.pair(0, first, epoch=0)


def test_a_standby_of_what_was_there_before_a_restore_may_not_take_over(coordinator: Coordinator) -> None:
    """Begun after the restore was announced, and filled before its shard had heard of it."""
    coordinator.unpair_all(epoch=7)
    assert not coordinator.pair(1, coordinator.new_standby(1, 0), epoch=6)
    assert coordinator.pair(1, coordinator.new_standby(1, 0), epoch=7)


def test_what_is_given_up_is_settled() -> None:
    class Batch:
        pass

    numbers, batch = CommandNumbers(), Batch()
    first, second = numbers.new(batch), numbers.new()
    numbers.settle(second)
    assert numbers.settled == first - 1
    del batch
    assert numbers.settled == second


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("ray_coordinator", {"numpy", "numba", "polars", "pyarrow", "ray"}),
        ("ray_shard", {"polars", "pyarrow", "torch", "ray"}),
    ],
)
def test_a_process_of_a_store_starts_without(module: str, without: set[str]) -> None:
    program = f"import sys, penstock.embedding.{module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not without & set(loaded)
