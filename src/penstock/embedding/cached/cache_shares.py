"""How many rows of a cache each table gets, and how many batches find room in it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.embedding.fused.ids import Ids

_IDS_TOGETHER = 14_000_000  # ids for which the time to bring rows in goes with their number
_MOST_TOGETHER = 32


def batches_together(parts: Sequence[Ids], sizes: Sequence[list[int]], rooms: Sequence[int]) -> int:
    """How many batches like this one are best brought in at once.

    Args:
        parts: the ids of a batch, a part for each cache.
        sizes: how many ids the tables of each cache can have.
        rooms: rows of each cache.

    Returns:
        A number from 1.

    >>> import torch
    >>> batches_together([Ids(torch.zeros((10, 2)), None, ())], [[4, 1000]], [100])
    4
    """
    count = min(_IDS_TOGETHER // max(sum(part.num_occurrences for part in parts), 1), _MOST_TOGETHER)
    while count > 1 and any(
        most_rows(part, own, 2 * count) > room  # two groups are in flight
        for part, own, room in zip(parts, sizes, rooms, strict=True)
    ):
        count -= 1
    return max(1, count)


def most_rows(ids: Ids, sizes: list[int], batches: int) -> int:
    """Rows that several batches like this one can name at most: of each table its ids, but no more than it has rows.

    >>> import torch
    >>> most_rows(Ids(torch.zeros((10, 2)), None, ()), [4, 1000], batches=3)
    34
    """
    singles = sum(min(size, batches * len(ids.singles)) for i, size in enumerate(sizes) if i not in ids.bags)
    values = 0 if ids.lists is None else batches * len(ids.lists[0])
    return singles + min(sum(sizes[i] for i in ids.bags), values)


def shared_rows(cache_rows: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """How many of `cache_rows` each table has, where tables of several dims cannot share one cache.

    All have as many, but for small tables, which have all of their rows: a batch's ids are as many in each column, and
    a table cannot use more rows than it has.

    Args:
        cache_rows: rows on the device.
        sizes: rows by table.

    Returns:
        Rows by table, one at least.

    >>> shared_rows(100, {"user": 1000, "item": 500, "day": 7})
    {'user': 47, 'item': 46, 'day': 7}
    """
    left, shares = cache_rows, dict[str, int]()
    smallest_first = sorted(sizes, key=lambda name: sizes[name])
    for number, name in enumerate(smallest_first):
        shares[name] = max(1, min(sizes[name], left // (len(sizes) - number)))
        left -= shares[name]
    return {name: shares[name] for name in sizes}
