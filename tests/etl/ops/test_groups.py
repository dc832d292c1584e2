from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core.errors import ColumnNotFoundError, DataError, GraphError, ParameterError, SchemaError
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import FramePartition

FRAME = pl.DataFrame(
    {
        "user": [1, 2, 1, 3, 2, 1],
        "time": [5, 1, 3, 2, 9, 4],
        "item": ["a", "b", "c", "d", "e", "f"],
        "price": [1.0, 2.0, None, 4.0, 5.0, 6.0],
    }
)


def parts(*bounds: int) -> Dataset:
    edges = [0, *bounds, FRAME.height]
    frames = [FramePartition(FRAME[a:b]) for a, b in pairwise(edges)]
    return Dataset.from_partitions(frames, Schema.from_polars(FRAME.schema))


def test_groupby_right_after_filter() -> None:
    node = list(FRAME.columns) >> ops.Filter(pl.col("time") > 1) >> ops.Groupby("user", "time", {"item": "list"})
    out = Workflow(node).transform(parts(1, 2, 4)).to_polars().sort("user")
    assert out.rows() == [(1, ["c", "f", "a"]), (2, ["e"]), (3, ["d"])]


def test_operators_fit_on_what_groupby_gives() -> None:
    grouped = list(FRAME.columns) >> ops.Groupby("user", "time", {"item": "list", "price": "sum"})
    node = (
        (grouped["item_list"] >> ops.Categorify()) + (grouped["price_sum"] >> ops.NormalizeMinMax()) + grouped["user"]
    )
    workflow = Workflow(node).fit(parts(2, 3))
    out = workflow.transform(parts(5)).to_polars().sort("user")
    assert out["price_sum"].to_list() == pytest.approx([1.0, 1.0, 0.0])
    assert out["item_list"].list.len().to_list() == [3, 2, 1]
    assert workflow.output_schema["item_list"].cardinality == 9


def test_aggregations_by_default_and_by_name() -> None:
    out = Workflow(["user", "price"] >> ops.Groupby("user", aggs=["count", "mean"])).transform(FRAME)
    assert out.to_dict(as_series=False) == {"user": [1, 2, 3], "price_count": [2, 2, 1], "price_mean": [3.5, 3.5, 4.0]}
    lists = Workflow(["user", "item"] >> ops.Groupby("user", name_sep="-")).transform(FRAME)
    assert lists.columns == ["user", "item-list"]


def test_sorting_goes_both_ways() -> None:
    op = ops.Groupby("user", ["price", "time"], {"item": "list"}, ascending=[False, True])
    out = Workflow(list(FRAME.columns) >> op).transform(FRAME[3:])
    assert out["item_list"].to_list() == [["f"], ["e"], ["d"]]
    down = Workflow(list(FRAME.columns) >> ops.Groupby("user", "time", {"item": "first"}, ascending=False))
    assert down.transform(FRAME)["item_first"].to_list() == ["a", "e", "d"]


def test_groupby_says_what_is_wrong() -> None:
    with pytest.raises(ColumnNotFoundError, match="put it through Groupby too"):
        Workflow(["item"] >> ops.Groupby("user")).transform(FRAME)
    with pytest.raises(SchemaError, match="'mean' of column 'item'"):
        Workflow(["user", "item"] >> ops.Groupby("user", aggs="mean")).transform(FRAME)
    with pytest.raises(ParameterError, match="aggs"):
        ops.Groupby("user", aggs="average")
    with pytest.raises(ParameterError, match="ascending"):
        ops.Groupby("user", "time", ascending=[True, False])
    grouped = ["user", "item"] >> ops.Groupby("user")
    with pytest.raises(GraphError, match="cannot be joined"):
        grouped + ["time"]
    with pytest.raises(GraphError, match="transform_row"):
        Workflow(grouped).fit(FRAME).transform_row({"user": 1, "item": "a"})


def test_variances_far_from_zero_are_right() -> None:
    frame = pl.DataFrame({"k": [1] * 4, "x": [1.7e9 + 0.25 * i for i in range(4)]})
    out = Workflow(["k"] >> ops.JoinGroupby("x", ["var", "std"])).fit_transform(frame)
    assert out["k_x_var"][0] == pytest.approx(pl.Series([0.0, 0.25, 0.5, 0.75]).var(), rel=1e-12)


def test_join_groupby_of_unseen_keys_and_groups() -> None:
    workflow = Workflow([["user", "item"], "user"] >> ops.JoinGroupby("price", ["count", "max"])).fit(FRAME)
    out = workflow.transform(pl.DataFrame({"user": [1, 7], "item": ["a", "a"], "price": [0.0, 0.0]}))
    assert out.to_dict(as_series=False) == {
        "user_item_count": [1, 0],
        "user_item_price_max": [1.0, None],
        "user_count": [3, 0],
        "user_price_max": [6.0, None],
    }
    serving = workflow.remove_inputs(["price"])
    assert serving.transform_row({"user": 1, "item": "a"})["user_price_max"] == 6.0


def test_join_groupby_says_what_is_wrong() -> None:
    with pytest.raises(ParameterError, match="needs cont_cols"):
        ops.JoinGroupby(stats=["mean"])
    with pytest.raises(SchemaError, match="'item' is String"):
        Workflow(["user"] >> ops.JoinGroupby("item", ["sum"])).fit(FRAME)
    huge = FRAME.with_columns(price=pl.lit(1e200))
    with pytest.raises(DataError, match="clip them"):
        Workflow(["user"] >> ops.JoinGroupby("price", ["sum"])).fit(huge)


def test_lags_are_global_and_keep_their_places() -> None:
    node = (["time"] >> ops.DifferenceLag("user", [1, -1])) + ["item"]
    out = Workflow(node).transform(parts(1, 2, 5)).to_polars()
    assert out["time_difference_lag_1"].to_list() == [None, None, -2.0, None, 8.0, 1.0]
    assert out["time_difference_lag_-1"].to_list() == [2.0, -8.0, -1.0, None, None, None]
    assert out["item"].to_list() == FRAME["item"].to_list()


def test_lags_after_a_filter_take_their_keys_from_the_inputs() -> None:
    node = ["user", "time"] >> ops.Filter(pl.col("time") != 3) >> ops.DifferenceLag("user")
    out = Workflow(node).transform(parts(1, 3)).to_polars()
    assert out["time_difference_lag_1"].to_list() == [None, None, None, 8.0, -1.0]
    with pytest.raises(ColumnNotFoundError, match="user"):
        Workflow(["time"] >> ops.Filter(pl.col("time") != 3) >> ops.DifferenceLag("user")).transform(FRAME)


def test_lags_by_an_encoded_key_go_by_the_code() -> None:
    frame = pl.DataFrame({"user": ["a", "x", "a", "y"], "time": [1, 2, 4, 8]})
    encoded = ["user"] >> ops.Categorify(freq_threshold=2)
    node = (encoded + ["time"]) >> ops.DifferenceLag("user")
    data = Dataset.from_partitions(
        [FramePartition(frame[i : i + 1]) for i in range(4)], Schema.from_polars(frame.schema)
    )
    out = Workflow(node).fit_transform(data).to_polars()
    assert out["time_difference_lag_1"].to_list() == [None, None, 3.0, 6.0]  # x and y share the code of unknown values
