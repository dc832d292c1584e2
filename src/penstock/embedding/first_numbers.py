"""The first number of rows, set from outside: where a linear part beside a network keeps the weights of ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from penstock.embedding.fused.embeddings import FusedEmbeddings
from penstock.embedding.numbered_rows import NumberedRows
from penstock.embedding.store import Store


def takes_first_numbers(embeddings: Any) -> bool:
    """Whether `write_first_numbers` can write to such embeddings.

    Args:
        embeddings: of any home.

    Returns:
        Whether they are in float32, in a store of this process or in tables on a device, and their optimizer goes on
        from the weights that it finds. FTRL works weights out of its own sums, and would forget what was written.
    """
    if isinstance(embeddings, Store):
        optimizer = embeddings.optimizer
        return embeddings.storage == "float32" and optimizer is not None and not optimizer.closed_form[0]
    return type(embeddings) is FusedEmbeddings and embeddings.groups[0].weight.dtype == torch.float32


def write_first_numbers(embeddings: Any, column: str, ids: np.ndarray, numbers: np.ndarray) -> None:
    """Give rows another first number; rows that are not there yet appear.

    Args:
        embeddings: that `takes_first_numbers`.
        column: whose ids they are.
        ids: in ascending order, none twice.
        numbers: one for each.

    >>> from penstock.embedding import SGD, SlotConfig
    >>> store = Store([SlotConfig("user", dim=2)], SGD(lr=0.1))
    >>> write_first_numbers(store, "user", np.array([3, 7]), np.array([0.5, -0.5]))
    >>> store.lookup({"user": [7, 3]}, train=False)["user"][:, 0].tolist()
    [-0.5, 0.5]
    >>> store.close()
    """
    if not len(ids):
        return
    if isinstance(embeddings, Store):
        rows = NumberedRows(embeddings, {column: int(ids[-1]) + 1})
        places = rows.find(ids)
        columns = _columns(rows, len(ids))
        rows.read(ids, places, columns)
        columns["weight"][:, 0] = numbers
        rows.write(ids, places, columns)
        return
    weight, keys = _weight(embeddings, column, ids)
    weight[keys, 0] = torch.from_numpy(numbers.astype(np.float32)).to(weight.device)


def clear_rows(embeddings: Any, column: str, ids: np.ndarray) -> None:
    """Let rows be zeros, as those are that a store does not have: ids that training never sees say nothing.

    Args:
        embeddings: that `takes_first_numbers`.
        column: whose ids they are.
        ids: none of which is in the rows to train on.
    """
    if len(ids) and not isinstance(embeddings, Store):
        weight, keys = _weight(embeddings, column, ids)
        weight[keys] = 0.0


def _weight(embeddings: FusedEmbeddings, column: str, ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights that a column's ids have rows in, and the places of some of them."""
    group = next(group for group in embeddings.groups if column in group.starts)
    return group.weight, torch.from_numpy(ids + group.starts[column]).to(group.weight.device)


def _columns(rows: NumberedRows, count: int) -> dict[str, np.ndarray]:
    """Room for rows with all that their optimizer keeps of them: rows are moved whole."""
    layout = rows.layout
    names = ["weight", *("state", "second_state")[: layout.states]]
    columns = {name: np.empty((count, layout.dim), np.float32) for name in names}
    return columns | ({"scalar": np.empty(count, np.float32)} if layout.scalar else {})
