"""What the kernels of a row cache's index and their oracle agree on.

The words of `fused_contract` (feature, bag, key) apply; the number of all rows stands for an id outside its table.
`slot_of[key]` says where the row is: a slot of the cache (0 and up), `UNSEEN` (ask the store by id), `stored(row)` (the
row of that number in its table of the store), or `CLAIMED`. `used[slot]` is the number of the last batch that had the
row. A wrong or absent id is reported by its code there.
"""

from __future__ import annotations

from typing import Any

UNSEEN = -1
CLAIMED = -(2**31)  # a batch has asked for the row and it is on its way


def stored(row: Any) -> Any:
    """What `slot_of` holds for a row of the store that is not cached; its own inverse.

    >>> stored(5), stored(stored(5))
    (-7, 5)
    """
    return -2 - row
