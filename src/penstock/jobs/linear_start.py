"""Before a network learns: a logistic regression of the same rows, whose weights its linear part begins with and keeps.

It is solved to its end, and how strongly its weights are held back is chosen by rows left out in turn. A network that
learns ids from few rows by steps of gradients ends there only by luck, and forgets it again when ids that come once are
learned by heart. So the linear part stays as it is, and the network learns what is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from penstock.core.schema import Role, Schema
from penstock.data import Dataset
from penstock.embedding.first_numbers import clear_rows, takes_first_numbers, write_first_numbers
from penstock.embedding.fused.settings import row_owners
from penstock.embedding.protocol import Embeddings
from penstock.jobs.defaults import has_plain_slots
from penstock.jobs.settings import TrainSettings
from penstock.nn.logistic import LinearRows, fit_logistic

_MOST_KEYS = 5_000_000


def begin_linear(
    settings: TrainSettings, network: Any, embeddings: Embeddings | None, features: Dataset, label: str
) -> bool:
    """Fit the linear part of a model that has one, where the settings ask for it and the embeddings allow it.

    Args:
        settings: with nothing left open.
        network: the model; its linear part gets the weights of numbers.
        embeddings: get the weights of ids.
        features: to learn from.
        label: its column.

    Returns:
        Whether that was done.
    """
    if not may_begin_linear(settings, network, embeddings, features.schema):
        return False
    owners = _owners(settings, features.schema)
    starts = _starts(features.schema, owners)
    rows = _rows(settings, features, label, network.continuous, starts)
    if not _is_sound(rows):
        return False
    found = fit_logistic(rows, settings.seed)
    seen = np.bincount(rows.keys, minlength=rows.num_keys)
    for name in dict.fromkeys(owners.values()):
        own = seen[starts[name] : starts[name] + _size(features.schema, name)]
        ids = np.flatnonzero(own)
        write_first_numbers(embeddings, name, ids, found[starts[name] + ids])
        clear_rows(embeddings, name, np.flatnonzero(own == 0))
    network.linear.begin(found[rows.num_keys : -1], float(found[-1]))
    return True


def may_begin_linear(settings: TrainSettings, network: Any, embeddings: Embeddings | None, schema: Schema) -> bool:
    """Whether settings ask for a regression, and the model and its embeddings (none on a cluster) can begin with it.

    Args:
        settings: with nothing left open.
        network: the model.
        embeddings: that would get the weights of ids.
        schema: of the features.

    Returns:
        True also where rows turn out to have nothing to fit.
    """
    if not settings.linear_start or getattr(network, "linear", None) is None:
        return False
    columns = schema.select(roles=Role.CATEGORICAL)
    if embeddings is None:
        return not columns.names
    sizes = [column.cardinality or 0 for column in columns]
    known = all(sizes) and sum(sizes) <= _MOST_KEYS
    return has_plain_slots(settings) and known and takes_first_numbers(embeddings)


def _is_sound(rows: LinearRows) -> bool:
    """Whether there is something to fit; what is wrong with rows that are not is for the loader to say."""
    labels, numbers = rows.labels, rows.numbers
    if not len(labels) or not (labels.min() >= 0 and labels.max() <= 1 and 0 < labels.mean() < 1):
        return False
    # Squares of larger numbers overflow, and weights would not be numbers any more.
    bounded = bool((np.abs(numbers) <= np.finfo(np.float32).max).all())
    return bounded and bool((rows.keys >= 0).all())


def _owners(settings: TrainSettings, schema: Schema) -> dict[str, str]:
    """The column whose rows each column has."""
    columns = schema.select(roles=Role.CATEGORICAL)
    dims = settings.dims(columns.names)
    return row_owners(columns, dims if isinstance(dims, dict) else dict.fromkeys(columns.names, dims))


def _size(schema: Schema, name: str) -> int:
    return int(schema[name].cardinality or 0)


def _starts(schema: Schema, owners: dict[str, str]) -> dict[str, int]:
    """The first key of each column; columns that share rows share keys."""
    own, begin = dict[str, int](), 0
    for name in dict.fromkeys(owners.values()):
        own[name], begin = begin, begin + _size(schema, name)
    return {name: own[owner] for name, owner in owners.items()} | {"": begin}


def _rows(
    settings: TrainSettings, features: Dataset, label: str, continuous: list[str], starts: dict[str, int]
) -> LinearRows:
    frame = features.to_polars([label, *continuous, *[name for name in starts if name]])
    parts = [
        _keys(frame[name], start, _size(features.schema, name), settings.pooling)
        for name, start in starts.items()
        if name
    ]
    numbers = frame.select(continuous).to_numpy() if continuous else np.empty((len(frame), 0))
    labels = frame[label].cast(pl.Float64).to_numpy()
    begins = np.unique([start for start in starts.values() if start < starts[""]])
    columns = np.searchsorted(begins, np.arange(starts[""]), side="right") - 1
    return LinearRows(np.asarray(numbers, np.float64), *_row_by_row(parts, len(frame)), labels, starts[""], columns)


_Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # keys, how many of them each row has, what each counts there


def _row_by_row(parts: list[_Part], num_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the keys of each row begin, the keys, and what they count (empty where all count once)."""
    starts = np.zeros(num_rows + 1, np.int64)
    np.cumsum(sum((lengths for _, lengths, _ in parts), start=starts[1:]), out=starts[1:])
    keys, values, free = np.empty(starts[-1], np.int64), np.empty(starts[-1]), starts[:-1].copy()
    for found, lengths, counted in parts:
        places = np.repeat(free - np.cumsum(lengths) + lengths, lengths) + np.arange(len(found))
        keys[places], values[places] = found, counted
        free += lengths
    return starts, keys, np.empty(0) if (values == 1).all() else values


def _keys(column: pl.Series, start: int, size: int, pooling: str) -> _Part:
    """Keys of a column's ids; -1 for an id that cannot be."""
    is_list = column.dtype == pl.List
    lengths = column.list.len().fill_null(0).to_numpy().astype(np.int64) if is_list else np.ones(len(column), np.int64)
    ids = column.filter(column.list.len() > 0).explode() if is_list else column
    codes = ids.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    keys = np.where((codes >= 0) & (codes < size), codes + start, -1)
    shares = np.repeat(1.0 / np.maximum(lengths, 1), lengths)
    return keys, lengths, shares if pooling == "mean" else np.ones(len(keys))
