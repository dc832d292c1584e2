"""Ratings that people gave: MovieLens-100K's `u.data`, with what the `u.user` and `u.item` beside it say.

The data set is not ours to hand on; whoever has it names the file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from quality_planted import Planted

_LIKED = 4
_USER = ("user", "age", "gender", "occupation", "zip")


def ratings_of(file: Path, num_rows: int, num_test: int, seed: int, with_columns: bool) -> Planted:
    """Whether users liked films, on rows drawn at random; nobody knows the best probabilities.

    Args:
        file: user, item, rating and time between tabs, without names.
        num_rows: to train on.
        num_test: to test on.
        seed: of which rows are which.
        with_columns: whether what is known of users and films are columns, too.
    """
    names = ["user", "item", "rating", "time"]
    rows = pl.read_csv(file, separator="\t", has_header=False, new_columns=names, schema_overrides=[pl.Int64] * 4)
    rows = rows.select("user", "item", click=(pl.col("rating") >= _LIKED).cast(pl.Int32))
    if with_columns:
        rows = rows.join(_users(file.with_name("u.user")), on="user", how="left")
        rows = rows.join(_films(file.with_name("u.item")), on="item", how="left")
    ids = [name for name in rows.columns if name != "click"]
    rows = rows.with_columns(pl.col(ids[2:]).fill_null("").rank("dense").cast(pl.Int64))
    rows = rows[np.random.default_rng(seed).permutation(rows.height)]
    return Planted(rows[:num_rows], rows[num_rows : num_rows + num_test], np.zeros(0), ids, [])


def _users(file: Path) -> pl.DataFrame:
    users = pl.read_csv(file, separator="|", has_header=False, new_columns=list(_USER), infer_schema=False)
    return users.with_columns(pl.col("user").cast(pl.Int64))


def _films(file: Path) -> pl.DataFrame:
    """The year, and the kinds as one word; the names of films are in Latin-1."""
    lines = [line.split("|") for line in file.read_text("latin-1").splitlines()]
    columns = {
        "item": [int(line[0]) for line in lines],
        "year": [line[2][-4:] for line in lines],
        "kinds": ["".join(line[5:]) for line in lines],
    }
    return pl.DataFrame(columns)
