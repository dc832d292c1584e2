"""The oracle of `cpu_split`: one number at a time in Python's integers."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernels.cpu_split import GOLDEN, ROUNDS

_MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """SplitMix64's output function."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def network_place(number: int, count: int, key: int) -> int:
    """Where the permutation of `range(count)` that `key` names sends a number."""
    half = ((count - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = number >> half, number & mask
        for turn in range(1, ROUNDS + 1):
            round_key = mix((key + turn * GOLDEN) & _MASK)
            left, right = right, (left ^ mix((right + round_key) & _MASK)) & mask
        number = (left << half) | right
        if number < count:
            return number


def network_places(
    numbers: Sequence[int], stratum: Sequence[int], counts: Sequence[int], keys: Sequence[int]
) -> list[int]:
    """The same of many numbers, each of its stratum."""
    return [network_place(n, counts[s], keys[s]) for n, s in zip(numbers, stratum, strict=True)]
