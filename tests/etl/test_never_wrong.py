"""No wrong number in silence: each case gave one once."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from penstock import Dataset, Schema, Workflow, ops
from penstock.core.errors import ConversionError, DataError, ParameterError, PenstockError, SchemaError
from penstock.etl.cells import Numbers

INT64 = 2**63 - 1


def three_ways(flow: Workflow, values: list[Any], dtype: Any = None) -> list[Any]:
    """Column `x` of a frame, of a few rows and of single rows, which must be the same to the bit."""
    frame = pl.DataFrame({"x": pl.Series(values, dtype=dtype)})
    whole = flow.transform(frame)["x"].to_list()
    cell = flow.transform_rows([{"x": v} for v in values])["x"]
    assert repr(cell.to_list() if isinstance(cell, Numbers) else list(cell)) == repr(whole)
    assert repr([flow.transform_row({"x": v})["x"] for v in values]) == repr(whole)
    return whole


def all_refuse(flow: Workflow, value: Any, dtype: Any = None) -> None:
    for run in _ways(flow, value, dtype):
        with pytest.raises(ConversionError, match="column 'x'"):
            run()


def _ways(flow: Workflow, value: Any, dtype: Any) -> list[Callable[[], Any]]:
    frame = pl.DataFrame({"x": pl.Series([value], dtype=dtype)})
    return [
        lambda: flow.transform(frame),
        lambda: flow.transform_row({"x": value}),
        lambda: flow.transform_rows([{"x": value}] * 2),
    ]


class TestCodes:
    def test_update_of_a_single_table_keeps_codes(self, tmp_path: Path) -> None:
        flow = Workflow(["a", "b"] >> ops.Categorify(single_table=True))
        frame = pl.DataFrame({"a": ["x", "y"], "b": ["p", "q"]})
        before = flow.fit_transform(frame)
        for new in ("z", "w"):
            flow.update(pl.DataFrame({"a": [new, "x"], "b": [f"b{new}", "p"]}))
            assert flow.transform(frame).equals(before)
        flow.save(tmp_path / "flow")
        for known in (flow, Workflow.load(tmp_path / "flow")):
            more = pl.DataFrame({"a": ["x", "y", "z", "w", "?"], "b": ["p", "q", "bz", "bw", "?"]})
            codes = known.transform(more)
            assert known.inverse_transform(codes)[:4].equals(more[:4])
            used = codes[:4]["a"].to_list() + codes[:4]["b"].to_list()
            assert len(set(used)) == 8 and max(used) == known.output_schema["a"].cardinality - 1
            rows = more.to_dicts()
            assert [known.transform_row(row) for row in rows] == codes.to_dicts()

    @pytest.mark.parametrize("params", [{"single_table": True}, {"vocabs": {"a": range(70), "b": range(130)}}])
    def test_codes_do_not_wrap(self, params: dict[str, Any]) -> None:
        frame = pl.DataFrame({"a": [i % 70 for i in range(70)], "b": range(70)})
        with pytest.raises(DataError, match=r"'b' has .* more than int8 can hold"):
            Workflow(["a", "b"] >> ops.Categorify(dtype="int8", **params)).fit(frame)

    def test_fractions_are_no_integers(self) -> None:
        flow = Workflow(["x"] >> ops.Categorify()).fit(pl.DataFrame({"x": [1, 1, 2]}))
        all_refuse(flow, 1.9)
        assert three_ways(flow, [1.0, math.nan]) == [3, 1]
        with pytest.raises(ConversionError, match=r"row 1 .*2\.5 is no int64"):
            flow.update(pl.DataFrame({"x": [1.0, 2.5]}))
        assert three_ways(flow, [1, 2, 3]) == [3, 4, 2]

    def test_signs_are_not_reinterpreted(self) -> None:
        flow = Workflow(["x"] >> ops.Categorify()).fit(pl.DataFrame({"x": [-1, 5]}, schema={"x": pl.Int32}))
        all_refuse(flow, 2**32 - 1, pl.UInt32)

    @pytest.mark.parametrize("buckets", [1, 4])
    def test_given_vocabularies_meet_other_dtypes(self, buckets: int) -> None:
        op = ops.Categorify(vocabs={"x": [1, 2]}, num_buckets=buckets)
        flow = Workflow(["x"] >> op).fit(pl.DataFrame({"x": [0.5]}))
        codes = three_ways(flow, [1.0, 2.0, 1.9, None, math.nan, math.inf])
        assert codes[:2] == [2 + buckets, 3 + buckets] and codes[3:5] == [1, 1]
        assert all(2 <= code < 2 + buckets for code in (codes[2], codes[5]))

    def test_joint_vocabularies_of_several_dtypes(self) -> None:
        frame = pl.DataFrame({"a": [1, 2**40], "b": [1, 7]}, schema={"a": pl.Int64, "b": pl.Int32})
        codes = Workflow([["b", "a"]] >> ops.Categorify()).fit_transform(frame)
        assert codes["a"][0] == codes["b"][0] and codes["a"][1] != codes["b"][1]
        halves = pl.DataFrame({"a": [1, 2], "b": [1.5, 2.0]})
        codes = Workflow([["a", "b"]] >> ops.Categorify()).fit_transform(halves)
        assert codes["a"][1] == codes["b"][1] and len({*codes["a"], *codes["b"]}) == 3
        with pytest.raises(SchemaError, match="'a' is int64, 'b' is string"):
            Workflow([["a", "b"]] >> ops.Categorify()).fit(pl.DataFrame({"a": [1], "b": ["x"]}))

    def test_combinations(self) -> None:
        flow = Workflow([["a", "b"]] >> ops.Categorify(encode_type="combo"))
        frame = pl.DataFrame({"a": [math.nan, None, -0.0, 0.0, math.inf, None], "b": [None, None, 1, 1, 1, 1]})
        codes = flow.fit_transform(frame)["a_b"].to_list()
        assert codes[:2] == [1, 1] and codes[2] == codes[3] and len({codes[2], codes[4], codes[5]}) == 3
        binary = pl.DataFrame({"a": [b"\xff", b"a", None], "b": [1, 1, None]})
        assert flow.fit_transform(binary)["a_b"].to_list()[2] == 1

    @pytest.mark.parametrize("values", [[datetime.date(2026, 1, 1)], [b"a"]])
    def test_vocabularies_that_a_recipe_cannot_hold(self, values: list[Any], tmp_path: Path) -> None:
        flow = Workflow(["x"] >> ops.Categorify(vocabs={"x": values})).fit(pl.DataFrame({"x": values}))
        assert three_ways(flow, [*values, None]) == [3, 1]
        with pytest.raises(ParameterError, match=r"vocabs\['x'\].*parquet"):
            flow.save(tmp_path / "flow")


class TestInverse:
    def test_goes_the_way_the_column_came(self) -> None:
        frame = pl.DataFrame({"a": ["x", "y", "x"], "b": [1.0, 2.0, 4.0]})
        node = (["a"] >> ops.Categorify() >> ops.Rename(name="b")) + (["b"] >> ops.Normalize() >> ops.Rename(name="c"))
        flow = Workflow(node)
        back = flow.inverse_transform(flow.fit_transform(frame))
        assert back["b"].to_list() == ["x", "y", "x"]
        assert back["c"].to_list() == pytest.approx([1, 2, 4])
        raw = pl.DataFrame({"a": [3, 4]})
        assert flow.inverse_transform(raw).equals(raw)
        with pytest.raises(ParameterError, match="'a' is not an output"):
            flow.inverse_transform(raw, ["a"])

    def test_stops_at_what_made_something_else(self) -> None:
        flow = Workflow(["x"] >> ops.Normalize() >> ops.LambdaOp(lambda x: x * 2))
        done = flow.fit_transform(pl.DataFrame({"x": [1.0, 2.0, 3.0]}))
        assert flow.inverse_transform(done).equals(done)

    def test_lists(self) -> None:
        frame = pl.DataFrame({"x": [[1.0, 3.0], None, []], "c": [["a"], ["b", "a"], None]})
        flow = Workflow((["x"] >> ops.LogOp() >> ops.Normalize()) + (["c"] >> ops.Categorify()))
        back = flow.inverse_transform(flow.fit_transform(frame))
        assert back["x"][0].to_list() == pytest.approx([1, 3]) and back["x"].to_list()[1:] == [None, []]
        assert back["c"].to_list() == [["a"], ["b", "a"], []]


class TestRowsAndFrames:
    def test_missing_text_as_pandas_gives_it(self) -> None:
        frame = pd.DataFrame({"x": ["a", None, np.nan, "b"]})
        flow = Workflow(["x"] >> ops.Categorify()).fit(frame)
        assert [flow.transform_row(row)["x"] for row in frame.to_dict("records")] == [3, 1, 1, 4]
        assert flow.transform_rows(frame.to_dict("records"))["x"].to_list() == [3, 1, 1, 4]

    def test_missing_times_as_pandas_gives_them(self) -> None:
        moment = datetime.datetime(2026, 1, 2, 3)
        flow = Workflow(["x"] >> ops.Categorify()).fit(pl.DataFrame({"x": [moment, None]}))
        for missing in (pd.NaT, np.datetime64("NaT"), None):
            assert flow.transform_row({"x": missing}) == {"x": 1}
        assert flow.transform_row({"x": pd.Timestamp(moment)}) == {"x": 3}

    def test_fills(self) -> None:
        text = Workflow(["x"] >> ops.FillMissing()).fit(pl.DataFrame({"x": ["a"]}))
        assert three_ways(text, ["a", None]) == ["a", "0"]
        for op in (ops.FillMissing(0.1), ops.FillMedian()):
            single = Workflow(["x"] >> op).fit(pl.DataFrame({"x": [0.1, 0.2]}, schema={"x": pl.Float32}))
            three_ways(single, [None, 0.3, math.nan, 7], pl.Float32)
        for value in (math.nan, 2**40, 0.5):
            whole = Workflow(["x"] >> ops.FillMissing(value)).fit(pl.DataFrame({"x": [1]}, schema={"x": pl.Int32}))
            assert three_ways(whole, [1, 2], pl.Int32) == [1, 2]
            all_refuse(whole, None, pl.Int32)

    def test_clips(self) -> None:
        with pytest.raises(SchemaError, match=r"no int64 lies between 0\.2 and 0\.8 \(column 'x'\)"):
            Workflow(["x"] >> ops.Clip(0.2, 0.8)).fit(pl.DataFrame({"x": [1]}))
        flow = Workflow(["x"] >> ops.Clip(0.2, 0.8)).fit(pl.DataFrame({"x": [1.0]}, schema={"x": pl.Float32}))
        three_ways(flow, [0.1, 0.2, 0.5, 0.8, 0.9, math.nan, math.inf], pl.Float32)

    def test_buckets_beyond_the_floats(self) -> None:
        flow = Workflow(["x"] >> ops.Bucketize([2**53 + 1, INT64])).fit(pl.DataFrame({"x": [1]}))
        assert three_ways(flow, [2**53, 2**53 + 1, 2**53 + 2, INT64 - 1, INT64]) == [0, 1, 1, 1, 2]

    def test_hexadecimal_text_of_64_bits(self) -> None:
        schema = Schema.from_polars({"x": pl.UInt64()})
        schema = schema.with_column(schema["x"].with_(properties={"text": "hex"}))
        flow = Workflow(["x"] >> ops.Categorify()).fit(
            Dataset(pl.DataFrame({"x": [2**64 - 1]}, schema={"x": pl.UInt64}), schema=schema)
        )
        assert three_ways(flow, ["ffffffffffffffff", "f", None]) == [3, 2, 1]
        all_refuse(flow, "0x1f")

    def test_medians_have_the_dtype_they_declare(self, tmp_path: Path) -> None:
        frame = pl.DataFrame({"i": [1700000001, None], "b": [True, None], "n": [None, None]})
        flow = Workflow(["i", "b", "n"] >> ops.FillMedian())
        done = flow.fit_transform(frame)
        assert done.schema == flow.output_schema.polars_schema
        assert done["i"].to_list() == [1700000001.0] * 2
        nothing = Workflow(["n"] >> ops.FillMissing()).fit(frame)
        nothing.transform(Dataset(frame)).to_parquet(tmp_path / "out")
        assert Dataset(tmp_path / "out").to_polars()["n"].to_list() == [0.0, 0.0]


class TestSums:
    def test_groups_with_nan_and_infinity(self) -> None:
        frame = pl.DataFrame({"k": [1, 1, 1, 2, 2, 3], "x": [1.0, math.nan, None, math.inf, 1.0, 2.0]})
        aggs = ["count", "sum", "mean", "std", "max"]
        done = Workflow(["k", "x"] >> ops.Groupby("k", aggs={"x": aggs})).transform(frame)
        assert done.rows() == [(1, 1, 1.0, 1.0, None, 1.0), (2, 2, math.inf, math.inf, None, math.inf),
                               (3, 1, 2.0, 2.0, None, 2.0)]  # fmt: skip
        joined = Workflow(["k"] >> ops.JoinGroupby("x", ["sum", "mean", "min"])).fit(frame[4:])
        joined.update(frame[:4])
        assert joined.transform(frame[3:4]).rows() == [(math.inf, math.inf, 1.0)]
        assert joined.transform(frame[:1]).rows() == [(1.0, 1.0, 1.0)]
        with pytest.raises(DataError, match="target 'x' is inf in row 3"):
            Workflow(["k"] >> ops.TargetEncoding("x")).fit(frame)

    def test_integers_do_not_wrap(self) -> None:
        frame = pl.DataFrame({"k": [1, 1, 2], "x": [INT64, 5, -7]})
        flow = Workflow(["k", "x"] >> ops.Groupby("k", aggs={"x": "sum"}))
        with pytest.raises(ConversionError, match=r"'x_sum'.*9223372036854775812 is no int64"):
            flow.transform(frame)
        assert flow.transform(frame[1:])["x_sum"].to_list() == [5, -7]
        lag = pl.DataFrame({"k": [1, 1], "x": [-(2**63), INT64]})
        found = Workflow(["x"] >> ops.DifferenceLag("k")).transform(lag)["x_difference_lag_1"].to_list()
        assert found == [None, 2.0**64]

    def test_narrower_floats_do_not_become_infinite(self) -> None:
        flow = Workflow(["x"] >> ops.ReduceDtypeSize()).fit(pl.DataFrame({"x": [0.1]}))
        assert three_ways(flow, [0.1]) == [float(np.float32(0.1))]
        with pytest.raises(DataError, match=r"column 'x', row 1: 1e\+300 is no float32.*float_dtype='float64'"):
            flow.transform(pl.DataFrame({"x": [1.0, 1e300]}))

    def test_joins(self) -> None:
        table = pl.DataFrame({"k": [math.nan, 1.0, 2.5, 2.0**53], "v": ["nan", "one", "half", "big"]})
        node = ["k"] >> ops.JoinExternal(table, on="k")
        found = Workflow(node).transform(pl.DataFrame({"k": [math.nan, 1.0, None]}))["v"].to_list()
        assert found == [None, "one", None]
        whole = Workflow(node).transform(pl.DataFrame({"k": [1, 2, 2**53 + 1, 2**53]}))["v"].to_list()
        assert whole == ["one", None, None, "big"]


class TestAllOrNothing:
    def test_a_failed_update_changes_nothing(self) -> None:
        node = (
            (["x"] >> ops.Normalize())
            + (["c"] >> ops.Categorify(dtype="int8"))
            + (["k"] >> ops.JoinGroupby("x", ["sum"]))
        )
        flow = Workflow(node)
        frame = pl.DataFrame({"x": [1.0, 2.0, 4.0], "c": ["a", "b", "a"], "k": [1, 1, 2]})
        before = flow.fit_transform(frame)
        many = pl.DataFrame({"x": [9.0] * 300, "c": [f"c{i}" for i in range(300)], "k": [1] * 300})
        for attempt in (flow.update, flow.fit):
            with pytest.raises(DataError, match="more than int8"):
                attempt(many)
            assert flow.transform(frame).equals(before)
        flow.update(frame)
        again = Workflow(["c"] >> ops.Categorify()).fit(pl.concat([frame, frame]))
        assert flow.transform(frame)["c"].to_list() == again.transform(frame)["c"].to_list()

    def test_a_failed_first_fit_is_no_fit(self) -> None:
        flow = Workflow(["x"] >> ops.FillMedian() >> ops.Categorify(dtype="int8"))
        with pytest.raises(PenstockError):
            flow.fit(pl.DataFrame({"x": list(range(300))}))
        assert not flow.is_fitted
