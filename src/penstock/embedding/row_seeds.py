"""Where the numbers of new rows come from: a seed for each table, that of the whole and the table's own name."""

from __future__ import annotations

import hashlib


def stable_number(group: str) -> int:
    """A number of a group's own: where signs do not name their group, rows of two must not begin alike."""
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "little")


def row_seed(seed: int) -> int:
    """What the signs of a table's rows are mixed with before they are hashed: 64 bits.

    >>> row_seed(0), hex(row_seed(1))
    (0, '0x9e3779b97f4a7c15')
    """
    return (seed * 0x9E3779B97F4A7C15) % 2**64
