"""Which rows of hashed tables go when there are too many: the choice of a store (`penstock.embedding.evicting`)."""

from __future__ import annotations

from torch import Tensor

from penstock.embedding.evicting import rows_left
from penstock.embedding.policies import MemoryBudgetError

LOW32 = 0xFFFFFFFF
_FACTOR = 0xD6E8FEB86659FD93 - (1 << 64)


def least_recent(signs: Tensor, values: Tensor, may_go: Tensor, rows: int, most: int) -> Tensor:
    """Which of the entries `may_go` lose their rows, so that `most` remain of `rows`: those touched longest ago.

    Of rows touched in the same step those with the lower hash go, so the choice depends on nothing but the rows
    themselves.

    Raises:
        MemoryBudgetError: too few may go.
    """
    if len(may_go) < rows - most:
        raise MemoryBudgetError(
            f"one batch needs {rows - len(may_go)} rows, more than max_rows={most}; raise max_rows or use smaller "
            f"batches"
        )
    wanted = rows - rows_left(most)
    if wanted >= len(may_go):
        return may_go
    touched = values[may_go] >> 32
    last = touched.sort().values[wanted]
    gone = touched < last
    tied = (touched == last).nonzero().flatten()
    hashes = _mix(signs[may_go[tied]]) ^ (-1 << 63)  # unsigned ones, in the order of signed ones
    gone[tied] = hashes < hashes.sort().values[wanted - int(gone.sum())]
    return may_go[gone]


def _mix(key: Tensor) -> Tensor:
    """`cpu_half.mix` in torch's signed integers."""
    for _ in range(2):
        key = (key ^ ((key >> 32) & LOW32)) * _FACTOR
    return key ^ ((key >> 32) & LOW32)
