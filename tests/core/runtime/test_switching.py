"""How long a thread keeps Python's lock: the shortest that anybody asks for, and what it was once nobody does."""

from __future__ import annotations

import sys

import pytest

from penstock.core.runtime.switching import QUICK, quick_switches


@pytest.fixture(autouse=True)
def usual():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before)


def now() -> float:
    return pytest.approx(sys.getswitchinterval(), rel=0.05)


def test_the_shortest_of_blocks_that_overlap_holds():
    """They need not end in the order in which they began: threads have them."""
    first, second = quick_switches(), quick_switches(QUICK / 2)
    with first:
        second.__enter__()
        assert now() == QUICK / 2
    assert now() == QUICK / 2, "the first has ended"
    third = quick_switches()
    third.__enter__()
    second.__exit__(None, None, None)
    assert now() == QUICK
    third.__exit__(None, None, None)
    assert now() == 0.005


def test_a_block_that_fails_ends_it_too():
    with pytest.raises(KeyError), quick_switches():
        raise KeyError
    assert now() == 0.005


def test_what_was_shorter_before_stays():
    sys.setswitchinterval(QUICK / 4)
    with quick_switches():
        assert now() == QUICK / 4
    assert now() == QUICK / 4
