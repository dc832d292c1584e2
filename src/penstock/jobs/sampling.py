"""A few rows that stand for a whole data set."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.data import Dataset
from penstock.report.profile import spread


def sample_rows(data: Dataset, columns: Sequence[str], most: int, seed: int = 0) -> tuple[pl.DataFrame, bool]:
    """At most `most` rows, drawn from partitions that are spread over the data, and whether there are others.

    Args:
        data: where from.
        columns: what to read.
        most: how many rows.
        seed: of the draw.

    Returns:
        The rows, and whether they are a sample.

    >>> rows, is_sample = sample_rows(Dataset({"x": range(100)}), ["x"], 10)
    >>> rows.height, is_sample
    (10, True)
    """
    parts, frames, height = data.partitions, [], 0
    for number in spread(len(parts)):
        frames.append(parts[number].read(list(columns)))
        height += frames[-1].height
        if height > most:
            break
    if not frames:
        return data.head(0).select(columns), False
    found = pl.concat(frames)
    if height <= most:
        return found, False
    return found.sample(most, shuffle=True, seed=seed), True
