"""The `input` section of recipes and the presets that carry it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock import Role, Workflow
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.etl import presets
from penstock.etl.input_section import column_dtypes, open_input

SECTION = {"format": "tsv", "names": ["label", "C1"], "dtypes": {"int8": ["label"], "hex32": ["C1"]}}
LINES = "1\t0000000a\n0\t\n"


def test_the_criteo_preset_names_what_the_generator_writes() -> None:
    section = presets.load("criteo")["input"]
    assert section["names"] == CRITEO_NAMES
    assert column_dtypes(section["dtypes"]) == CRITEO_DTYPES
    assert sorted(n for names in section["roles"].values() for n in names) == sorted(CRITEO_NAMES)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_a_recipe(name: str) -> None:
    recipe = presets.load(name)
    assert Workflow.from_recipe(recipe).to_recipe()["nodes"].keys() == recipe["nodes"].keys()


@pytest.mark.parametrize("file", ["day.tsv", "day_0", "day_0.gz", "day.txt"])
def test_the_section_decides_where_names_do_not_tell(tmp_path: Path, file: str) -> None:
    content = LINES.encode()
    (tmp_path / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    data = open_input([str(tmp_path / file)], SECTION)
    assert data.to_polars().rows() == [(1, 10), (0, None)]


def test_parquet_brings_its_own_names_and_keeps_the_roles(tmp_path: Path) -> None:
    criteo(tmp_path / "day.parquet", 50, format="parquet", cardinalities=10)
    (tmp_path / "day.parquet.schema.json").unlink()
    section = presets.load("criteo")["input"]
    data = open_input(str(tmp_path / "day.parquet"), section)
    assert data.schema["C1"].dtype == "string"
    assert data.schema["C1"].role is Role.CATEGORICAL


def test_the_schema_beside_the_data_wins(tmp_path: Path) -> None:
    (tmp_path / "day.tsv").write_text(LINES)
    from penstock import ColumnSchema, Schema

    (tmp_path / "day.tsv.schema.json").write_text(Schema([ColumnSchema("label", "int8", role="continuous")]).to_json())
    data = open_input(str(tmp_path / "day.tsv"), {**SECTION, "roles": {"label": ["label", "C1"]}})
    assert [c.role for c in data.schema] == [Role.CONTINUOUS, Role.LABEL]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"nmaes": []}, "unknown key 'nmaes'.*did you mean 'names'"),
        (["tsv"], "must be a mapping"),
        ({"roles": {"lable": ["label"]}}, "input.roles"),
    ],
)
def test_bad_sections_are_refused(tmp_path: Path, section: object, message: str) -> None:
    (tmp_path / "day.tsv").write_text(LINES)
    with pytest.raises(ParameterError, match=message):
        open_input(str(tmp_path / "day.tsv"), section)  # type: ignore[arg-type]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nope\.tsv"):
        open_input(str(tmp_path / "nope.tsv"), SECTION)


@pytest.mark.parametrize("said", ["csv", "tsv", None])
def test_the_format_of_text_counts_for_any_text(tmp_path: Path, said: str | None) -> None:
    (tmp_path / "day.txt").write_text('label,title\n1,"a, b"\n0,c\n')
    data = open_input(str(tmp_path / "day.txt"), {} if said is None else {"format": said})
    assert data.to_polars().rows() == [(1, "a, b"), (0, "c")]


def test_rows_to_predict_may_lack_what_the_section_names(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("C1\n5\n")
    section = {"dtypes": {"int8": ["label"], "string": ["C1"]}, "roles": {"label": ["label"]}}
    assert open_input(str(tmp_path / "new.csv"), section, may_lack=True).to_polars().rows() == [("5",)]
    with pytest.raises(DataError.__mro__[1], match="'label' is not in"):
        open_input(str(tmp_path / "new.csv"), section)


@pytest.mark.parametrize("may_lack", [True, False])
@pytest.mark.parametrize("separator", ["\t", "|", ";"])
def test_files_of_another_separator_than_those_a_recipe_was_made_for(
    tmp_path: Path, separator: str, may_lack: bool
) -> None:
    section = {"separator": ",", "header": True, "dtypes": {"string": ["zip"], "int64": ["click"]}}
    (tmp_path / "a.csv").write_text("zip,click\n00501,1\n01067,0\n")
    (tmp_path / "b.csv").write_text((tmp_path / "a.csv").read_text().replace(",", separator))
    rows = open_input(str(tmp_path / "a.csv"), section, may_lack=may_lack).to_polars().rows()
    with pytest.warns(UserWarning, match=r"b\.csv: read with separator .*; with that of the recipe, ','"):
        assert open_input(str(tmp_path / "b.csv"), section, may_lack=may_lack).to_polars().rows() == rows
    (tmp_path / "c.csv").write_text("a;b\n1;2\n")  # nothing of the recipe is there, however it is cut
    with pytest.warns(UserWarning, match="a line is one field"), pytest.raises(ColumnNotFoundError, match="'zip'"):
        open_input(str(tmp_path / "c.csv"), section)
