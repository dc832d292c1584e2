"""Workflow: graphs, input checks, updates, inverses, smaller workflows, recipes, rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock import ColumnSelector, Dataset, Schema, Workflow, ops
from penstock.core.errors import (
    ColumnNotFoundError,
    ConversionError,
    DataError,
    GraphError,
    NotFittedError,
    ParameterError,
    SchemaError,
)
from penstock.data.partition import FramePartition


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "user": [3, 1, 3, 2, 3, 1],
            "city": ["b", "a", None, "b", "c", "b"],
            "price": [1.0, None, 3.0, 4.0, 5.0, 9.0],
            "click": [0, 1, 0, 1, 1, 0],
        }
    )


def in_parts(frame: pl.DataFrame, rows: int = 2) -> Dataset:
    parts = [FramePartition(frame.slice(at, rows)) for at in range(0, frame.height, rows)]
    return Dataset.from_partitions(parts, Schema.from_polars(frame.schema))


class TestGraph:
    def test_join_pick_drop(self, frame):
        node = (["user", "city"] >> ops.Categorify()) + ["price", "click"]
        assert Workflow(node).fit(frame).output_schema.names == ["user", "city", "price", "click"]
        assert Workflow(node["city", "click"]).fit(frame).output_schema.names == ["city", "click"]
        assert Workflow(node - ["price"]).fit(frame).output_schema.names == ["user", "city", "click"]
        assert Workflow(["click"] + (["user"] >> ops.Categorify())).fit(frame).output_schema.names == ["click", "user"]

    def test_selectors_by_role_tag_and_everything(self, frame):
        data = Dataset(frame).with_roles(categorical=["user", "city"], label=["click"])
        flow = Workflow(ColumnSelector(roles="categorical") >> ops.Categorify()).fit(data)
        assert flow.output_schema.names == ["user", "city"]
        tagged = ColumnSelector(["user"]) >> ops.AddTags(["id"])
        assert Workflow((tagged + ["city"])[ColumnSelector(tags="id")]).fit(data).output_schema.names == ["user"]
        assert Workflow(ColumnSelector(everything=True)).fit(data).output_schema.names == frame.columns

    def test_one_name_from_two_branches(self, frame):
        with pytest.raises(GraphError, match="'user' comes from two branches"):
            Workflow(["user"] + (["user"] >> ops.Categorify())).fit(frame)

    def test_unknown_column(self, frame):
        with pytest.raises(ColumnNotFoundError, match="did you mean 'city'"):
            Workflow(["citi"] >> ops.Categorify()).fit(frame)

    def test_filtered_rows_cannot_stand_beside_others(self):
        filtered = ["price"] >> ops.Dropna()
        with pytest.raises(GraphError, match="changes the rows"):
            Workflow(filtered + ["city"])

    def test_filter_then_fit_sees_only_what_is_left(self, frame):
        kept = ["city", "price"] >> ops.Dropna()
        flow = Workflow((kept["city"] >> ops.Categorify()) + kept["price"])
        out = flow.fit_transform(in_parts(frame)).to_polars()
        assert out["price"].to_list() == [1.0, 4.0, 5.0, 9.0]
        assert out["city"].to_list() == [3, 3, 4, 3]

    def test_a_function_becomes_a_lambda_op(self, frame):
        assert Workflow(ColumnSelector("price") >> (lambda s: s * 2)).transform(frame)["price"][0] == 2.0
        with pytest.raises(GraphError, match="operator or a function"):
            ["price"] >> ops.LogOp() >> 3

    def test_one_operator_in_two_places_learns_two_things(self, frame):
        op = ops.Categorify()
        out = Workflow((["user"] >> op) + (["city"] >> op)).fit_transform(frame)
        assert out["user"].to_list() == [3, 4, 3, 5, 3, 4]
        assert out["city"].to_list() == [3, 4, 1, 3, 5, 3]

    def test_two_passes_when_a_statistic_needs_another(self, frame):
        flow = Workflow(["price"] >> ops.FillMedian() >> ops.Normalize()).fit(in_parts(frame))
        filled = np.array([1.0, 4.0, 3.0, 4.0, 5.0, 9.0])
        expected = ((filled - filled.mean()) / filled.std(ddof=1)).astype(np.float32)
        np.testing.assert_array_equal(flow.transform(frame)["price"].to_numpy(), expected)


class TestKinds:
    def test_same_kind_out(self, frame):
        flow = Workflow((["city"] >> ops.Categorify()) + ["click"]).fit(frame)
        assert isinstance(flow.transform(frame), pl.DataFrame)
        indexed = frame.to_pandas().set_index(pd.Index(list("uvwxyz")))
        out = flow.transform(indexed)
        assert isinstance(out, pd.DataFrame)
        assert list(out.index) == list("uvwxyz")
        assert isinstance(flow.transform(frame.to_arrow()), pa.Table)
        lazy = flow.transform(in_parts(frame))
        assert isinstance(lazy, Dataset)
        assert lazy.to_polars().equals(flow.transform(frame))
        assert lazy.schema == flow.output_schema

    def test_input_is_coerced_or_refused(self, frame):
        flow = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.FillMissing(0.0))).fit(frame)
        narrow = frame.with_columns(pl.col("user").cast(pl.Int8), pl.col("price").cast(pl.Float32))
        assert flow.transform(narrow)["user"].to_list() == flow.transform(frame)["user"].to_list()
        empty = pl.DataFrame({"user": [None, None], "price": [None, None]})
        assert flow.transform(empty)["user"].to_list() == [1, 1]
        with pytest.raises(ColumnNotFoundError, match="the data given to the workflow"):
            flow.transform(frame.drop("price"))
        with pytest.raises(ConversionError, match="column 'user', row 0"):
            flow.transform(frame.with_columns(pl.lit("x").alias("user")))

    def test_hex_text_is_decoded_where_hex_was_fitted(self, tmp_path):
        (tmp_path / "a.tsv").write_text("68fd1e64\n0a\n68fd1e64\n")
        flow = Workflow(["C1"] >> ops.Categorify()).fit(
            Dataset(tmp_path / "a.tsv", names=["C1"], dtypes={"C1": "hex32"})
        )
        assert flow.transform(pl.DataFrame({"C1": ["68fd1e64", "0a", None]}))["C1"].to_list() == [3, 4, 1]
        assert flow.transform_row({"C1": "68fd1e64"}) == {"C1": 3}
        assert flow.transform_row({"C1": 10}) == {"C1": 4}

    def test_unfitted_is_refused(self, frame):
        with pytest.raises(NotFittedError, match="call fit"):
            Workflow(["city"] >> ops.Categorify()).transform(frame)
        with pytest.raises(NotFittedError):
            _ = Workflow(["city"] >> ops.Categorify()).output_schema

    def test_nothing_to_learn_needs_no_fit(self, frame):
        assert Workflow(["price"] >> ops.FillMissing(7.0)).transform(frame)["price"][1] == 7.0

    def test_errors_name_operator_and_columns(self, frame):
        with pytest.raises((DataError, SchemaError), match="city"):
            Workflow(["city"] >> ops.LogOp()).transform(frame)


class TestUpdate:
    def test_statistics_as_if_fitted_on_all_and_codes_stay(self):
        first = pl.DataFrame({"c": ["a", "b", "b", "rare"], "x": [1.0, 2.0, 3.0, 0.1]})
        second = pl.DataFrame({"c": ["z", "z", "z", "y", "rare"], "x": [1e9, -1e9, 0.2, 0.3, 0.7]})
        graph = lambda: (["c"] >> ops.Categorify(freq_threshold=2)) + (["x"] >> ops.Normalize())  # noqa: E731
        flow = Workflow(graph()).fit(first)
        before = flow.transform(first)["c"].to_list()
        flow.update(second)
        whole = Workflow(graph()).fit(pl.concat([first, second]))
        assert flow.transform(first)["c"].to_list()[:3] == before[:3]
        np.testing.assert_array_equal(flow.transform(second)["x"].to_numpy(), whole.transform(second)["x"].to_numpy())
        mine, theirs = (w.output.feeds[0].operator.vocabularies_["c"] for w in (flow, whole))
        assert dict(zip(mine.values, mine.counts, strict=True)) == dict(zip(theirs.values, theirs.counts, strict=True))
        assert mine.values.to_list() == ["b", "z", "rare"]

    def test_fit_forgets(self, frame):
        flow = Workflow(["city"] >> ops.Categorify()).fit(frame)
        flow.fit(pl.DataFrame({"city": ["q"]}))
        assert flow.transform(frame)["city"].to_list() == [2, 2, 1, 2, 2, 2]

    def test_update_of_an_unfitted_workflow_fits(self, frame):
        assert Workflow(["city"] >> ops.Categorify()).update(frame).is_fitted


class TestInverse:
    def test_values_come_back(self, frame):
        graph = (
            (["city"] >> ops.Categorify())
            + (["price"] >> ops.FillMissing(0.0) >> ops.LogOp() >> ops.Normalize())
            + (["user"] >> ops.NormalizeMinMax())
        )
        flow = Workflow(graph).fit(frame)
        back = flow.inverse_transform(flow.transform(frame))
        assert back["city"].to_list() == frame["city"].to_list()
        np.testing.assert_allclose(
            back["price"].to_numpy(), frame["price"].fill_null(0).to_numpy(), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(back["user"].to_numpy(), frame["user"].to_numpy(), rtol=1e-6)

    def test_only_some_columns_and_unknown_codes(self, frame):
        flow = Workflow(["city", "user"] >> ops.Categorify()).fit(frame)
        coded = pl.DataFrame({"city": [0, 1, 2, 3, 99], "user": [3, 3, 3, 3, 3]}, schema_overrides={"city": pl.Int32})
        back = flow.inverse_transform(coded, columns=["city"])
        assert back["city"].to_list() == [None, None, None, "b", None]
        assert back["user"].to_list() == [3] * 5
        with pytest.raises(ParameterError, match="not in the frame"):
            flow.inverse_transform(coded, columns=["town"])

    def test_list_columns(self):
        frame = pl.DataFrame({"genres": [["x", "y"], [], ["y"]]})
        flow = Workflow(["genres"] >> ops.Categorify()).fit(frame)
        assert flow.transform(frame)["genres"].to_list() == [[4, 3], [], [3]]
        assert flow.inverse_transform(flow.transform(frame))["genres"].to_list() == [["x", "y"], [], ["y"]]


class TestSmallerWorkflows:
    def test_remove_inputs_drops_what_depends_on_them(self, frame):
        graph = (["city"] >> ops.Categorify()) + (["click"] >> ops.LogOp() >> ops.Rename(postfix="_log")) + ["click"]
        flow = Workflow(graph).fit(frame)
        serving = flow.remove_inputs(["click"])
        assert serving.output_schema.names == ["city"]
        assert serving.transform(frame.drop("click"))["city"].to_list() == flow.transform(frame)["city"].to_list()
        with pytest.raises(ParameterError, match="no input"):
            flow.remove_inputs(["clik"])
        with pytest.raises(GraphError, match="nothing"):
            flow.remove_inputs(["click", "city"])

    def test_a_target_encoding_serves_without_its_target(self, frame):
        flow = Workflow((["user"] >> ops.TargetEncoding("click")) + ["click"]).fit(frame)
        serving = flow.remove_inputs(["click"])
        assert serving.transform(frame.select("user")).columns == ["TE_user_click"]

    def test_subworkflow_by_name(self, frame):
        cats = (["city"] >> ops.Categorify()).named("cats")
        flow = Workflow(cats + ["click"]).fit(frame)
        assert flow.get_subworkflow("cats").transform(frame).columns == ["city"]
        with pytest.raises(ParameterError, match="no node is named"):
            flow.get_subworkflow("dogs")


class TestRecipes:
    def test_yaml_round_trip(self, frame, tmp_path):
        cats = ["city", ["user", "click"]] >> ops.Categorify(freq_threshold={"city": 2}, num_buckets=3)
        conts = ["price"] >> ops.FillMissing(0.0) >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize("float64")
        flow = Workflow((cats + conts) - ["click"])
        flow.to_yaml(tmp_path / "r.yaml")
        again = Workflow.from_recipe(tmp_path / "r.yaml")
        assert again.to_recipe() == flow.to_recipe()
        assert again.fit_transform(frame).equals(flow.fit_transform(frame))

    @pytest.mark.parametrize(
        ("recipe", "message"),
        [
            ({}, "recipe: 1"),
            ({"recipe": 1, "nodes": {}}, "needs nodes"),
            ({"recipe": 1, "nodes": {"a": {"ops": []}}}, "either columns or from"),
            ({"recipe": 1, "nodes": {"a": {"columns": ["x"], "opps": []}}}, "unknown key 'opps'"),
            ({"recipe": 1, "nodes": {"a": {"columns": ["x"], "ops": ["Categorifi"]}}}, "did you mean 'Categorify'"),
            ({"recipe": 1, "nodes": {"a": {"columns": ["x"], "ops": [{"Clip": {"low": 1}}]}}}, "no argument 'low'"),
            ({"recipe": 1, "nodes": {"a": {"columns": ["x"]}}, "output": ["b"]}, "is not a node"),
            ({"recipe": 1, "nodes": {"a": {"from": "b"}, "b": {"from": "a"}}}, "in a circle"),
        ],
    )
    def test_mistakes_are_named(self, recipe, message):
        with pytest.raises((ParameterError, GraphError), match=message):
            Workflow.from_recipe(recipe)

    def test_bad_yaml_names_the_file(self, tmp_path):
        (tmp_path / "r.yaml").write_text("a: [")
        with pytest.raises(ParameterError, match=r"r\.yaml is not valid YAML"):
            Workflow.from_recipe(tmp_path / "r.yaml")
        with pytest.raises(ParameterError, match="does not exist"):
            Workflow.from_recipe(tmp_path / "none.yaml")


class TestRows:
    def test_rows_equal_frames(self, frame):
        graph = (
            (["user", "city"] >> ops.Categorify(num_buckets=4))
            + (
                ["price"]
                >> ops.FillMissing(0)
                >> ops.Clip(min_value=0.5, max_value=4.5)
                >> ops.LogOp()
                >> ops.Normalize()
            )
            + ["click"]
        )
        flow = Workflow(graph).fit(frame)
        out = flow.transform(frame)
        for i, row in enumerate(frame.iter_rows(named=True)):
            assert flow.transform_row(row) == out.row(i, named=True)

    def test_mistakes_are_named(self, frame):
        flow = Workflow(["user"] >> ops.Categorify()).fit(frame)
        with pytest.raises(ColumnNotFoundError, match="the row given"):
            flow.transform_row({"usr": 1})
        with pytest.raises(ConversionError, match=r"column 'user' of the row .*'x' is no int64"):
            flow.transform_row({"user": "x"})
        with pytest.raises(ConversionError, match="it has a fraction"):
            flow.transform_row({"user": 1.5})
        with pytest.raises(GraphError, match="keeps rows"):
            Workflow(["price"] >> ops.Dropna()).fit(frame).transform_row({"price": 1.0})


class TestGlobalOperators:
    def test_target_encoding_uses_folds_only_for_the_training_rows(self):
        rng = np.random.default_rng(0)
        frame = pl.DataFrame({"c": rng.integers(0, 3, 300), "y": rng.integers(0, 2, 300)})
        flow = Workflow((["c"] >> ops.TargetEncoding("y", kfold=3, p_smooth=0)) + ["c", "y"])
        train = flow.fit_transform(in_parts(frame, 40)).to_polars()
        plain = flow.transform(in_parts(frame, 40)).to_polars()
        name = "TE_c_y"
        means = {k[0]: g["y"].mean() for k, g in frame.group_by("c")}
        np.testing.assert_allclose(plain[name].to_numpy(), [means[c] for c in frame["c"]], rtol=1e-6)
        assert plain[name].n_unique() == 3
        assert train[name].n_unique() == 9, "three folds give each category three encodings"
        assert flow.fit_transform(frame)[name].to_list() == train[name].to_list()

    def test_lag_crosses_partitions_and_keeps_order(self):
        frame = pl.DataFrame({"u": [1, 2, 1, 2, 1, 1], "t": [1, 5, 4, 9, 10, 11]})
        flow = Workflow((["t"] >> ops.DifferenceLag(["u"])) + ["u"])
        out = flow.fit_schema(Schema.from_polars(frame.schema)).transform(in_parts(frame, 2)).to_polars()
        assert out["t_difference_lag_1"].to_list() == [None, None, 3, 4, 6, 1]
        assert out["u"].to_list() == frame["u"].to_list()

    def test_groupby_right_after_filter(self, frame):
        kept = ["user", "price"] >> ops.Dropna()
        flow = Workflow(kept >> ops.Groupby(["user"], aggs={"price": ["sum", "count"]}))
        out = flow.fit_schema(Schema.from_polars(frame.schema)).transform(in_parts(frame)).to_polars().sort("user")
        assert out["user"].to_list() == [1, 2, 3]
        assert out["price_sum"].to_list() == [9.0, 4.0, 9.0]


class _Scaled(ops.Normalize):
    """The same operator under another argument."""

    def __init__(self, precise: bool = False) -> None:
        super().__init__("float64" if precise else "float32")

    @classmethod
    def recipe_class(cls) -> type:
        return ops.Normalize


def test_an_operator_under_other_arguments_is_saved_as_its_parent(frame, tmp_path):
    flow = Workflow(["price"] >> _Scaled(precise=True)).fit(frame)
    assert repr(flow.output.operator) == "_Scaled(out_dtype='float64')"
    flow.save(tmp_path / "flow")
    loaded = Workflow.load(tmp_path / "flow")
    assert type(loaded.output.operator) is ops.Normalize
    assert loaded.transform(frame).equals(flow.transform(frame))


class _Bounded(ops.Clip):
    """A subclass without a constructor of its own."""


def test_arguments_of_subclasses_are_checked():
    with pytest.raises(ParameterError, match="Clip needs min_value, max_value or both"):
        _Bounded()
    with pytest.raises(ParameterError, match=r"_Odd\.out_dtype must be float32 or float64"):
        type("_Odd", (ops.Normalize,), {})("int8")


def test_a_workflow_is_fitted_only_when_it_can_transform() -> None:
    from penstock import ColumnSchema, Schema

    schema = Schema([ColumnSchema("city", "string"), ColumnSchema("price", "float64")])
    learns = Workflow(["city"] >> ops.Categorify())
    assert not learns.has_schema and not learns.is_fitted
    learns.fit_schema(schema)
    assert learns.has_schema and not learns.is_fitted
    with pytest.raises(NotFittedError):
        learns.transform(pl.DataFrame({"city": ["a"], "price": [1.0]}))
    assert Workflow(["price"] >> ops.LogOp()).fit_schema(schema).is_fitted
