"""A column is the column of that name: names with dots, names that look like patterns, lists and structs beside."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.data import Dataset
from penstock.loader import Loader

FLAT = ["a", "a.b", "a.list.element", ".", "a.", "*", "^a.*$", "l", "s.x"]


@pytest.fixture
def path(tmp_path) -> str:
    columns = {name: pa.array([10 * i, 10 * i + 1], pa.int32()) for i, name in enumerate(FLAT)}
    columns["s"] = pa.array([{"x": 1, "y": 2}, {"x": 3, "y": 4}])
    columns["l.m"] = pa.array([[1, 2], [3]], pa.list_(pa.int32()))
    columns["m"] = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32()))
    columns["last"] = pa.array([98, 99], pa.int32())
    table = pa.table(columns)
    pq.write_table(table.select([*columns][::-1]), tmp_path / "a.parquet")
    return str(tmp_path / "a.parquet")


def plain(path: str) -> Dataset:
    """Structs and maps are none of a data set's columns: what is left are numbers and lists."""
    table = pq.read_table(path)
    kept = table.select([n for n in table.column_names if n not in ("s", "m")])
    pq.write_table(kept, path)
    return Dataset(path)


@pytest.mark.parametrize("name", [*FLAT, "last"])
def test_loader_reads_the_column_it_was_asked_for(path, name):
    expected = pq.read_table(path).column(name).to_pylist()
    (features, _) = next(iter(Loader(plain(path), 2, continuous=[name])))
    assert features[name].tolist() == expected


@pytest.mark.parametrize("name", ["a", "a.b"])
def test_a_file_of_a_column_and_another_that_begins_like_it(tmp_path, name):
    values = {"a": [1.0, 2.0], "a.b": [3.0, 4.0]}
    pq.write_table(pa.table(values), tmp_path / "a.parquet")
    (features, _) = next(iter(Loader(Dataset(tmp_path / "a.parquet"), 2, continuous=[name])))
    assert features[name].tolist() == values[name]


def test_a_list_column_with_a_dot(path):
    (features, _) = next(iter(Loader(plain(path), 2, categorical=["l.m", "l"])))
    assert features["l.m"].values.tolist() == [1, 2, 3] and features["l.m"].offsets.tolist() == [0, 2, 3]
    assert features["l"].tolist() == [70, 71]


def test_a_list_column_with_a_dot_and_none_of_the_name_before_it(tmp_path):
    pq.write_table(pa.table({"l.m": [[1, 2], [3]], "n": [0, 1]}), tmp_path / "a.parquet")
    (features, _) = next(iter(Loader(Dataset(tmp_path / "a.parquet"), 2, categorical=["l.m", "n"])))
    assert features["l.m"].values.tolist() == [1, 2, 3] and features["n"].tolist() == [0, 1]


def test_columns_beside_structs_and_maps_keep_their_places(path):
    from penstock.data.formats.parquet_footer import Footer
    from penstock.loader.parquet_chunks import column_chunks

    chunks = column_chunks(Footer.read(str(path)))
    assert {name for _, name in chunks} == {*FLAT, "l.m", "last"}
    offsets = {name: chunk.offset for (_, name), chunk in chunks.items()}
    group = pq.read_metadata(path).row_group(0)
    stored = {group.column(c).path_in_schema: group.column(c) for c in range(group.num_columns)}
    assert all(offsets[n] in (stored[n].data_page_offset, stored[n].dictionary_page_offset) for n in ("a", "a.b"))


@pytest.mark.parametrize("name", FLAT)
def test_a_data_set_selects_by_name(path, name):
    found = plain(path).select([name]).to_polars()
    assert found.columns == [name]
    assert np.array_equal(found[name], pq.read_table(path).column(name))
