"""A bound on the rows of the store behind a cache: which step used each cached row last, and what may be in flight.

A store evicts after each training look-up, by the steps that used its rows last. Of rows in the cache only the cache
knows those: they are told to the store when rows leave, and all of them before any row goes. So the choice is the
store's own. It is made as batches come into the cache, in the order in which they were announced.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from penstock.embedding.cached.keys import in_order
from penstock.embedding.cached.signed_rows import SignedRows
from penstock.embedding.evicting import rows_left


class RowBudget(nn.Module):
    """The steps of cached rows, 0 for one that the store knows, and the bound `max_rows` on all rows.

    >>> budget = RowBudget(max_rows=64, capacity=4, device="cpu")
    >>> budget.use([torch.tensor([0, 2]), torch.tensor([2, 3])], first_step=7)
    >>> budget.touched.tolist()
    [7, 0, 8, 8]
    >>> used = torch.tensor([1, 1, 2, 2])  # by which groups of batches
    >>> budget.holds(torch.tensor([2, 3]), 40, used, oldest=2), budget.holds(torch.tensor([2, 3]), 58, used, oldest=1)
    (True, False)
    """

    touched: Tensor

    def __init__(self, max_rows: int, capacity: int, device: torch.device | str) -> None:
        super().__init__()
        self.max_rows = max_rows
        self.register_buffer("touched", torch.zeros(capacity, dtype=torch.int32, device=device), persistent=False)

    def use(self, slots: list[Tensor], first_step: int) -> None:
        """The slots of each batch are used, one step after the other."""
        for step, own in enumerate(slots, first_step):
            self.touched.index_fill_(0, own, step)

    def holds(self, slots: Tensor, coming: int, used: Tensor, oldest: int) -> bool:
        """Whether no row of a group from `oldest` on can go when a batch with these slots and so many more comes in.

        The rows in flight were used last, so they stay as long as they are no more than stay. A batch alone is the
        store's to judge.
        """
        mine = torch.zeros_like(used, dtype=torch.bool)
        mine[slots] = True
        others = int(((used >= oldest) & ~mine).sum())
        return not others or others + int(mine.sum()) + coming <= rows_left(self.max_rows)

    def tell(self, rows: SignedRows, keys: Tensor) -> None:
        """Tell the store which steps used the rows in these slots last; below 0 there is none."""
        known = ((keys[:, 0] >= 0) & (self.touched > 0)).nonzero().flatten()
        known = known[in_order(keys[known])]
        rows.stamp(keys[known].cpu().numpy(), self.touched[known].cpu().numpy())

    def told(self, used: Tensor, oldest: int) -> None:
        """The store has rows and steps of all slots that no group from `oldest` on has used."""
        self.touched.masked_fill_(used < oldest, 0)
