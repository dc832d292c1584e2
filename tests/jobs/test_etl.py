"""An ETL job writes features, held-out rows and workflow together, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from penstock import Dataset, Workflow
from penstock.core.errors import DataError, OutputExistsError, ParameterError
from penstock.data.formats.text_partition import TextPartition
from penstock.data.partition import FramePartition
from penstock.data.synthetic import criteo
from penstock.etl import presets
from penstock.etl.input_section import open_input
from penstock.jobs import EtlJob, RunFolder, TrainSettings
from penstock.jobs.preparation import RawRows

RECIPE = {
    "recipe": 1,
    "nodes": {"cats": {"columns": ["user"], "ops": ["Categorify"]}, "label": {"columns": ["click"]}},
    "output": ["cats", "label"],
}
ROWS = pl.DataFrame({"user": ["a", "b", "a", "c"], "click": [0, 1, 1, 0]})


class Broken(FramePartition):
    """Rows on a disk that fails."""

    def read(self, columns=None) -> pl.DataFrame:
        raise DataError("the disk is gone")


def broken() -> Dataset:
    return Dataset.from_partitions([Broken(ROWS)], Dataset(ROWS).schema)


def job(place: Path, **more) -> EtlJob:
    return EtlJob(Dataset(ROWS), str(place / "features"), recipe=RECIPE, progress=False, **more)


def test_held_out_rows_go_through_the_workflow_and_teach_it_nothing(tmp_path: Path) -> None:
    held_out = Dataset({"user": ["c", "unseen"], "click": [1, 0]})
    result = job(tmp_path, held_out=held_out, held_out_output=str(tmp_path / "valid")).run()
    alone = job(tmp_path / "alone").run()
    assert result.num_rows == 4 and result.schema == alone.schema
    assert Dataset(tmp_path / "features").to_polars().equals(Dataset(tmp_path / "alone" / "features").to_polars())
    expected = Workflow.load(str(result.workflow)).transform(held_out).to_polars()
    assert Dataset(tmp_path / "valid").to_polars().equals(expected)
    assert result.fitted.output_schema == Workflow.load(str(result.workflow)).output_schema


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the disk is gone"):
        job(tmp_path, held_out=broken(), held_out_output=str(tmp_path / "valid")).run()
    with pytest.raises(DataError, match="the disk is gone"):
        EtlJob(broken(), str(tmp_path / "features"), recipe=RECIPE, progress=False).run()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_what_was_there(tmp_path: Path) -> None:
    job(tmp_path, held_out=Dataset(ROWS), held_out_output=str(tmp_path / "valid")).run()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(DataError, match="the disk is gone"):
        job(tmp_path, held_out=broken(), held_out_output=str(tmp_path / "valid"), overwrite=True).run()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_what_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="go together"):
        job(tmp_path, held_out=Dataset(ROWS)).run()
    (tmp_path / "valid").mkdir()
    (tmp_path / "valid" / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="valid exists already"):
        job(tmp_path, held_out=broken(), held_out_output=str(tmp_path / "valid")).run()


def test_the_result_is_plain_data_too(tmp_path: Path) -> None:
    found = job(tmp_path).run().to_dict()
    assert (found["rows"], found["bad_lines"], found["first_bad_line"]) == (4, 0, None)
    assert [column["name"] for column in found["columns"]] == ["user", "click"]


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the parts of text begin that were parsed, in order."""
    found: list[int] = []
    read = TextPartition.read

    def noted(part: TextPartition, columns: Sequence[str] | None = None) -> pl.DataFrame:
        found.append(part.start)
        return read(part, columns)

    monkeypatch.setattr(TextPartition, "read", noted)
    return found


def test_text_is_parsed_once_and_features_are_those_of_separate_passes(tmp_path: Path, parses: list[int]) -> None:
    text, recipe = tmp_path / "day.tsv", presets.load("criteo")
    criteo(text, 600, cardinalities=30)
    settings = TrainSettings.resolve({"etl": {"part_size": 20_000}, "seed": 5, "model": {"name": "MLP"}})
    rows = RawRows(text, None, recipe, settings)
    num_parts, folder = rows.data.num_partitions, RunFolder(tmp_path / "run")
    assert num_parts > 3
    parses.clear()
    rows.run(folder, lambda event: None, False)
    assert len(parses) == len(set(parses)) == num_parts

    train, valid = open_input(text, recipe["input"], part_size=20_000).split([0.9, 0.1], seed=5)
    workflow = Workflow.from_recipe(recipe).fit(train)
    for place, raw in ((folder.features, train), (folder.valid, valid)):
        assert Dataset(place).to_polars().equals(workflow.transform(raw).to_polars())


def test_a_job_on_text_reads_it_once_and_leaves_no_scratch(
    tmp_path: Path, parses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "scratch"))
    criteo(tmp_path / "day.tsv", 300, cardinalities=30)
    options = {"recipe": presets.load("criteo"), "part_size": 20_000}
    EtlJob(str(tmp_path / "day.tsv"), str(tmp_path / "out"), **options).run()
    assert len(parses) == len(set(parses)) > 2
    assert not list((tmp_path / "scratch").iterdir())
