"""MovieLens-like ratings: user, item, the item's genres, time, stars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from penstock.core import params
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.synthetic import draws
from penstock.data.synthetic.output import ROWS_PER_CHUNK, Job, Summary

GENRES = [
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir",
    "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
]  # fmt: skip
_STEPS = np.array([1, 5, 7, 11, 13, 17])  # prime to 18: walking by one of them meets no genre twice
_MOST_GENRES = 4
_EXPONENT = 0.8  # how quickly the popularity of users and items falls
_FIRST_TIME, _SECONDS = 1_420_070_400, 5 * 365 * 86_400  # five years from 2015
_NOISE = 0.4  # scale of the logistic noise between a user's opinion and the stars given
_STARS = np.arange(1.0, 5.01, 0.5)  # every rating above the lowest, 0.5
_LIKED = 4.0
_SAMPLE_ROWS = 131_072
_SAMPLE_SEED = -(2**63)


@dataclass(frozen=True)
class RatingTeacher:
    """Opinions behind the ratings: mean, user, item, a product of hidden vectors, and the user's taste in genres.

    Args:
        seed: of the opinions.
        num_users: how many.
        num_items: how many.

    >>> teacher = RatingTeacher(seed=0, num_users=10, num_items=10)
    >>> frame = {"user": np.array([1, 2]), "item": np.array([3, 4])}
    >>> bool(((0.5 <= teacher.rating(frame)) & (teacher.rating(frame) <= 5)).all())
    True
    """

    seed: int
    num_users: int
    num_items: int

    def rating(self, frame: pl.DataFrame | Mapping[str, Any]) -> NDArray[np.float64]:
        """The expected rating of each row: what minimises the squared error. Needs the columns user and item.

        Args:
            frame: with the columns user and item.

        Returns:
            Stars.
        """
        return self._moments(self._opinion(frame))[0]

    def probability(self, frame: pl.DataFrame | Mapping[str, Any]) -> NDArray[np.float64]:
        """The probability of 4 stars or more for each row.

        Args:
            frame: with the columns user and item.

        Returns:
            Probabilities.
        """
        return draws.sigmoid((self._opinion(frame) - (_LIKED - 0.25)) / _NOISE)

    def best_rmse(self, frame: pl.DataFrame | Mapping[str, Any]) -> float:
        """The root mean squared error that `rating` itself has.

        Args:
            frame: with the columns user and item.

        Returns:
            The error.
        """
        mean, square = self._moments(self._opinion(frame))
        return float(np.sqrt((square - mean**2).mean()))

    def stars(self, frame: pl.DataFrame | Mapping[str, Any], uniform: NDArray[np.float64]) -> NDArray[np.float32]:
        """Ratings drawn around the opinions, in steps of half a star.

        Args:
            frame: with the columns user and item.
            uniform: random numbers, one a row.

        Returns:
            Ratings.
        """
        u = np.clip(uniform, 1e-12, 1.0 - 1e-12)
        noisy = self._opinion(frame) + _NOISE * np.log(u / (1.0 - u))
        return np.clip(np.round(noisy * 2.0) / 2.0, 0.5, 5.0).astype(np.float32)

    @staticmethod
    def _moments(opinion: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        mean, square = np.full(opinion.size, 0.5), np.full(opinion.size, 0.25)
        for star in _STARS:  # P(rating ≥ star) times the step up to it
            reached = draws.sigmoid((opinion - (star - 0.25)) / _NOISE)
            mean += 0.5 * reached
            square += (star**2 - (star - 0.5) ** 2) * reached
        return mean, square

    def _opinion(self, frame: pl.DataFrame | Mapping[str, Any]) -> NDArray[np.float64]:
        user, item = (np.asarray(frame[name], np.int64) for name in ("user", "item"))
        opinion = 3.5 + 0.35 * self._normal("user", user) + 0.45 * self._normal("item", item)
        for k in range(4):
            opinion += 0.2 * self._normal(f"user/{k}", user) * self._normal(f"item/{k}", item)
        genres, counts = item_genres(item)
        taste = self._normal("taste", np.repeat(user, counts) * len(GENRES) + genres)
        return opinion + 0.3 * np.bincount(np.repeat(np.arange(user.size), counts), taste, user.size) / np.sqrt(counts)

    def _normal(self, name: str, counters: NDArray[np.int64]) -> NDArray[np.float64]:
        return draws.normal(draws.stream_key(self.seed, f"teacher/{name}"), counters)


def item_genres(items: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`(genre numbers end to end, how many per item)`: one to four different genres, always the same for an item."""
    z = draws.bits(draws.stream_key(0, "genres"), items)
    first, step, count = (
        (z % np.uint64(len(GENRES))).astype(np.int64),
        _STEPS[((z >> np.uint64(20)) % np.uint64(_STEPS.size)).astype(np.int64)],
        ((z >> np.uint64(40)) % np.uint64(_MOST_GENRES)).astype(np.int64) + 1,
    )
    position = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return (np.repeat(first, count) + position * np.repeat(step, count)) % len(GENRES), count


def movielens(
    path: str | Path,
    num_rows: int,
    *,
    num_users: int = 10_000,
    num_items: int = 2_000,
    teacher_seed: int = 0,
    seed: int = 0,
    num_files: int = 1,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    overwrite: bool = False,
    progress: bool | None = None,
    num_threads: int | None = None,
) -> Summary:
    """Write parquet with user, item (ids from 0), genres (list of names), timestamp (seconds) and rating (0.5 to 5).

    The positive rate and the best AUC are those of "4 stars or more"; `best_rmse` is that of the expected rating. Rows
    come in no order of time, and a user may rate an item twice.

    Args:
        path: a file, or a folder for several.
        num_rows: how many.
        num_users: how many.
        num_items: how many.
        teacher_seed: of the teacher.
        seed: of the rows.
        num_files: how many files.
        rows_per_chunk: rows that are made at a time.
        overwrite: replace what is there.
        progress: draw a bar; None draws it on a terminal.
        num_threads: threads that make rows.

    Returns:
        What was written, with the teacher.

    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> summary = movielens(Path(tempfile.mkdtemp()) / "ratings.parquet", 100, num_users=20, num_items=10)
    >>> pq.read_schema(summary.path).names
    ['user', 'item', 'genres', 'timestamp', 'rating']
    """
    for name, size in (("num_users", num_users), ("num_items", num_items)):
        params.check(name, size, params.Int(min=1, max=2**31 - 1))
    params.check("teacher_seed", teacher_seed, params.Int())
    job = Job(Path(path), num_rows, seed, "parquet", num_files, rows_per_chunk, overwrite, progress, num_threads)
    teacher = RatingTeacher(teacher_seed, num_users, num_items)

    def produce(start: int, stop: int) -> tuple[pa.Table, int]:
        rows = np.arange(start, stop, dtype=np.int64)
        frame = _draw(teacher, seed, rows)
        stars = teacher.stars(frame, draws.uniform(draws.stream_key(seed, "rating"), rows))
        times = draws.uniform(draws.stream_key(seed, "timestamp"), rows) * _SECONDS
        columns = {
            "user": pa.array(frame["user"].astype(np.int32)),
            "item": pa.array(frame["item"].astype(np.int32)),
            "genres": _genre_lists(frame["item"]),
            "timestamp": pa.array(times.astype(np.int64) + _FIRST_TIME),
            "rating": pa.array(stars),
        }
        return pa.table(columns), int((stars >= _LIKED).sum())

    schema = _schema(num_users, num_items)
    written = job.run(produce, schema, produce(0, 0)[0].schema)
    sample = _draw(teacher, _SAMPLE_SEED, np.arange(_SAMPLE_ROWS))
    return Summary(
        **written,
        best_auc=draws.expected_auc(teacher.probability(sample)),
        best_rmse=teacher.best_rmse(sample),
        cardinalities={"user": num_users, "item": num_items, "genres": len(GENRES)},
        schema=schema,
        teacher=teacher,
    )


def _draw(teacher: RatingTeacher, seed: int, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    frame = {}
    for name, size in (("user", teacher.num_users), ("item", teacher.num_items)):
        ranks = draws.zipf(draws.stream_key(seed, name), rows, size, _EXPONENT)
        frame[name] = draws.scatter(draws.stream_key(0, f"ids/{name}"), ranks, size)
    return frame


def _genre_lists(items: NDArray[np.int64]) -> pa.Array:
    genres, counts = item_genres(items)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(GENRES).take(pa.array(genres)))


def _schema(num_users: int, num_items: int) -> Schema:
    ids: dict[str, Any] = {"dtype": "int32", "role": Role.CATEGORICAL, "nullable": False}
    return Schema(
        [
            ColumnSchema("user", **ids, cardinality=num_users, tags=frozenset(["user", "id"])),
            ColumnSchema("item", **ids, cardinality=num_items, tags=frozenset(["item", "id"])),
            ColumnSchema(
                "genres", "string", Role.CATEGORICAL, is_list=True, nullable=False, tags=frozenset(["item"]),
                properties={"num_values": len(GENRES)},
            ),
            ColumnSchema("timestamp", "int64", nullable=False, tags=frozenset(["time"])),
            ColumnSchema("rating", "float32", Role.LABEL, nullable=False, tags=frozenset(["regression"])),
        ]
    )  # fmt: skip
