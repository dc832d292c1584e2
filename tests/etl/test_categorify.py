"""Categorify: code layouts, limits, vocabularies, spilling, files."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Schema, Workflow, ops
from penstock.core.errors import DataError, ParameterError
from penstock.data.partition import FramePartition
from penstock.etl.vocabulary import ValueCounts

FRAME = pl.DataFrame({"a": ["x", "y", "x", "z", None, "x", "y"]})


def codes(frame=FRAME, **arguments) -> list[int]:
    return Workflow(["a"] >> ops.Categorify(**arguments)).fit_transform(frame)["a"].to_list()


def test_layouts():
    assert codes() == [3, 4, 3, 5, 1, 3, 4]
    assert codes(start_index=0) == [1, 2, 1, 3, 0, 1, 2]
    assert codes(start_index=10) == [11, 12, 11, 13, 10, 11, 12]
    assert codes(freq_threshold=2) == [3, 4, 3, 2, 1, 3, 4]
    assert codes(max_size=4) == [3, 2, 3, 2, 1, 3, 2]
    assert codes(freq_threshold={"a": 3}) == [3, 2, 3, 2, 1, 3, 2]


def test_ties_go_by_value():
    frame = pl.DataFrame({"a": ["b", "c", "a"]})
    assert codes(frame) == [4, 5, 3]
    assert codes(pl.DataFrame({"a": [-1, 5, 0]})) == [3, 5, 4]


def test_out_of_vocabulary_buckets_are_stable():
    frame = pl.DataFrame({"a": ["x"] * 5 + [f"rare{i}" for i in range(100)]})
    out = codes(frame, freq_threshold=2, num_buckets=8)
    assert out[0] == 2 + 8
    assert set(out[5:]) == set(range(2, 10))
    assert out == codes(frame, freq_threshold=2, num_buckets=8)


@pytest.mark.parametrize(
    "dtype", [pl.Int8, pl.UInt16, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.Boolean, pl.Date, pl.Categorical]
)
def test_every_dtype(dtype):
    raw = pl.Series("a", [1, 0, 1, None, 1]).cast(pl.Int8)
    series = raw.cast(pl.String).cast(dtype) if dtype == pl.Categorical else raw.cast(dtype)
    flow = Workflow(["a"] >> ops.Categorify()).fit(series.to_frame())
    out = flow.transform(series.to_frame())
    assert out["a"].to_list() == [3, 4, 3, 1, 3]
    back = flow.inverse_transform(out)["a"]
    expected = series.cast(pl.String) if dtype == pl.Categorical else series
    assert back.to_list() == expected.to_list()


def test_nan_is_missing_and_zeros_are_one():
    frame = pl.DataFrame({"a": [float("nan"), 0.0, -0.0, None, 1.5]})
    assert codes(frame) == [1, 3, 3, 1, 4]


def test_joint_and_combo():
    frame = pl.DataFrame({"a": ["x", "y", "x"], "b": ["y", "y", None]})
    joint = Workflow([["a", "b"]] >> ops.Categorify()).fit_transform(frame)
    assert joint["a"].to_list() == [4, 3, 4]
    assert joint["b"].to_list() == [3, 3, 1]
    combo = Workflow([["a", "b"]] >> ops.Categorify(encode_type="combo")).fit(frame)
    assert combo.output_schema.names == ["a_b"]
    assert len(set(combo.transform(frame)["a_b"].to_list())) == 3
    assert combo.transform(pl.DataFrame({"a": [None], "b": [None]}, schema=frame.schema))["a_b"].to_list() == [1]


def test_combinations_seen_equally_often_begin_with_missing_parts():
    frame = pl.DataFrame({"a": ["z", None, "m", "m"], "b": [1, 2, None, 3]})
    codes = Workflow([["a", "b"]] >> ops.Categorify(encode_type="combo")).fit(frame).transform(frame)["a_b"]
    assert codes.rank("dense").to_list() == [4, 1, 2, 3]


def test_single_table_shifts_columns():
    frame = pl.DataFrame({"a": ["x", "y"], "b": ["p", "q"]})
    flow = Workflow(["a", "b"] >> ops.Categorify(single_table=True)).fit(frame)
    out = flow.transform(frame)
    assert out["a"].to_list() == [3, 4]
    assert out["b"].to_list() == [8, 9]
    assert flow.output_schema["a"].cardinality == flow.output_schema["b"].cardinality == 10
    assert flow.inverse_transform(out).equals(frame)


def test_given_vocabularies(tmp_path):
    assert codes(vocabs={"a": ["y", "x"]}) == [4, 3, 4, 2, 1, 4, 3]
    pl.DataFrame({"a": ["z", "y"]}).write_parquet(tmp_path / "v.parquet")
    assert codes(vocabs={"a": str(tmp_path / "v.parquet")}) == [2, 4, 2, 3, 1, 2, 4]
    with pytest.raises(ParameterError, match="a value twice"):
        codes(vocabs={"a": ["x", "x"]})


def test_settings_are_checked():
    with pytest.raises(ParameterError, match=r"Categorify\.freq_threshold must be an int ≥ 0.*got -3"):
        ops.Categorify(freq_threshold=-3)
    with pytest.raises(ParameterError, match="not both"):
        ops.Categorify(freq_threshold=2, max_size=10)
    with pytest.raises(ParameterError, match="num_buckets \\+ 2 = 6"):
        ops.Categorify(max_size=5, num_buckets=4)
    with pytest.raises(ParameterError, match="encode_type"):
        ops.Categorify(encode_type="both")


def test_a_vocabulary_beyond_the_dtype_is_an_error():
    frame = pl.DataFrame({"a": np.arange(200)})
    with pytest.raises(DataError, match=r"column 'a' has 200 categories, more than int8 can hold"):
        codes(frame, dtype="int8")
    assert max(codes(frame, dtype="int16")) == 202


def test_all_null_and_empty_columns():
    empty = pl.DataFrame({"a": pl.Series([None, None], dtype=pl.String)})
    assert codes(empty) == [1, 1]
    flow = Workflow(["a"] >> ops.Categorify()).fit(empty)
    assert flow.output_schema["a"].cardinality == 3
    assert codes(FRAME.clear()) == []


def test_spilled_counts_give_the_same_vocabulary():
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({"a": [f"v{i}" for i in rng.zipf(1.3, 20_000) % 5000]})
    parts = [FramePartition(frame.slice(at, 1000)) for at in range(0, 20_000, 1000)]
    data = Dataset.from_partitions(parts, Schema.from_polars(frame.schema))
    plain = Workflow(["a"] >> ops.Categorify(freq_threshold=3)).fit(data)
    limited = Workflow(["a"] >> ops.Categorify(freq_threshold=3, cardinality_memory_limit="40KB", split_out=4)).fit(
        data
    )
    assert limited.output.operator.state_["a"].is_spilled
    assert limited.transform(frame).equals(plain.transform(frame))
    plain.update(frame)
    limited.update(frame)
    assert limited.transform(frame).equals(plain.transform(frame))


def test_spilled_counts_travel_to_other_processes():
    import pickle

    counts = ValueCounts(pl.String(), memory_limit=1, num_buckets=2)
    counts.add(pl.Series(["a", "b", "a"]))
    assert counts.is_spilled
    copy = pickle.loads(pickle.dumps(counts))
    assert copy.merge(counts).frame().sort("value").rows() == [("a", 4), ("b", 2)]


def test_category_files(tmp_path):
    Workflow(["a"] >> ops.Categorify(freq_threshold=2, out_path=tmp_path)).fit(FRAME)
    unique = pl.read_parquet(tmp_path / "categories" / "unique.a.parquet")
    assert unique.rows() == [(3, "x", 3), (4, "y", 2)]
    meta = pl.read_parquet(tmp_path / "categories" / "meta.a.parquet")
    assert meta.rows() == [("pad", 0, 1, 0), ("null", 1, 1, 1), ("oov", 2, 1, 1), ("unique", 3, 2, 5)]


def test_embedding_sizes():
    frame = pl.DataFrame({"a": ["x", "y"], "l": [["p"], ["q"]]})
    flow = Workflow(["a"] >> ops.Categorify()).fit(frame)
    assert ops.get_embedding_sizes(flow) == {"a": (5, 16)}
    both = Workflow(["a", "l"] >> ops.Categorify()).fit(frame)
    assert ops.get_embedding_sizes(both) == ({"a": (5, 16)}, {"l": (5, 16)})
    assert ops.get_embedding_sizes(flow, dimension=8) == {"a": (5, 8)}
    assert ops.get_embedding_sizes(flow, dimension={"a": 4}) == {"a": (5, 4)}
    assert ops.get_embedding_sizes(flow, dimension=lambda n: n * 2) == {"a": (5, 10)}
