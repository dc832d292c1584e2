"""Columns that cannot be read, in every format that has them: left out, named, and never in the way of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.core.errors import DataError, PenstockError
from penstock.loader import Loader

ROWS = 40


def _json_lines(frame: pl.DataFrame, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))


WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "avro": pl.DataFrame.write_avro,
    "jsonl": _json_lines,
}
ODD: dict[str, Callable[[int], Any]] = {
    "struct": lambda i: {"a": i, "b": str(i)},
    "structs": lambda i: [{"a": i}],
    "deep": lambda i: {"a": {"b": [{"c": i}]}},
}


def frame(odd: Callable[[int], Any] | None) -> pl.DataFrame:
    found = pl.DataFrame({"user": [f"u{i % 5}" for i in range(ROWS)], "price": [float(i) for i in range(ROWS)]})
    return found if odd is None else found.with_columns(odd=pl.Series([odd(i) for i in range(ROWS)]))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("format", WRITERS)
def test_the_others_are_read(format: str, odd: str, tmp_path: Path) -> None:
    file = tmp_path / f"rows.{format}"
    WRITERS[format](frame(ODD[odd]), file)
    data = Dataset(file)
    assert list(data.schema.unread) == ["odd"] and data.to_polars().equals(frame(None))
    flow = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize())).fit(data)
    assert sum(len(np.asarray(features["user"])) for features, _ in Loader(data, 16, transform=flow)) == ROWS
    for ask in (
        lambda: data.select(["odd"]),
        lambda: Workflow(["odd"]).fit(data),
        lambda: data.with_roles(label=["odd"]),
    ):
        with pytest.raises(PenstockError, match="'odd'"):
            ask()
    WRITERS[format](frame(ODD[odd]).select("odd"), file)
    with pytest.raises(DataError, match=rf"rows\.{format}, column 'odd'.* is not read"):
        Dataset(file)


@pytest.mark.parametrize("format", WRITERS)
def test_files_may_differ_in_what_is_not_read(format: str, tmp_path: Path) -> None:
    """Objects in JSON lines seldom have the same keys in two files."""
    for number, odd in enumerate((ODD["struct"], ODD["deep"], None)):
        WRITERS[format](frame(odd), tmp_path / f"{number}.{format}")
    both = Dataset(str(tmp_path / f"*.{format}"))
    assert both.to_polars().equals(pl.concat([frame(None)] * 3)) and list(both.schema.unread) == ["odd"]
    WRITERS[format](frame(lambda i: i), tmp_path / f"3.{format}")  # this one could be read
    with pytest.raises(DataError, match="column 'odd' is Int64"):
        Dataset(str(tmp_path / f"*.{format}"))
