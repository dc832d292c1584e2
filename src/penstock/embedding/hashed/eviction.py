"""Which rows of hashed tables go when there are too many: the choice of a store (`penstock.embedding.evicting`)."""

from __future__ import annotations

from torch import Tensor

from penstock.embedding.policies import MemoryBudgetError

_ROOM = 16  # evicting frees one row in so many, so that it happens seldom
_LOW32 = 0xFFFFFFFF
_FACTOR = 0xD6E8FEB86659FD93 - (1 << 64)


def least_recent(signs: Tensor, values: Tensor, rows: int, most: int, oldest: int) -> Tensor:
    """Which entries of an index lose their rows, so that `most` remain of `rows`: those touched longest ago.

    Rows touched in step `oldest` or later stay. Of rows touched in the same step those with the lower hash go, so the
    choice depends on nothing but the rows themselves.

    Raises:
        MemoryBudgetError: too few may go.
    """
    touched = values >> 32
    may_go = ((values >= 0) & (touched < oldest)).nonzero().flatten()
    if len(may_go) < rows - most:
        raise MemoryBudgetError(
            f"one batch needs {rows - len(may_go)} rows, more than max_rows={most}; raise max_rows or use smaller "
            f"batches"
        )
    wanted = rows - (most - most // _ROOM)
    if wanted >= len(may_go):
        return may_go
    touched = touched[may_go]
    last = touched.sort().values[wanted]
    gone = touched < last
    tied = (touched == last).nonzero().flatten()
    hashes = _mix(signs[may_go[tied]]) ^ (-1 << 63)  # unsigned ones, in the order of signed ones
    gone[tied] = hashes < hashes.sort().values[wanted - int(gone.sum())]
    return may_go[gone]


def _mix(key: Tensor) -> Tensor:
    """`cpu_half.mix` in torch's signed integers."""
    for _ in range(2):
        key = (key ^ ((key >> 32) & _LOW32)) * _FACTOR
    return key ^ ((key >> 32) & _LOW32)
