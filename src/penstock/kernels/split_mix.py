"""SplitMix64 in Python's integers: what seeds the loader's permutations, in kernels and oracle alike."""

from __future__ import annotations

MASK = (1 << 64) - 1


def split_mix(state: int) -> tuple[int, int]:
    """One step of SplitMix64.

    >>> f"{split_mix(0)[1]:x}"
    'e220a8397b1dcdaf'
    """
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)
