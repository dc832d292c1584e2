"""Merlin's graphs: what `>>`, `+`, `-` and `[…]` accept, schemas without dtypes, operators by themselves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def newest():
    with settings.using(nvtabular="latest"):
        yield


@pytest.fixture
def frame():
    return pd.DataFrame(
        {"a": [1, 2, 3, 4], "b": [4.0, 3.0, 2.0, 1.0], "c": ["x", "y", "x", "x"], "l": [[1], [2, 3], [], [4]]}
    )


def columns(node, frame) -> list[str]:
    import nvtabular as nvt

    return list(nvt.Workflow(node).fit_transform(nvt.Dataset(frame)).compute().columns)


class TestAlgebra:
    def test_what_may_stand_in_a_graph(self, frame):
        from nvtabular import ColumnSelector, WorkflowNode, ops

        logged = ["b"] >> ops.LogOp()
        assert columns(WorkflowNode(["a", "b"]), frame) == ["a", "b"]
        assert columns(frame.columns[:2] >> ops.LogOp(), frame) == ["a", "b"]
        assert columns(np.array(["a", "b"]) >> ops.LogOp(), frame) == ["a", "b"]
        assert columns({"a": 1, "b": 2}.keys() >> ops.LogOp(), frame) == ["a", "b"]
        assert columns(logged + [], frame) == ["b"]
        assert columns([["a"], logged, ["c", "l"]] >> ops.Operator(), frame) == ["a", "b", "c", "l"]
        assert columns(["a", [logged, "c"]] >> ops.Operator(), frame) == ["a", "b", "c"]
        assert (
            columns(["a", "b"] >> ops.Operator(), frame)
            == columns(ColumnSelector(["a", "b"]) >> ops.Operator, frame)
            == ["a", "b"]
        )
        assert columns(ColumnSelector("a") + logged, frame) == columns(logged + ["a"], frame) == ["b", "a"]
        assert columns(["a"] + logged, frame) == columns("a" + logged, frame) == ["a", "b"]
        with pytest.raises(TypeError, match="list of names or a ColumnSelector"):
            WorkflowNode(3)
        with pytest.raises(AttributeError, match="cannot hold further groups"):
            ColumnSelector(["a", ["b", ["c", ["l"]]]])

    def test_subtraction(self, frame):
        from nvtabular import ColumnSelector, ops

        both = ["a", "b", "c"] >> ops.Operator()
        assert columns(both - "a", frame) == columns(both - ["a"], frame) == ["b", "c"]
        assert columns(both - ColumnSelector(["a", "b"]), frame) == ["c"]
        assert columns(both - (["a"] >> ops.LogOp()), frame) == ["b", "c"]
        assert columns(both - ["c", ["a"] >> ops.LogOp()], frame) == ["b"]
        assert columns(["a", "b"] - (["a"] >> ops.LogOp()), frame) == ["b"]
        assert columns(both - "nowhere", frame) == ["a", "b", "c"]
        assert columns((["a"] >> ops.Rename(postfix="_x")) + ["a"] - ["a_x"], frame) == ["a"]

    def test_the_right_side_of_a_sum_wins(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        logged = ["a", "b"] >> ops.LogOp()
        done = nvt.Workflow(logged + ["a"]).fit_transform(frame)
        assert done["a"].tolist() == [1, 2, 3, 4] and done["b"].tolist() == pytest.approx(np.log1p(frame["b"]).tolist())
        again = nvt.Workflow(["a"] >> ops.Operator() >> ops.Operator()).output_node + logged
        assert nvt.Workflow(again).fit_transform(frame)["a"].tolist() == pytest.approx(np.log1p(frame["a"]).tolist())
        workflow = nvt.Workflow(logged + ["a"]).fit(nvt.Dataset(frame))
        workflow.save("saved")
        assert nvt.Workflow.load("saved").transform(frame)["a"].tolist() == [1, 2, 3, 4]

    def test_subgraphs_read_what_stands_left_of_them(self, frame):
        import nvtabular as nvt
        from merlin.dag.ops.subgraph import Subgraph
        from nvtabular import ops

        named = ["a", "b"] >> ops.LogOp() >> Subgraph("shift", ["b"] >> ops.LambdaOp(lambda col: col + 1))
        workflow = nvt.Workflow(named + ["c"]).fit(nvt.Dataset(frame))
        assert workflow.transform(frame)["b"].tolist() == pytest.approx((np.log1p(frame["b"]) + 1).tolist())
        assert workflow.get_subworkflow("shift").output_schema.column_names == ["b"]
        two = Subgraph("cats", ["c"] >> ops.Categorify()) + Subgraph("conts", ["a"] >> ops.Normalize())
        assert nvt.Workflow(two).fit(nvt.Dataset(frame)).output_schema.column_names == ["c", "a"]

    def test_what_a_node_tells(self, frame):
        import nvtabular as nvt
        from merlin.dag import Graph, iter_nodes
        from nvtabular import ops

        class Kept(ops.Operator):
            pass

        node = ["a", ["b", "a"]] >> Kept()
        assert isinstance(node.op, Kept) and node.parents == [node.parents[0]] and node.parents[0].children == [node]
        assert node.parents[0].selector.names == ["a", "b"]
        with pytest.raises(RuntimeError, match="no schema yet"):
            node.output_columns  # noqa: B018
        workflow = nvt.Workflow(node + "c").fit(nvt.Dataset(frame))
        assert node.input_columns.grouped_names == ["a", ("b", "a")] and node.output_columns.names == ["a", "b"]
        assert workflow.output_node.parents_with_dependencies[0] is node
        assert workflow.graph.column_mapping == {"a": ["a"], "b": ["b"], "c": ["c"]}
        assert Graph.get_nodes_by_op_type([workflow.output_node], Kept) == {node}
        assert len(list(iter_nodes([workflow.output_node]))) == 4


class TestSchemas:
    def test_without_dtypes(self):
        import nvtabular as nvt
        from merlin.schema import ColumnSchema, Schema, Tags
        from nvtabular import ops

        schema = Schema(["a", "b", ColumnSchema("c", tags=[Tags.USER])])
        node = (["a", "b"] >> ops.FillMissing() >> ops.LogOp()) + (["c"] >> ops.Categorify()) - ["b"]
        workflow = nvt.Workflow(node).fit_schema(schema)
        assert workflow.input_schema.column_names == ["a", "b", "c"]
        assert workflow.output_schema.column_names == ["a", "c"]
        assert workflow.output_schema["a"].dtype == np.float32 and workflow.output_schema["c"].dtype == np.int64
        assert Tags.CATEGORICAL in workflow.output_schema["c"].tags and Tags.USER in workflow.output_schema["c"].tags
        assert nvt.Workflow(["a"] >> ops.Clip(0)).fit_schema(schema).output_schema["a"].dtype.name == "unknown"
        assert workflow.remove_inputs(["a"]).output_schema.column_names == ["c"]
        assert workflow.input_schema.column_names == ["b", "c"]
        with pytest.raises(ValueError, match="'z' is not in"):
            nvt.Workflow(["z"] >> ops.LogOp()).fit_schema(schema)

    @pytest.mark.parametrize(
        ("make", "outputs"),
        [
            (lambda ops: ops.Rename(postfix="_x"), {"a_x": ["a"], "b_x": ["b"]}),
            (lambda ops: ops.Normalize(), {"a": ["a"], "b": ["b"]}),
            (lambda ops: ops.FillMissing(add_binary_cols=True), {"a": ["a"], "b": ["b"], "a_filled": ["a"],
                                                                 "b_filled": ["b"]}),
            (lambda ops: ops.HashedCross(3), {"a_X_b": ["a", "b"]}),
        ],
    )  # fmt: skip
    def test_operators_declare(self, make, outputs):
        from merlin.dag import ColumnSelector
        from merlin.schema import ColumnSchema, Schema
        from nvtabular import ops

        op = make(ops)
        chosen = ColumnSelector([["a", "b"]] if list(outputs) == ["a_X_b"] else ["a", "b"])
        schema = Schema([ColumnSchema(name, dtype=np.int64, properties={"p": 1}) for name in "abc"])
        assert op.output_column_names(chosen).names == list(outputs)
        declared = op.compute_output_schema(schema, chosen)
        assert declared.column_names == list(outputs)
        assert op.compute_selector(schema, chosen).names == ["a", "b"]
        if len(outputs) > 1:
            assert op.column_mapping(chosen) == outputs
        with pytest.raises(ValueError, match="'z' is not in"):
            op.compute_output_schema(schema, ColumnSelector(["z"]))

    def test_a_users_declarations_count(self, frame):
        import nvtabular as nvt
        from merlin.schema import Schema, Tags
        from nvtabular import ops

        class Twice(ops.Operator):
            def transform(self, col_selector, df):
                return pd.DataFrame({f"{name}_2": df[name] * 2 for name in col_selector.names})

            def column_mapping(self, col_selector):
                return {f"{name}_2": [name] for name in col_selector.names}

            @property
            def output_tags(self):
                return [Tags.CONTINUOUS]

            @property
            def output_dtype(self):
                return np.float32

        class Declared(ops.Operator):
            def compute_output_schema(self, input_schema, col_selector, prev_output_schema=None):
                known = super().compute_output_schema(input_schema, col_selector, prev_output_schema)
                return Schema([c.with_dtype(np.float64).with_properties({"mine": 1}) for c in known])

        workflow = nvt.Workflow(["a"] >> Twice()).fit(nvt.Dataset(frame))
        assert (
            workflow.output_schema["a_2"].dtype == np.float32 and Tags.CONTINUOUS in workflow.output_schema["a_2"].tags
        )
        assert workflow.transform(frame)["a_2"].dtype == np.float32
        unknown = nvt.Workflow(["a"] >> Twice()).fit_schema(Schema(["a"]))
        assert unknown.output_schema.column_names == ["a_2"]
        declared = nvt.Workflow(["a"] >> Declared()).fit(nvt.Dataset(frame))
        assert (
            declared.output_schema["a"].properties["mine"] == 1 and declared.transform(frame)["a"].dtype == np.float64
        )


class TestOperatorsByThemselves:
    def test_transform(self, frame):
        import nvtabular as nvt
        from merlin.dag import ColumnSelector
        from nvtabular import ops

        done = ops.LogOp().transform(ColumnSelector(["a"]), frame)
        assert isinstance(done, pd.DataFrame) and done["a"].tolist() == pytest.approx(np.log1p(frame["a"]).tolist())
        assert ops.LambdaOp(lambda col: col + 1).transform(ColumnSelector(["a"]), frame)["a"].tolist() == [2, 3, 4, 5]
        assert len(ops.Filter(lambda df: df["a"] > 2).transform(ColumnSelector(["a", "b"]), frame)) == 2
        assert ops.Operator().transform(ColumnSelector(["a"]), frame) is frame
        with pytest.raises(RuntimeError, match="not fitted"):
            ops.Normalize().transform(ColumnSelector(["a"]), frame)
        norm = ops.Normalize()
        norm.fit_finalize(norm.fit(ColumnSelector(["a"]), nvt.Dataset(frame, npartitions=2).to_ddf()).compute())
        assert norm.transform(ColumnSelector(["a"]), frame)["a"].mean() == pytest.approx(0)

    def test_what_they_learned(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        norm, ranges, median = ops.Normalize(), ops.NormalizeMinMax(), ops.FillMedian()
        cats, counts, stats = ops.Categorify(), ops.ValueCount(), ops.DataStats()
        assert norm.means == ranges.mins == median.medians == cats.categories == counts.stats == stats.output == {}
        data = nvt.Dataset(frame)
        nvt.Workflow(["a"] >> norm).fit(data)
        nvt.Workflow(["b"] >> ranges).fit(data)
        nvt.Workflow(["a"] >> median).fit(data)
        nvt.Workflow(["c"] >> cats).fit(data)
        nvt.Workflow(["l", "a"] >> counts).fit(data)
        nvt.Workflow(["a", "b", "c"] >> stats).fit(data)
        assert norm.means == {"a": 2.5} and norm.stds["a"] == pytest.approx(frame["a"].std())
        assert (ranges.mins, ranges.maxs, median.medians) == ({"b": 1.0}, {"b": 4.0}, {"a": 2.5})
        assert pd.read_parquet(cats.categories["c"])["c"].tolist() == ["x", "y"]
        assert pd.read_parquet("categories/unique.c.parquet").index.tolist() == [3, 4]
        assert counts.stats == {"l": {"value_count": {"min": 0, "max": 2}}}
        assert stats.output["c"] == {
            "min": 1,
            "max": 1,
            "mean": 1.0,
            "std": 0.0,
            "cardinality": 2,
            "per_nan": 0.0,
            "dtype": str(pd.Series(["a"]).dtype),
        }
        assert stats.output["b"]["std"] == pytest.approx(frame["b"].std()) and stats.output["a"]["cardinality"] == 4

    def test_a_fitted_operator_in_a_second_workflow(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        norm = ops.Normalize()
        first = nvt.Workflow(["a"] >> norm).fit(nvt.Dataset(frame))
        second = nvt.Workflow((["a"] >> norm) + ["b"])
        assert second.transform(frame)["a"].tolist() == first.transform(frame)["a"].tolist()
        first.save("saved")
        assert nvt.Workflow.load("saved").output_node.op.means == {"a": 2.5}

    def test_names_that_a_function_gave_are_saved(self, frame):
        import nvtabular as nvt

        from penstock import Workflow

        workflow = nvt.Workflow(["a", "b"] >> nvt.ops.Rename(f=lambda name: name.upper())).fit(nvt.Dataset(frame))
        workflow.save("saved")
        assert nvt.Workflow.load("saved").transform(frame).columns.tolist() == ["A", "B"]
        assert Workflow.load("saved").output_schema.names == ["A", "B"]
        with pytest.raises(ValueError, match="exactly one of"):
            nvt.ops.Rename(postfix="_x", names={"a": "b"})

    def test_computed_columns_as_arguments(self, frame):
        import nvtabular as nvt
        from merlin.schema import Schema
        from nvtabular import ops

        shifted = ["a", "b"] >> ops.LambdaOp(lambda col: col + 1.0) >> ops.Rename(postfix="_1")
        means = ["c"] >> ops.JoinGroupby(cont_cols=shifted, stats=["mean", "count"])
        workflow = nvt.Workflow(means)
        done = workflow.fit_transform(nvt.Dataset(frame, npartitions=2)).compute()
        expected = (frame["a"] + 1).groupby(frame["c"]).transform("mean")
        assert done["c_a_1_mean"].tolist() == pytest.approx(expected.tolist())
        assert {"c_count", "c_b_1_mean"} <= set(done.columns)
        with pytest.warns(UserWarning, match="saved without it"):
            workflow.save("saved")
        pd.testing.assert_frame_equal(nvt.Workflow.load("saved").transform(frame), done)
        target = ["a"] >> ops.LambdaOp(lambda col: (col > 2).astype("float32")) >> ops.Rename(name="big")
        node = ["c"] >> ops.TargetEncoding(target, p_smooth=1)
        assert nvt.Workflow(node).fit(nvt.Dataset(frame)).output_schema.column_names == ["TE_c_big"]
        assert nvt.Workflow(node).fit_schema(Schema(["a", "c"])).output_schema.column_names == ["TE_c_big"]

    def test_groupby_by_columns_that_are_not_selected(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        node = ["a"] >> ops.Groupby("c", sort_cols="b", aggs={"a": [list, "sum"], "elsewhere": "sum"})
        done = nvt.Workflow(node).fit_transform(nvt.Dataset(frame, npartitions=2)).compute()
        assert sorted(done["a_sum"]) == [2, 8] and list(done.columns) == ["a_list", "a_sum"]
        assert sorted(map(list, done["a_list"])) == [[2], [4, 3, 1]]

    def test_cardinalities_count_codes(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        data = pd.DataFrame({"one": ["a"] * 4, "two": ["a", "a", "b", "b"], "three": ["a", "b", "c", "c"]})
        node = ["one", "two", "three"] >> ops.Categorify() >> ops.DropLowCardinality()
        assert nvt.Workflow(node).fit(nvt.Dataset(data)).output_schema.column_names == ["two", "three"]
