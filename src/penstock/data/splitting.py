"""The partitions of splits, samples and evenly cut data: rows are chosen when they are read, and none is moved."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

from penstock.core.errors import ParameterError, SchemaError
from penstock.core.params import Int, Real, check
from penstock.core.schema import Schema
from penstock.data import split, tasks
from penstock.data.partition import FramePartition, Partition, SlicedPartition
from penstock.data.partitioned_rows import PartitionedRows
from penstock.data.sharing import Choice, ChosenPartition, SharedPartition
from penstock.data.written_times import form_to_sort_by
from penstock.engine import resolve


def check_keys(schema: Schema, names: Sequence[str]) -> None:
    """Refuse key columns that are not there, or that cannot tell rows apart."""
    for column in schema.select(names):
        if column.is_list:
            raise SchemaError(f"column {column.name!r} holds lists, and rows are told apart by single values")


def split_partitions(
    dataset: PartitionedRows,
    fractions: Sequence[float],
    seed: int,
    by: str | Sequence[str] | None,
    time: str | None,
    stratify: str | None,
) -> list[list[Partition]]:
    """The partitions of each part of `Dataset.split`."""
    for fraction in fractions:
        check("fractions", fraction, Real(min=0))
    if len(fractions) < 2 or not 0 < sum(fractions) < float("inf"):
        raise ParameterError(f"fractions must be two or more numbers with a sum above 0, got {list(fractions)}")
    if sum(x is not None for x in (by, time, stratify)) > 1:
        raise ParameterError("split takes at most one of by, time and stratify")
    shares = tuple(float(f) for f in fractions)
    if by is not None:
        keys = (by,) if isinstance(by, str) else tuple(by)
        check_keys(dataset.schema, keys)
        return _kept(dataset, [split.HashSplit(shares, i, seed, keys) for i in range(len(shares))])
    if time is not None:
        check_keys(dataset.schema, [time])
        times = dataset.to_polars([time])[time]
        form = form_to_sort_by(times)
        bounds = split.time_bounds(times, shares, form)
        missing = next(i for i, share in enumerate(shares) if share > 0)
        return _kept(dataset, [split.TimeSplit(time, bounds, i, missing, form) for i in range(len(shares))])
    return _random_partitions(dataset, shares, seed, stratify)


def sampled_partitions(
    dataset: PartitionedRows, fraction: float | None, num_rows: int | None, seed: int, stratify: str | None
) -> list[Partition]:
    """The partitions of `Dataset.sample`."""
    if (fraction is None) == (num_rows is None):
        raise ParameterError("sample takes either fraction or num_rows")
    if num_rows is not None:
        check("num_rows", num_rows, Int(min=0, max=dataset.num_rows))
        share = Fraction(num_rows, max(1, dataset.num_rows))
    else:
        check("fraction", fraction, Real(min=0, max=1))
        share = Fraction(float(fraction)).limit_denominator(2**30)  # type: ignore[arg-type]
    return _random_partitions(dataset, (share, 1 - share), seed, stratify)[0]


def _kept(dataset: PartitionedRows, choices: Sequence[Choice]) -> list[list[Partition]]:
    """Every split's part of every partition, which all of them share."""
    names, parts = tuple(dataset.schema.names), [SharedPartition(part) for part in dataset.partitions]
    return [[ChosenPartition(part, choice, names) for part in parts] for choice in choices]


def _random_partitions(
    dataset: PartitionedRows, shares: Sequence[float | Fraction], seed: int, stratify: str | None
) -> list[list[Partition]]:
    if stratify is not None:
        check_keys(dataset.schema, [stratify])
    parts, names = [SharedPartition(part) for part in dataset.partitions], tuple(dataset.schema.names)
    strata = split.allot(list(resolve().map(partial(tasks.strata, column=stratify), parts)), shares, seed)
    return [
        [
            ChosenPartition(part, split.RowSplit(which, own, stratify), names)
            for part, own in zip(parts, strata, strict=True)
        ]
        for which in range(len(shares))
    ]


def even_partitions(
    parts: Sequence[Partition], counts: Sequence[int], num_partitions: int, schema: Schema
) -> list[Partition]:
    """The same rows in the same order, in `num_partitions` of equal length; `counts` are the rows of each part."""
    total = sum(counts)
    bounds = [total * i // num_partitions for i in range(num_partitions + 1)]
    return [_between(start, stop, parts, counts, schema) for start, stop in pairwise(bounds)]


def _between(start: int, stop: int, parts: Sequence[Partition], counts: Sequence[int], schema: Schema) -> Partition:
    """Rows `[start, stop)` of all."""
    chosen: list[Partition] = []
    offset = seen = 0
    for part, count in zip(parts, counts, strict=True):
        if seen < stop and seen + count > start:
            if not chosen:
                offset = start - seen
            chosen.append(part)
        seen += count
    return SlicedPartition(tuple(chosen), offset, stop - start) if chosen else FramePartition(tasks.empty(schema))
