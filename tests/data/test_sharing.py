"""Splits written side by side: every partition is read once, and files hold what separate passes would give."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.core.errors import ColumnNotFoundError, PenstockError
from penstock.data.partition import FramePartition, Partition, WrappedPartition
from penstock.data.sharing import is_wanted_whole, made_of_all, shared_reads
from penstock.data.side_by_side import ParquetSettings, write_side_by_side


@dataclass(frozen=True, eq=False)
class Counted(WrappedPartition):
    """Notes which columns it was read for."""

    source: Partition
    reads: list[tuple[str, ...]] = field(default_factory=list)
    keeps_rows: bool = True

    def read(self, columns=None):
        self.reads.append(tuple(columns or ()))
        return self.source.read(columns)


def counted(rows: int = 1000, parts: int = 5) -> Dataset:
    frame = pl.DataFrame({"row": range(rows), "key": [i % 13 for i in range(rows)], "t": [i // 2 for i in range(rows)]})
    each = -(-rows // parts)
    pieces = [Counted(FramePartition(frame.slice(i * each, each))) for i in range(parts)]
    return Dataset.from_partitions(pieces, Dataset(frame).schema)


def clear(data: Dataset) -> None:
    for part in data.partitions:
        part.reads.clear()


@pytest.mark.parametrize("way", [{}, {"by": "key"}, {"time": "t"}, {"stratify": "key"}])
def test_each_partition_is_read_once(tmp_path: Path, way):
    data = counted()
    splits = data.split([0.7, 0.2, 0.1], seed=1, **way)
    expected = [split.to_polars() for split in splits]
    clear(data)
    places = [tmp_path / str(i) for i in range(3)]
    reports = write_side_by_side(list(zip(splits, places, strict=True)), ParquetSettings(), "local:2")
    assert all(len(part.reads) == 1 for part in data.partitions)
    for place, report, rows in zip(places, reports, expected, strict=True):
        assert Dataset(place).to_polars().equals(rows)
        assert report.num_rows == rows.height


@pytest.mark.parametrize(
    "settings", [{"shuffle": "partition", "seed": 4}, {"shuffle": "full"}, {"num_files": 3}, {"num_files": 9}]
)
def test_the_same_as_one_after_another(tmp_path: Path, settings):
    splits = counted().split([0.8, 0.2])
    for number, split in enumerate(splits):
        split.to_parquet(tmp_path / f"alone-{number}", **settings)
    outputs = [(split, tmp_path / f"beside-{number}") for number, split in enumerate(splits)]
    write_side_by_side(outputs, ParquetSettings(**settings))
    for number in range(2):
        alone, beside = (sorted((tmp_path / f"{how}-{number}").glob("*.parquet")) for how in ("alone", "beside"))
        assert [a.read_bytes() for a in alone] == [b.read_bytes() for b in beside]


def test_outputs_of_different_length(tmp_path: Path):
    long, short = counted(parts=7), Dataset({"x": [1.5]})
    write_side_by_side([(short, tmp_path / "short"), (long, tmp_path / "long")], ParquetSettings(), "local:2")
    assert Dataset(tmp_path / "short").to_polars().rows() == [(1.5,)]
    assert Dataset(tmp_path / "long").num_rows == 1000


def test_columns_that_nobody_wants_are_not_read():
    data = counted()
    train, _ = data.split([0.5, 0.5], by="key")
    clear(data)
    train.to_polars(["row"])
    assert {read for part in data.partitions for read in part.reads} == {("row", "key")}
    with pytest.raises(ColumnNotFoundError, match="'rows'"):
        train.to_polars(["rows"])


def test_a_failure_leaves_none_of_them(tmp_path: Path):
    train, valid = counted().split([0.5, 0.5])
    broken = valid.map(_fail, valid.schema)
    with pytest.raises(PenstockError, match="broken on purpose"):
        write_side_by_side([(train, tmp_path / "train"), (broken, tmp_path / "valid")], ParquetSettings())
    assert not list(tmp_path.iterdir())


def _fail(frame: pl.DataFrame) -> pl.DataFrame:
    raise PenstockError("broken on purpose")


def made_side_by_side(tmp_path: Path, workflow: Workflow, shares: list[float], name: str) -> list[int]:
    """Writes what a workflow makes of splits, checks it against each alone; how many rows it was asked for."""
    splits = counted(rows=6000).split(shares, seed=1)
    workflow.fit(splits[0])
    outputs = [workflow.transform(split) for split in splits]
    expected = [output.to_polars() for output in outputs]
    heights: list[int] = []
    run = workflow._plan.run

    def noted(environment, *rest):
        heights.append(next(iter(environment.values())).height)
        return run(environment, *rest)

    workflow._plan.run = noted
    places = [tmp_path / f"{name}-{i}" for i in range(len(splits))]
    write_side_by_side(list(zip(outputs, places, strict=True)), ParquetSettings(), "local:1")
    for place, rows in zip(places, expected, strict=True):
        assert Dataset(place).to_polars().equals(rows)
    return heights


def test_what_treats_rows_alike_is_made_once(tmp_path: Path):
    workflow = Workflow((["key"] >> ops.Categorify()) + (["t"] >> ops.LogOp() >> ops.Normalize()) + ["row"])
    assert made_side_by_side(tmp_path, workflow, [0.8, 0.2], "whole") == [1200] * 5


def _less_mean(values: pl.Series) -> pl.Series:
    return values - values.mean()


def test_what_may_look_at_other_rows_is_made_of_each_split(tmp_path: Path):
    workflow = Workflow((["t"] >> ops.LambdaOp(_less_mean, dtype="float64")) + ["row"])
    heights = made_side_by_side(tmp_path, workflow, [0.8, 0.2], "lambda")
    assert len(heights) == 10 and sum(heights) == 6000
    workflow = Workflow((["key"] >> ops.TargetEncoding("t", kfold=2)) + ["row"])
    assert not workflow.fit(counted())._plan.treats_rows_alike


def test_rows_that_nobody_wants_are_not_transformed(tmp_path: Path):
    workflow = Workflow((["key"] >> ops.Categorify()) + ["row"])
    splits = counted(rows=6000).split([0.05, 0.05, 0.9], seed=1)
    workflow.fit(splits[0])
    outputs = [workflow.transform(split) for split in splits[:2]]
    chosen = outputs[0].partitions[0].source
    with shared_reads([output.partitions[0] for output in outputs]):
        assert not is_wanted_whole(chosen)
    with shared_reads([workflow.transform(split).partitions[0] for split in splits]):
        assert is_wanted_whole(chosen)
        assert made_of_all(chosen, "key", lambda part: part.read()).height < 100
