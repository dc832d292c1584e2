"""The state of hashed tables as plain lists: rows with their optimizer's state, and whose they are.

`ids` and `tables` say whose each row is (a table of -1: nobody's), `touched` in which step it was used last, `free`
which rows are nobody's and `clock` which step comes next. `HashedEmbeddings` and hashed `CachedEmbeddings` save and
load it alike, and a store can be filled with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.core.errors import DataError, ParameterError
from penstock.core.schema import Role, Schema
from penstock.embedding.row_layout import RowColumns
from penstock.embedding.store import Store

LISTS = ("ids", "tables", "touched", "free", "clock")
_MOST_STEPS = 2**31  # what an entry of the index has room for


def is_listed(given: Mapping[str, Tensor], rows: Mapping[str, Tensor], like: Mapping[str, Tensor], tables: int) -> bool:
    """Whether these lists and rows can be those of so many tables, whose weight and state are `like`."""
    if len(given) < len(LISTS) or len(rows) < len(like):
        return False
    ids, numbers, touched, free, clock = (given[name] for name in LISTS)
    used = len(ids) if ids.dim() else -1
    if {ids.dtype, touched.dtype, free.dtype, clock.dtype} != {torch.int64} or numbers.dtype != torch.int32:
        return False
    if any(given[name].shape != (used,) for name in ("ids", "tables", "touched")) or clock.dim() or free.dim() != 1:
        return False
    if any(tensor.shape != (used, *like[name].shape[1:]) for name, tensor in rows.items()):
        return False
    if not all(tensor.is_floating_point() for tensor in rows.values()) or not 0 <= int(clock) < _MOST_STEPS:
        return False
    ids, numbers, touched = ids.cpu(), numbers.cpu(), touched.cpu()
    return not used or (_are_rows(ids, numbers, touched, tables) and _are_free(free.cpu(), numbers))


def _are_rows(ids: Tensor, numbers: Tensor, touched: Tensor, tables: int) -> bool:
    """Whether rows are of tables that there are, used in steps that can be, and each of an id that no other has."""
    if int(numbers.min()) < -1 or int(numbers.max()) >= tables:
        return False
    taken = numbers >= 0
    ids, numbers, touched = ids[taken], numbers[taken], touched[taken]
    if bool((ids == -1).any()) or bool(((touched < 0) | (touched >= _MOST_STEPS)).any()):
        return False
    order = ids.argsort()
    order = order[numbers[order].argsort(stable=True)]
    same = (ids[order][1:] == ids[order][:-1]) & (numbers[order][1:] == numbers[order][:-1])
    return not bool(same.any())


def _are_free(free: Tensor, numbers: Tensor) -> bool:
    """Whether these are the rows that are nobody's, each once: one that is given out twice would belong to two ids."""
    return torch.equal(free.sort().values, (numbers < 0).nonzero().flatten())


def write_listed(store: Store, names: Sequence[str], state: Mapping[str, Tensor]) -> None:
    """Put listed rows into a store that has a slot for each table, and go on at their step."""
    held = {name: tensor.cpu() for name, tensor in state.items()}
    owners = held["tables"].numpy()
    for number, group in enumerate(_groups(store, names)):
        store.tables.tables[group].write(_columns(held, np.flatnonzero(owners == number)))
    store.tables.clock = int(held["clock"]) - 1
    if "steps" in held:
        store.tables.set_steps([int(held["steps"])] * len(store.tables.tables))


def _groups(store: Store, names: Sequence[str]) -> list[int]:
    return [store.config.groups.index(store.config[name].group) for name in names]


def _columns(state: Mapping[str, Tensor], rows: np.ndarray) -> RowColumns:
    chosen = torch.from_numpy(rows)
    weights = state["weight"][chosen]
    states = [state[name][chosen] for name in ("first_state", "second_state") if name in state]
    vectors = [held.numpy() for held in states if held.dim() == 2]
    numbers = [held.numpy() for held in states if held.dim() == 1]
    return RowColumns(
        (state["ids"][chosen] + 1).numpy().view(np.uint64),
        state["touched"][chosen].numpy().astype(np.uint32),
        (weights.view(torch.uint16) if weights.dtype == torch.bfloat16 else weights).numpy(),
        np.concatenate(vectors, 1) if vectors else np.empty((len(rows), 0), np.float32),
        numbers[0] if numbers else np.empty(0, np.float32),
        np.empty(0, np.uint32),
    )


def listed_rows(store: Store, names: Sequence[str], states: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The rows of a store's slots, by slot and id; `states` are those of tables like these, None for one that is not.

    >>> from penstock.embedding import SGD, SlotConfig
    >>> with Store([SlotConfig("user", 2), SlotConfig("item", 2)], SGD(lr=0.1)) as store:
    ...     _ = store.lookup({"user": [7, 3], "item": [5, 5]})
    ...     found = listed_rows(store, ["user", "item"], {})
    >>> found["tables"].tolist(), found["ids"].tolist()
    ([0, 0, 1], [3, 7, 5])
    """
    parts = list[RowColumns]()
    with store._lock:
        for group in _groups(store, names):
            table = store.tables.tables[group]
            parts.append(_sorted(table.read(0, table.num_segments())))
    counts = [len(part.signs) for part in parts]
    signs = np.concatenate([part.signs for part in parts])
    weights = torch.from_numpy(np.concatenate([part.weights for part in parts]))
    found = {"weight": weights.view(torch.bfloat16) if store.storage == "bfloat16" else weights}
    vectors = torch.from_numpy(np.concatenate([part.states for part in parts]))
    dim, taken = weights.shape[1], 0
    for name, state in states.items():
        if state is not None and state.dim() == 2:
            found[name] = vectors[:, taken * dim : (taken + 1) * dim].contiguous()
            taken += 1
        elif state is not None:
            found[name] = torch.from_numpy(np.concatenate([part.scalars for part in parts]))
    touched = np.concatenate([part.stamps for part in parts]).astype(np.int64)
    return {
        **found,
        "ids": torch.from_numpy(signs.view(np.int64) - 1),
        "tables": torch.from_numpy(np.repeat(np.arange(len(parts), dtype=np.int32), counts)),
        "touched": torch.from_numpy(touched),
        "free": torch.empty(0, dtype=torch.int64),
        "clock": torch.tensor(store.tables.clock + 1),
    }


def _sorted(rows: RowColumns) -> RowColumns:
    """Rows in the order of their ids: in a store's index they lie in another one in every process."""
    order = np.argsort(rows.signs.view(np.int64) - 1)
    return RowColumns(*(column[order] if len(column) else column for column in vars(rows).values()))


def wrong_id(table: str) -> DataError:
    """What is said of the one id that has no sign."""
    return DataError(
        f"table {table!r} was asked for the id -1, which hashed tables do not take; give what it stands for another id"
    )


def hashed_columns(tables: Schema | Sequence[str], of: str) -> tuple[Schema | dict[str, int], dict[str, int]]:
    """What hashed tables are made from, the categorical columns of a schema or names, and their sizes: none.

    Raises:
        ParameterError: there are none, or they are no names.
    """
    if isinstance(tables, Schema):
        columns = tables.select(roles=Role.CATEGORICAL)
        if not columns.names:
            raise ParameterError(f"{of} needs a schema with categorical columns")
        return columns, dict.fromkeys(columns.names, 0)
    names = list(tables) if not isinstance(tables, str) else None
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ParameterError(f"{of}.tables must be a schema or different names, got {tables!r}")
    return dict.fromkeys(names, 0), dict.fromkeys(names, 0)
