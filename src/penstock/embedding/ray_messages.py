"""What a client of a store on Ray and a shard say to each other: calls, and answers that are no results."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np

_SMALL = 4096  # bytes of an array that is sent with everything else


class Command(NamedTuple):
    """What every call carries, so that it counts once: the same number from the same client is the same command."""

    epoch: int  # which restoring of the whole store the client knows of
    client: str
    number: int  # 0: nothing changes, so it may be done again
    settled: int  # this number and all below it will not be sent again
    before: int = 0  # of the same client, in flight when this one was sent: it must have been applied


class _Sent(NamedTuple):
    """An array that travels beside what is packed."""

    number: int


def packed(method: str, arguments: tuple[Any, ...]) -> list[Any]:
    """A call for `Shard.run`: all that is small as one argument, since Ray spends most of a short call on arguments.

    >>> call = packed("lookup", (1, np.zeros(4), np.zeros(4000)))
    >>> len(call), len(packed("stats", ()))
    (2, 1)
    >>> unpacked(*call)[0]
    'lookup'
    """
    arrays = [given for given in arguments if isinstance(given, np.ndarray) and given.nbytes > _SMALL]
    numbers = {id(array): number for number, array in enumerate(arrays)}
    small = [_Sent(numbers[id(given)]) if id(given) in numbers else given for given in arguments]
    return [pickle.dumps((method, small), protocol=5), *arrays]


def unpacked(call: bytes, *arrays: np.ndarray) -> tuple[str, list[Any]]:
    """The method and the arguments that were packed."""
    method, arguments = pickle.loads(call)
    return method, [arrays[given.number] if isinstance(given, _Sent) else given for given in arguments]


class Refused(NamedTuple):
    """A shard's answer to a call of another epoch, or when it was started (again) and holds nothing yet."""

    lost: bool
    epoch: int


class TooEarly(NamedTuple):
    """A shard's answer to a command that it has not applied, since one of the same client before it has not come."""


class Standing(NamedTuple):
    """How far a shard has come."""

    lost: bool
    epoch: int
    updates: int  # without those of the command which was asked about, and behind it
