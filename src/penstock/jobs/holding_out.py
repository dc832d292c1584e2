"""Which rows are held out of training: some at random, the latest, or whole groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ColumnNotFoundError, DataError

if TYPE_CHECKING:  # settings come through here, and the command line must start at once
    from penstock.data import Dataset

_LOOK = 1_000  # rows
_WAYS = {"time": "time", "group": "by"}  # as settings call them, and as Dataset.split does


def way_of(valid_by: str | None) -> tuple[str, str] | None:
    """`(way, column)` of `time:COLUMN` or `group:COLUMN`; None for a file.

    >>> way_of("time:hour"), way_of("valid.csv")
    (('time', 'hour'), None)
    """
    way, _, column = (valid_by or "").partition(":")
    return (way, column) if way in _WAYS and column else None


def is_way_to_hold_out(value: Any) -> bool:
    """Whether a setting says how rows are held out: a way with its column, or a file that is there."""
    if not isinstance(value, str) or not value:
        return False
    return way_of(value) is not None or "://" in value or any(c in value for c in "*?[") or Path(value).exists()


def check_way(valid_by: str | None, data: Dataset) -> None:
    """Refuse a column that is not there, and text that is to be a time and is none.

    Args:
        valid_by: `time:COLUMN`, `group:COLUMN` or None.
        data: all rows.

    Raises:
        ColumnNotFoundError: there is no such column.
        DataError: it holds no times.
    """
    way = way_of(valid_by)
    if way is not None and way[1] not in data.schema:
        raise ColumnNotFoundError(way[1], data.schema.names, f"{data.place} (valid_by is {valid_by!r})")
    from penstock.data.written_times import can_be_sorted

    if way is not None and way[0] == "time" and data.schema[way[1]].dtype == "string":
        texts = data.head(_LOOK)[way[1]].drop_nulls()
        if len(texts) and not can_be_sorted(texts):
            raise DataError(
                f"valid_by {valid_by!r}: {way[1]!r} holds no times that can be told, such as {texts[0]!r}; "
                f"group:{way[1]} holds whole groups out"
            )


def hold_out(data: Dataset, share: float, valid_by: str | None, seed: int) -> tuple[Dataset, Dataset]:
    """Rows to train on and rows to evaluate on.

    Args:
        data: all rows.
        share: of them to hold out.
        valid_by: `time:COLUMN`, `group:COLUMN`, or None for at random.
        seed: of the draw.

    Returns:
        Two data sets.

    Raises:
        DataError: no rows would be left on one side.
    """
    way = way_of(valid_by)
    shares = [1 - share, share]
    if way is None:
        train, held_out = data.split(shares, seed=seed)
        return train, held_out
    kind, column = way
    train, held_out = data.split(shares, seed=seed, **{_WAYS[kind]: column})
    for rows, word in ((train, "train on"), (held_out, "evaluate on")):
        if not rows.num_rows:
            raise DataError(f"valid_by {valid_by!r} leaves no rows to {word}: {column!r} has too few values for it")
    return train, held_out
